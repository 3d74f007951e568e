"""Out of memory in a step: the same batch again, smaller, until it is done. On the fake backend."""

import numpy as np
import pytest

from fitroom.backends.fake.backend import FakeBackend
from fitroom.backends.fake.stepper import SAMPLE_BYTES, FakeStepper
from fitroom.errors import OutOfMemoryError
from fitroom.train.batch import Batch
from fitroom.train.events import Events
from fitroom.train.sizing import FIRST_STRETCH, Sizing
from fitroom.train.transaction import Transaction


def transaction(*, samples_that_fit, micro_batch=None, batch_statistics=False):
    backend = FakeBackend(capacity_bytes=samples_that_fit * SAMPLE_BYTES)
    stepper = backend.stepper(None, jit=None)
    return Transaction(backend, stepper, Events(), micro_batch=micro_batch, batch_statistics=lambda: batch_statistics)


def batch_of(size):
    return Batch(x=np.zeros((size, 1)))


def test_a_batch_that_fits_is_trained_whole_and_nothing_is_said():
    steps = transaction(samples_that_fit=64)
    steps.train(batch_of(64))
    assert steps.stepper.trained == [64]
    assert steps.events.happened == []


def test_a_batch_that_does_not_fit_is_halved_until_it_does_and_done_once():
    steps = transaction(samples_that_fit=20)
    steps.train(batch_of(64))
    assert steps.stepper.trained == [64]
    assert steps.training.current == 16
    assert [event["samples"] for event in steps.events.happened] == [64, 32]


def test_the_size_that_worked_is_remembered():
    steps = transaction(samples_that_fit=20)
    for size in (64, 64, 30):
        steps.train(batch_of(size))
    assert steps.out_of_memory_count == 2
    assert steps.stepper.trained == [64, 64, 30]


def test_validation_has_a_size_of_its_own():
    steps = transaction(samples_that_fit=20)
    steps.test(batch_of(64))
    assert steps.testing.current == 16
    assert steps.training.current is None
    assert steps.stepper.tested == [64]


def test_validation_begins_at_what_training_found():
    steps = transaction(samples_that_fit=20)
    steps.train(batch_of(64))
    steps.test(batch_of(64))
    assert steps.out_of_memory_count == 2


def test_one_sample_that_does_not_fit_says_what_there_was_and_what_to_try():
    steps = transaction(samples_that_fit=0)
    with pytest.raises(OutOfMemoryError) as raised:
        steps.train(batch_of(4))
    assert "one sample at once" in raised.value.message
    assert "cannot give 100 bytes" in raised.value.message
    assert "fitroom estimate" in raised.value.hint


def test_memory_that_is_not_given_back_is_named_as_the_cause():
    steps = transaction(samples_that_fit=2)
    steps.backend._gpu_memory.allocate(2 * SAMPLE_BYTES)
    with pytest.raises(OutOfMemoryError) as raised:
        steps.train(batch_of(4))
    assert "although nothing runs" in raised.value.hint


def test_a_batch_that_cannot_be_cut_says_why():
    steps = transaction(samples_that_fit=2)
    steps.stepper = FakeStepper(steps.backend._gpu_memory, why_whole="the model brings its own `train_step`")
    with pytest.raises(OutOfMemoryError, match="its own `train_step`"):
        steps.train(batch_of(4))


def test_other_errors_are_raised_untouched():
    steps = transaction(samples_that_fit=2)
    error = ValueError("shapes differ")

    def failing(*_):
        raise error

    steps.stepper.train = failing
    with pytest.raises(ValueError, match="shapes differ") as raised:
        steps.train(batch_of(1))
    assert raised.value is error


def test_batch_statistics_are_spoken_of_once_and_only_when_a_batch_was_cut():
    steps = transaction(samples_that_fit=64, micro_batch=8, batch_statistics=True)
    steps.train(batch_of(8))
    assert steps.events.happened == []
    for _ in range(3):
        steps.train(batch_of(16))
    assert [event["kind"] for event in steps.events.happened] == ["batch statistics"]


def test_memory_that_comes_back_is_used_again_after_a_clean_stretch():
    steps = transaction(samples_that_fit=16)
    steps.train(batch_of(32))
    steps.backend._gpu_memory.capacity_bytes = 32 * SAMPLE_BYTES
    for _ in range(FIRST_STRETCH + 1):
        steps.train(batch_of(32))
    assert steps.training.samples_at_once(32) == 32
    assert steps.out_of_memory_count == 1


def test_growing_never_thrashes():
    steps = transaction(samples_that_fit=16)
    updates = 20 * FIRST_STRETCH
    for _ in range(updates):
        steps.train(batch_of(32))
    # At first, then after 100, 200, 400 and 800 clean updates.
    assert steps.out_of_memory_count == 5
    assert steps.training.samples_at_once(32) == 16
    assert len(steps.stepper.trained) == updates


def test_growing_stops_at_what_was_asked():
    sizing = Sizing(ceiling=8)
    sizing.failed(8)
    for _ in range(5 * FIRST_STRETCH):
        sizing.succeeded(64)
    assert sizing.samples_at_once(64) == 8


def test_a_sizing_survives_a_checkpoint():
    sizing = Sizing()
    sizing.failed(64)
    sizing.succeeded(64)
    again = Sizing()
    again.restore(sizing.to_dict())
    assert again == sizing
