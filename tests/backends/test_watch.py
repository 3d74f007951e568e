"""`fitroom.watch` on real trainings: what it reads, where that goes, and that it leaves everything as it was."""

import json
import os
import threading
import time

import keras
import numpy as np
import pytest

import fitroom
from event_files import scalars
from fitroom.backends.choose import current_backend
from sample_estimates import small_estimate
from traces import check_trace

BACKEND = keras.backend.backend()
COUNTS = BACKEND == "tensorflow"  # conftest.py gives it an allocator that counts, and a limit
LIMIT_BYTES = int(os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB", 0)) * 2**20
NUM_DEVICES = {"jax": 2, "tensorflow": 2, "torch": 1}[BACKEND]


class SlowData(keras.utils.PyDataset):
    """Batches that each take a while. PLANTED: a sleep in place of slow decoding."""

    def __init__(self, seconds, batches=5):
        super().__init__()
        self.seconds, self.batches = seconds, batches

    def __len__(self):
        return self.batches

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return samples(8)


class BrokenData(SlowData):
    def __getitem__(self, index):
        if index == 2:
            raise ZeroDivisionError("planted")
        return super().__getitem__(index)


def small_net(seed=0):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def samples(number=64):
    random = np.random.default_rng(0)
    return random.normal(size=(number, 6)).astype("float32"), random.integers(0, 3, number).astype("int32")


def train_plain(model, *data, **options):
    return model.fit(*data, **{"batch_size": None if len(data) == 1 else 8, "verbose": 0} | options)


def train_by_fitroom(model, *data, **options):
    return fitroom.fit(model, *data, **{"batch_size": None if len(data) == 1 else 8, "verbose": 0} | options)


@pytest.fixture
def untouched():
    """Nothing that a watch replaces in Keras stays replaced, and its thread has ended."""
    from keras.src.trainers.epoch_iterator import EpochIterator

    kinds = EpochIterator.__subclasses__()
    before = [keras.callbacks.CallbackList.__init__, *(kind._get_iterator for kind in kinds)]
    yield
    assert before == [keras.callbacks.CallbackList.__init__, *(kind._get_iterator for kind in kinds)]
    assert "fitroom watch" not in [thread.name for thread in threading.enumerate()]


pytestmark = pytest.mark.usefixtures("untouched")


def test_a_block_leaves_the_logs_of_the_code_in_it_as_they_are():
    with fitroom.watch(verbose=False):
        history = train_plain(small_net(), *samples())
    assert set(history.history) == set(train_plain(small_net(), *samples()).history)


@pytest.mark.parametrize("train", [train_plain, train_by_fitroom])
def test_a_block_watches_fit_and_says_at_its_end_what_it_found(train, capsys):
    with fitroom.watch(logs=True) as watched:
        history = train(small_net(), *samples(), epochs=2)
    summary = watched.summary()
    assert summary.updates == 16
    assert [each.name for each in summary.devices] == [f"cpu:{index}" for index in range(NUM_DEVICES)]
    assert summary.host_bytes > 50 * 2**20
    assert 0 <= summary.input_wait <= 1
    assert len(history.history["input_wait"]) == 2
    last = watched.readings[-1]
    assert (last["epoch"], last["batch"], last["update"]) == (1, 8, 16)
    assert set(last["devices"]) == {each.name for each in summary.devices}
    if COUNTS:
        assert all(0 < peak < LIMIT_BYTES for peak in history.history["memory_peak_bytes"])
        assert summary.peak_bytes == max(reading["peak_bytes"] for reading in watched.readings)
        assert summary.devices[0].limit_bytes == LIMIT_BYTES
    else:
        assert summary.peak_bytes is last["peak_bytes"] is last["in_use_bytes"] is None
        assert "memory_peak_bytes" not in history.history
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fitroom: watched 16 steps in ")
    assert str(summary) + "\n" == said.err
    assert all(len(line) <= 80 for line in said.err.splitlines())


def test_training_is_the_same_with_and_without_it():
    plain, watched = small_net(1), small_net(1)
    train_plain(plain, *samples(), shuffle=False, epochs=2)
    with fitroom.watch(verbose=False):
        train_plain(watched, *samples(), shuffle=False, epochs=2)
    for one, other in zip(plain.get_weights(), watched.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("train", [train_plain, train_by_fitroom])
def test_slow_input_shows_as_time_spent_waiting_and_fast_input_does_not(train, capsys):
    model, slow, fast = small_net(), fitroom.watch(), fitroom.watch(verbose=False)
    train(model, *samples(80), callbacks=[fast])
    train(model, SlowData(0.2), callbacks=[slow], epochs=2)
    assert slow.summary().input_wait > 0.5
    assert fast.summary().input_wait < slow.summary().input_wait / 2
    said = capsys.readouterr().err
    assert "`fitroom doctor --data` names the slowest stage" in " ".join(said.split())
    if train is train_plain:  # the kind of its data is seen, so the setting is that of a PyDataset
        assert "workers=" in slow.summary().input_settings[0]
        assert f"try {slow.summary().input_settings[0]}" in " ".join(said.split())
    assert fast.summary().input_settings == ()


@pytest.mark.backends("tensorflow")
def test_slow_tf_data_shows_although_batches_are_taken_inside_a_graph():
    import tensorflow as tf

    def wait(number):
        time.sleep(0.2)
        return number

    x, y = samples(8)
    data = tf.data.Dataset.range(5).map(lambda number: tf.py_function(wait, [number], tf.int64)).map(lambda _: (x, y))
    watch = fitroom.watch(verbose=False)
    small_net().fit(data, verbose=0, callbacks=[watch])
    assert watch.summary().input_wait > 0.5


def test_validation_is_no_training_time():
    watch = fitroom.watch(verbose=False)
    train_plain(small_net(), *samples(), epochs=2, validation_data=SlowData(0.2, batches=3), callbacks=[watch])
    assert watch.summary().input_wait < 0.5


def test_a_loop_of_ones_own_is_watched_and_its_input_counted(capsys):
    model = small_net()
    with fitroom.watch() as watched:
        for x, y in watched.batches(SlowData(0.1)[index] for index in range(5)):
            model.train_on_batch(x, y)
    assert watched.summary().updates == 5
    assert watched.summary().input_wait > 0.2
    assert "watched 5 steps" in capsys.readouterr().err


def test_a_loop_that_tells_nothing_has_its_memory_watched():
    model, (x, y) = small_net(), samples(8)
    with fitroom.watch(verbose=False) as watched:
        for _ in range(3):
            model.train_on_batch(x, y)
    assert watched.summary().input_wait is None
    assert len(watched.readings) >= 2
    assert (watched.summary().peak_bytes is not None) == COUNTS


def test_protected_fit_is_watched_too():
    fitroom.protect()
    with fitroom.watch(verbose=False) as watched:
        train_plain(small_net(), *samples())
    assert watched.summary().updates == 8


@pytest.mark.backends("jax", "torch")  # on TensorFlow it always does
def test_keras_does_not_wait_for_the_device_after_every_batch_because_of_it():
    threads = set()

    class Noted(keras.callbacks.Callback):
        async_safe = True

        def on_train_batch_end(self, batch, logs=None):
            threads.add(threading.get_ident())

    train_plain(small_net(), *samples(), callbacks=[fitroom.watch(verbose=False), Noted()])
    assert threading.get_ident() not in threads


def test_the_files_hold_what_was_read(tmp_path):
    watch = fitroom.watch(
        jsonl=tmp_path / "memory.jsonl",
        tensorboard=tmp_path / "logs",
        plot=tmp_path / "memory.svg",
        trace=tmp_path / "step.json",
        interval=0.05,
        verbose=False,
    )
    table = tmp_path / "epochs.csv"
    train_plain(small_net(), *samples(), epochs=2, callbacks=[watch, keras.callbacks.CSVLogger(table)])
    assert [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()] == watch.readings
    assert "input_wait" in table.read_text().splitlines()[0]
    found = scalars(tmp_path / "logs" / "train")
    assert [step for step, _ in found["memory/host_bytes"]] == [reading["update"] for reading in watch.readings]
    assert found["memory/host_bytes"][-1][1] == pytest.approx(watch.readings[-1]["host_bytes"])
    if COUNTS:
        assert found["memory/cpu:1/peak_bytes"]
    assert "16 steps in " in (tmp_path / "memory.svg").read_text()
    tracks = check_trace(json.loads((tmp_path / "step.json").read_text()))
    assert tracks["measured on " + BACKEND]["host memory (bytes)"] == len(watch.readings)
    assert tracks["measured on " + BACKEND]["batches"] == 15
    [predicted] = [name for name in tracks if name.startswith("predicted: one step on ")]
    assert tracks[predicted]["phases (predicted)"] >= 3
    assert watch.summary().phases_are == "predicted"
    assert watch.summary().phase_peak_bytes["backward"] > 0


def test_an_estimate_may_be_given():
    with fitroom.watch(estimate=small_estimate(), verbose=False) as watched:
        train_plain(small_net(), *samples())
    assert watched.summary().phase_peak_bytes == small_estimate().by_phase
    assert watched.summary().phases_are == "predicted"


def test_names_for_the_logs_can_be_chosen():
    history = train_plain(
        small_net(), *samples(), callbacks=[fitroom.watch(logs="host_memory_bytes", verbose=False)]
    ).history
    assert set(history) == {"loss", "host_memory_bytes"}
    assert set(train_plain(small_net(), *samples(), callbacks=[fitroom.watch(logs=False, verbose=False)]).history) == {
        "loss"
    }


def test_an_error_in_the_block_is_raised_and_the_summary_still_printed(capsys):
    with pytest.raises(Exception, match="planted"), fitroom.watch() as watched:
        train_plain(small_net(), BrokenData(0.0))
    assert "fitroom: watched " in capsys.readouterr().err
    assert watched.summary().num_readings >= 2


def test_a_callback_notices_that_fit_failed(capsys):
    watch = fitroom.watch(interval=0.05)
    with pytest.raises(Exception, match="planted"):
        train_plain(small_net(), BrokenData(0.0), callbacks=[watch])
    for thread in threading.enumerate():
        if thread.name == "fitroom watch":
            thread.join(30)
    assert "fitroom: watched " in capsys.readouterr().err


def test_watches_may_be_nested_and_each_finds_the_whole_peak():
    model = small_net()
    with fitroom.watch(interval=0.05, verbose=False) as outer, fitroom.watch(interval=0.05, verbose=False) as inner:
        train_plain(model, *samples(), epochs=3, callbacks=[fitroom.watch(interval=0.05, verbose=False)])
    assert outer.summary().updates == inner.summary().updates == 24
    if COUNTS:
        assert outer.summary().peak_bytes == pytest.approx(inner.summary().peak_bytes, rel=0.2)


def test_nested_watches_count_each_wait_once():
    with fitroom.watch(verbose=False) as outer, fitroom.watch(verbose=False) as inner:
        train_plain(small_net(), SlowData(0.1))
    assert 0 < inner.summary().input_wait < 1
    assert 0 < outer.summary().input_wait < 1


def test_one_watch_may_be_used_again_and_goes_on_counting():
    model, watch = small_net(), fitroom.watch(verbose=False)
    train_plain(model, *samples(), callbacks=[watch])
    first = len(watch.readings)
    train_plain(model, *samples(), callbacks=[watch])
    with watch:
        train_plain(model, *samples(), callbacks=[watch])  # given twice, added once
    assert watch.summary().updates == 24
    assert len(watch.readings) > first
    assert sorted(watch.readings, key=lambda one: one["seconds"]) == watch.readings


def test_a_run_folder_resumes_with_a_watch(tmp_path):
    for epochs in (1, 2):
        watch = fitroom.watch(verbose=False)
        train_by_fitroom(small_net(), *samples(), epochs=epochs, run_dir=tmp_path, callbacks=[watch])
    assert watch.summary().updates == 8


def test_every_batch_of_an_execution_is_counted():
    if BACKEND == "torch":
        pytest.skip("Keras has no steps_per_execution on PyTorch")
    model = small_net()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), steps_per_execution=4)
    with fitroom.watch(verbose=False) as watched:
        train_plain(model, *samples())
    assert watched.readings[-1]["batch"] == watched.summary().updates == 8
    assert 0 <= watched.summary().input_wait <= 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"logs": "memory_peak"}, "did you mean 'memory_peak_bytes'"),
        ({"plot": "memory.pdf"}, "saved as .svg, .png or .html. Received: 'memory.pdf'"),
        ({"plot": "nowhere/memory.svg"}, "in a folder that is there"),
        ({"jsonl": "nowhere/memory.jsonl"}, "`jsonl` must be a file in a folder that is there"),
        ({"trace": "."}, "`trace` must be a file"),
        ({"interval": 0}, "`interval` must be a number over 0. Received: 0"),
        ({"warn_at": 90}, "`warn_at` must be a number over 0 and up to 1. Received: 90"),
        ({"limit": "lots"}, "A size must be a positive number"),
        ({"estimate": 64}, "`estimate` must be what `fitroom.estimate` returned"),
        ({"snapshot": "memory.pickle"}, "PyTorch's own record of a CUDA card's memory"),
    ],
)
def test_what_cannot_work_is_refused_before_training(arguments, said):
    with pytest.raises(fitroom.FitroomError, match=said.replace(".", r"\.").replace("(", r"\(")):
        fitroom.watch(**arguments)


def test_files_that_cannot_be_written_at_the_end_do_not_lose_the_training(tmp_path, capsys):
    folder = tmp_path / "gone"
    folder.mkdir()
    watch = fitroom.watch(plot=folder / "memory.html", trace=folder / "step.json", estimate=False)
    train_plain(small_net(), *samples(), callbacks=[RemoveFolder(folder), watch])
    said = capsys.readouterr().err
    assert "the trace could not be written" in said
    assert "the plot could not be written" in said
    assert "watched 8 steps" in said


class RemoveFolder(keras.callbacks.Callback):
    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def on_train_begin(self, logs=None):
        self.folder.rmdir()


def test_the_meter_of_a_watch_reads_what_the_framework_counts():
    if not COUNTS:
        pytest.skip("no counters on this CPU")
    backend = current_backend()
    with fitroom.watch(verbose=False) as watched:
        held = keras.ops.ones((2**20,))
        read = backend.read_memory(backend.devices()[0]).in_use_bytes
        del held
    assert watched.summary().peak_bytes >= read
