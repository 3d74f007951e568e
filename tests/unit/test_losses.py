"""When a loss is looked at, and which batch it is said of."""

import math

import pytest

from fitroom.backends.fake.backend import FakeBackend
from fitroom.events import Events
from fitroom.train import keras_logs
from fitroom.train.keras_logs import LossWatch


class Loss:
    """A number on a card, which notes when it is read."""

    read = ()

    def __init__(self, batch, value):
        self.batch, self.value = batch, value

    def __float__(self):
        Loss.read = (*Loss.read, self.batch)
        return self.value


@pytest.fixture
def clock(monkeypatch):
    """A second goes by from batch to batch, if not told otherwise."""
    now = [0.0]
    monkeypatch.setattr(keras_logs.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Loss, "read", ())
    return now


def watched(clock, values, *, seconds=1.0, epoch=2):
    events = Events()
    watch = LossWatch(events, FakeBackend())
    for batch, value in enumerate(values):
        clock[0] += seconds
        watch.check({"loss": Loss(batch, value)}, epoch, batch)
    return watch, events


def test_on_a_card_the_loss_of_the_batch_before_is_read(clock):
    watched(clock, [1.0, 0.5, 0.4])
    assert Loss.read == (0, 1)


def test_it_is_read_now_and_then_only(clock):
    watched(clock, [1.0] * 12, seconds=0.2)
    assert Loss.read == (1, 4, 7, 10)


def test_a_loss_that_is_no_number_is_said_once_with_its_batch(clock, caplog):
    watch, events = watched(clock, [1.0, 0.5, math.nan, math.nan, math.nan])
    watch.check({"loss": Loss(4, math.nan)}, 2, None)
    [event] = events.happened
    assert (event["kind"], event["epoch"], event["batch"]) == ("loss not finite", 2, 2)
    assert "nan at batch 3 of epoch 3 (after batch 2 it was still finite)" in event["message"]


def test_the_last_loss_of_an_epoch_is_read_in_any_case(clock, caplog):
    watch, events = watched(clock, [1.0, math.inf], seconds=0.1)
    assert not events.happened
    watch.check({"loss": Loss(1, math.inf)}, 2, None)
    [event] = events.happened
    assert "inf at its last batches of epoch 3" in event["message"]
