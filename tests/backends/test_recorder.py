"""Readings of `fitroom.fit` on a real framework."""

import json
import os

import keras
import numpy as np
import pytest

import fitroom
from event_files import scalars
from fitroom.backends.choose import current_backend
from fitroom.backends.fake.backend import FakeBackend
from fitroom.errors import RunInterrupted
from fitroom.events import listening
from fitroom.report.progress.words import format_event
from fitroom.train.sizing import Sizing
from fitroom.watching import recorder as recorder_module
from fitroom.watching.recorder import Recorder
from fitroom.watching.tensorboard import TensorBoardLog
from fitroom.watching.timing import SteadyRate

FIELDS = [
    *("time", "epoch", "batch", "update", "loss", "metrics", "learning_rate", "pictures_per_second"),
    *("in_use_bytes", "peak_bytes", "reserved_bytes", "limit_bytes", "host_bytes", "micro_batch"),
    "spent_seconds",
]
MIB = 2**20


class Heard:
    """A listener that remembers."""

    def __init__(self):
        self.readings, self.epochs, self.events = [], [], []

    def reading(self, reading):
        self.readings.append(reading)

    def epoch_ended(self, epoch, logs):
        self.epochs.append((epoch, logs))

    def event(self, event):
        self.events.append(event)


@pytest.fixture
def every_batch(monkeypatch):
    """A reading after each batch, not each second."""
    monkeypatch.setattr(recorder_module, "_SECONDS_BETWEEN", 0.0)


def small_net(**compile_arguments):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(**{"optimizer": "sgd", "loss": loss, "metrics": ["accuracy"]} | compile_arguments)
    return model


def trained(folder, *, model=None, callbacks=(), heard=(), batch_size=16, number=50, **options):
    random = np.random.default_rng(0)
    x, y = random.normal(size=(number, 6)).astype("float32"), random.integers(0, 3, number).astype("int32")
    recorder = Recorder(folder, images_per_batch=batch_size, backend=current_backend(), listeners=heard)
    options = {"epochs": 2, "seed": 1, "verbose": 0, "validation_data": (x, y)} | options
    model = model or small_net()
    return fitroom.fit(model, x, y, batch_size=batch_size, callbacks=[recorder, *callbacks], **options)


def lines(folder):
    return [json.loads(line) for line in (folder / "readings.jsonl").read_text().splitlines()]


class FailsAbove(keras.layers.Layer):
    """Raises out of memory for batches above a size. PLANTED: the framework itself does not run out here."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def call(self, x, training=False):
        if training and x.shape[0] is not None and x.shape[0] > self.most:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.0GiB (planted)")
        return x


class StopAt(keras.callbacks.Callback):
    """As Ctrl-C, or as a kill, after so many batches of an epoch."""

    def __init__(self, epoch, batch, error):
        super().__init__()
        self.place, self.error, self.epoch = (epoch, batch), error, 0

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.place:
            raise self.error


def test_each_reading_has_what_the_run_folder_promises(tmp_path, every_batch):
    heard = Heard()
    history = trained(tmp_path, heard=[heard])
    found = lines(tmp_path)
    assert all(list(reading) == FIELDS for reading in found)
    assert [(r["epoch"], r["batch"], r["update"]) for r in found] == [
        *((0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 4, 4), (0, 4, 4)),
        *((1, 1, 5), (1, 2, 6), (1, 3, 7), (1, 4, 8), (1, 4, 8)),
    ]
    ends = [reading for reading in found if "val_loss" in reading["metrics"]]
    assert [end["loss"] for end in ends] == pytest.approx(history.history["loss"])
    assert [end["metrics"]["val_accuracy"] for end in ends] == pytest.approx(history.history["val_accuracy"])
    assert [reading["learning_rate"] for reading in found] == pytest.approx([0.01] * 10)
    assert all(reading["host_bytes"] > 50 * MIB for reading in found)
    assert found[0]["pictures_per_second"] is None  # it was compiled
    assert found[-1]["pictures_per_second"] > 0
    assert list(found[0]["spent_seconds"]) == ["compiling"]
    assert list(found[-1]["spent_seconds"]) == ["compiling", "training", "validating"]
    totals = {"epochs": 2, "batches": 4, "pictures_per_batch": 16}
    assert heard.readings == [reading | totals for reading in found]
    assert [(epoch, sorted(logs)) for epoch, logs in heard.epochs] == [
        (epoch, ["accuracy", "loss", "val_accuracy", "val_loss"]) for epoch in (0, 1)
    ]


@pytest.mark.quick_on("torch")
def test_a_fast_epoch_is_read_at_its_first_batch_before_validation_and_at_its_end(tmp_path):
    trained(tmp_path, epochs=1)
    found = [(reading["batch"], "val_loss" in reading["metrics"]) for reading in lines(tmp_path)]
    # Where the machine is so slow that a second passes, there is one more between.
    assert [one for one in found if one[0] in (1, 4)] == [(1, False), (4, False), (4, True)]
    assert len(found) <= 5


@pytest.mark.quick_on("torch")
def test_the_learning_rate_is_the_one_of_the_schedule(tmp_path, every_batch):
    schedule = keras.optimizers.schedules.CosineDecay(0.25, 100, warmup_target=0.5, warmup_steps=4)
    trained(tmp_path, model=small_net(optimizer=keras.optimizers.SGD(schedule)), epochs=1)
    found = [reading["learning_rate"] for reading in lines(tmp_path)]
    assert found[:4] == pytest.approx([0.3125, 0.375, 0.4375, 0.5])


@pytest.mark.quick_on("torch")
def test_the_micro_batch_is_shown_where_batches_are_cut(tmp_path):
    trained(tmp_path / "whole", epochs=1, recipe=fitroom.Recipe(micro_batch=16))
    trained(tmp_path / "cut", epochs=1, recipe=fitroom.Recipe(micro_batch=5))
    assert {reading["micro_batch"] for reading in lines(tmp_path / "whole")} == {None}
    assert {reading["micro_batch"] for reading in lines(tmp_path / "cut")} == {5}


def test_out_of_memory_shows_at_its_batch_and_in_the_readings_after_it(tmp_path, every_batch):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8), FailsAbove(9), keras.layers.Dense(3)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    heard = Heard()
    with listening(heard.event):
        trained(tmp_path, model=model, epochs=1)
    assert [format_event(event) for event in heard.events] == [
        "out of memory at batch 1 of epoch 1: micro-batch 16 to 8, batch repeated"
    ]
    assert {reading["micro_batch"] for reading in lines(tmp_path)} == {8}


def test_memory_is_read_against_the_limit_where_the_framework_counts_it(tmp_path, every_batch):
    backend = current_backend()
    backend.release()
    before = backend.read_memory(backend.devices()[0])
    trained(tmp_path, epochs=1)
    for reading in lines(tmp_path):
        if backend.name == "tensorflow":  # conftest.py gives it a limited allocator that counts
            assert reading["limit_bytes"] == int(os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"]) * MIB
            assert 0 < reading["in_use_bytes"] <= reading["peak_bytes"] < before.in_use_bytes + 10 * MIB
        else:
            assert reading["limit_bytes"] is reading["in_use_bytes"] is reading["peak_bytes"] is None


def test_nearly_full_memory_is_told_once(tmp_path):
    backend, heard = FakeBackend(capacity_bytes=100), Heard()
    recorder = Recorder(tmp_path, images_per_batch=8, backend=backend, listeners=[heard])
    block = backend.allocate(89)
    recorder.on_epoch_end(0, {"loss": 1.0})
    assert heard.events == []
    backend.free(block)
    backend.free(backend.allocate(90))
    recorder.on_epoch_end(1, {"loss": 1.0})
    backend.free(backend.allocate(95))
    recorder.on_epoch_end(2, {"loss": 1.0})
    assert [event["kind"] for event in heard.events] == ["memory nearly full"]
    assert "90 of 100 B were in use at once" in heard.events[0]["message"]
    backend.free(backend.allocate(70))
    recorder.on_epoch_end(3, {"loss": 1.0})
    assert [reading["peak_bytes"] for reading in heard.readings] == [89, 90, 95, 70]  # each since the one before
    assert recorder.peak_bytes == 95
    resumed = Recorder(tmp_path, images_per_batch=8, backend=backend)
    resumed.set_state(recorder.get_state())
    assert resumed.peak_bytes == 95


def test_a_budget_below_the_allocators_limit_is_the_limit(tmp_path):
    recorder = Recorder(tmp_path, images_per_batch=8, backend=FakeBackend(capacity_bytes=100), limit_bytes=60)
    recorder.on_epoch_end(0, {"loss": 1.0})
    assert lines(tmp_path)[0]["limit_bytes"] == 60


def driven(folder, seconds_of_batches, *, between=lambda recorder, batch: None, waits=0.0):
    """The rate after batches of 8 pictures that take so long, by a clock of the test's own."""
    now = [0.0]

    def passes(seconds):
        now[0] += seconds

    recorder = Recorder(folder, images_per_batch=8, backend=FakeBackend(capacity_bytes=100))
    recorder._rate = SteadyRate(clock=lambda: now[0])
    recorder.set_params({"epochs": 1, "steps": len(seconds_of_batches)})
    recorder.on_epoch_begin(0)
    for batch, seconds in enumerate(seconds_of_batches):
        passes(waits)
        recorder.on_train_batch_begin(batch)
        passes(seconds)
        recorder.on_train_batch_end(batch, {"loss": 1.0})
        between(recorder, passes)
    return recorder._rate.per_second


def test_the_rate_leaves_out_compiling_and_the_last_batch_which_may_be_smaller(tmp_path, every_batch):
    assert driven(tmp_path, [60.0, 2.0, 2.0, 2.0, 0.1]) == 4.0


def test_the_rate_counts_waiting_for_pictures(tmp_path, every_batch):
    assert driven(tmp_path, [60.0, 2.0, 2.0, 2.0, 0.1], waits=2.0) == 2.0


def test_the_rate_is_the_same_whether_readings_are_seldom_or_not(tmp_path):
    assert driven(tmp_path, [60.0, 2.0, 2.0, 2.0, 0.1], waits=2.0) == 2.0


def test_the_rate_leaves_out_checkpoints_and_validation(tmp_path, every_batch):
    def checkpoint(recorder, passes):
        recorder.get_state()
        passes(30.0)

    def evaluation(recorder, passes):
        recorder.on_test_begin()
        passes(30.0)

    for pause in (checkpoint, evaluation):
        assert driven(tmp_path, [60.0, 2.0, 2.0, 2.0, 0.1], between=pause) == 4.0


def test_the_rate_leaves_out_compiling_for_another_micro_batch(tmp_path, every_batch):
    sizing = Sizing()

    def shrinks_after_the_third(recorder, passes):
        if recorder._batch == 3:
            sizing.failed(8)

    def begins_with(recorder, passes):
        recorder.set_sizing(sizing) if recorder._batch == 1 else shrinks_after_the_third(recorder, passes)

    assert driven(tmp_path, [60.0, 2.0, 2.0, 90.0, 2.0, 2.0, 0.1], between=begins_with) == 4.0


def test_a_full_disk_stops_neither_training_nor_views(tmp_path, every_batch):
    (tmp_path / "readings.jsonl").symlink_to("/dev/full")
    (tmp_path / "tensorboard").touch()  # where a folder is to be: an OSError too
    heard, log = Heard(), TensorBoardLog(tmp_path / "tensorboard")
    trained(tmp_path, epochs=1, heard=[log, heard])
    assert [reading["batch"] for reading in heard.readings] == [1, 2, 3, 4, 4]


@pytest.mark.quick_on("torch")
def test_a_loss_that_is_no_number_is_null(tmp_path):
    heard = Heard()
    with listening(heard.event):
        trained(tmp_path, model=small_net(optimizer=keras.optimizers.SGD(float("inf"))), epochs=1)
    assert lines(tmp_path)[-1]["loss"] is None
    assert [event["kind"] for event in heard.events] == ["loss not finite"]
    assert heard.events[0]["epoch"] == 0
    assert heard.events[0]["batch"] >= 0


@pytest.mark.quick_on("torch")
@pytest.mark.parametrize("place", [(1, 2), (1, 3)])
def test_a_killed_run_goes_on_without_a_gap_or_a_reading_twice(tmp_path, every_batch, place):
    options = {"run_dir": tmp_path, "epochs": 3, "checkpoint_batches": 2}
    with TensorBoardLog(tmp_path / "tensorboard") as log, pytest.raises(ZeroDivisionError):
        trained(tmp_path, heard=[log], callbacks=[StopAt(*place, ZeroDivisionError())], **options)
    with open(tmp_path / "readings.jsonl", "a") as file:
        file.write('{"time": 17')  # as a kill leaves it
    with TensorBoardLog(tmp_path / "tensorboard") as log:
        trained(tmp_path, heard=[log], callbacks=[StopAt(9, 9, RunInterrupted("", signal_number=2))], **options)
    expected = [1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 12]
    assert [reading["update"] for reading in lines(tmp_path)] == expected
    steps = scalars(tmp_path / "tensorboard" / "train")["batch_loss"]
    assert [step for step, _ in steps] == expected
    assert [step for step, _ in scalars(tmp_path / "tensorboard" / "validation")["epoch_loss"]] == [0, 1, 2]


@pytest.mark.quick_on("torch")
def test_tensorboard_shows_training_and_validation_as_keras_names_them(tmp_path, every_batch):
    with TensorBoardLog(tmp_path / "tensorboard") as log:
        history = trained(tmp_path, heard=[log]).history
    train, validation = scalars(tmp_path / "tensorboard" / "train"), scalars(tmp_path / "tensorboard" / "validation")
    for name in ("loss", "accuracy"):
        assert [value for _, value in train[f"epoch_{name}"]] == pytest.approx(history[name])
        assert [value for _, value in validation[f"epoch_{name}"]] == pytest.approx(history[f"val_{name}"])
        assert [step for step, _ in validation[f"epoch_{name}"]] == [0, 1]
    assert train["epoch_learning_rate"] == [(0, pytest.approx(0.01)), (1, pytest.approx(0.01))]
    assert sorted(validation) == ["epoch_accuracy", "epoch_loss"]
    assert {"batch_loss", "batch_accuracy", "batch_learning_rate", "pictures_per_second"} < set(train)
    assert train["memory/host_bytes"][0][1] > 50 * MIB
