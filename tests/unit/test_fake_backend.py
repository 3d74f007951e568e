"""The backend that fakes a card: it runs out of memory at its capacity, and its steps grow with the micro-batch."""

import pytest

from fitroom.backends.fake.backend import FakeBackend
from fitroom.backends.fake.out_of_memory import FakeOutOfMemoryError
from fitroom.cards.catalogue import find_card
from fitroom.memory.step import StepRequest
from fitroom.memory.timeline import Buffer, Moment, Timeline
from fitroom.recipe import Recipe


def test_the_fake_runs_out_at_its_capacity_and_not_before():
    backend = FakeBackend(capacity_bytes=100)
    first = backend.allocate(60)
    with pytest.raises(FakeOutOfMemoryError, match="60 of 100"):
        backend.allocate(41)
    backend.allocate(40)
    backend.free(first)
    backend.allocate(60)


def test_the_fake_step_grows_with_the_micro_batch_alone():
    card = find_card("T4")  # any: the fake does not look at it
    timeline = Timeline(
        buffers=(
            Buffer(size_bytes=1000, kind="weights", layer="dense", first=0, last=0),
            Buffer(size_bytes=10, kind="activations", layer="dense", first=0, last=0),
        ),
        moments=(Moment(name="dense", layer="dense", phase="forward"),),
    )
    backend = FakeBackend(capacity_bytes=5000, timeline=timeline)
    whole = backend.trace(None, StepRequest(batch_size=64, card=card))
    quarters = backend.trace(
        None, StepRequest(batch_size=64, card=card, recipe=Recipe(keras_accumulation=4), limit_bytes=2000)
    )
    assert (whole.required_bytes, whole.limit_bytes) == (1640, 5000)
    assert (quarters.required_bytes, quarters.limit_bytes) == (1160, 2000)
