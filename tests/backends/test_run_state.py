"""What a checkpoint holds of a model and its callbacks."""

import collections
import csv
import json

import keras
import numpy as np
import pytest
from keras import layers

from fitroom.errors import InputError
from fitroom.keras_model.fingerprint import current_versions, given_learning_rate, model_fingerprint
from fitroom.runs.callbacks import CallbackStates
from fitroom.runs.capture import capture_state, restore_state
from fitroom.runs.checkpoint import Checkpoint, read_latest, write
from fitroom.runs.folder import RunFolder
from fitroom.runs.record import first_difference

X = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
Y = np.arange(16) % 3
LOSS = "sparse_categorical_crossentropy"


def new_model(*, units=6, rate=0.5, optimizer=None, loss=LOSS, metrics=("accuracy",), trained=1, compiled=False):
    """Not compiled, to be quick: that changes nothing about what there is to keep."""
    inputs = keras.Input((8,))
    x = layers.Dense(units, activation="relu")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Dropout(rate)(x)
    model = keras.Model(inputs, layers.Dense(3, activation="softmax", name="head")(x))
    optimizer = optimizer or keras.optimizers.AdamW(1e-2, use_ema=True, clipnorm=1.0)
    model.compile(optimizer, loss, metrics=list(metrics), run_eagerly=not compiled)
    for _ in range(trained):
        model.train_on_batch(X, Y)
    return model


def through_disk(folder, arrays, facts=None):
    write(folder, Checkpoint(arrays=arrays, facts=facts or {}))
    return read_latest(folder).checkpoint


def same(one, other) -> bool:
    return list(one) == list(other) and all(one[name].tobytes() == other[name].tobytes() for name in one)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "bfloat16"])
def test_another_object_goes_on_bit_for_bit(tmp_path, policy):
    keras.config.set_dtype_policy(policy)
    try:
        is_compiled = policy == "float32" or keras.backend.backend() == "jax"
        model, other = new_model(compiled=is_compiled, trained=2), new_model(compiled=is_compiled)
    finally:
        keras.config.set_dtype_policy("float32")
    kept = through_disk(tmp_path, capture_state(model)).arrays
    assert not same(kept, capture_state(other))
    restore_state(other, kept)
    assert same(kept, capture_state(other))
    for step in range(3):  # dropout, moments, average, loss scale, running metrics: all go on
        logs = []
        for one in (model, other):
            keras.utils.set_random_seed(step)  # on PyTorch dropout draws from the process's generator
            logs.append(one.train_on_batch(X, Y))
        assert logs[0] == logs[1]
    assert same(capture_state(model), capture_state(other))


def test_all_that_training_changes_is_captured():
    model = new_model()
    captured = capture_state(model)
    groups = collections.Counter(name.partition("/")[0] for name in captured)
    assert groups["optimizer"] == len(model.optimizer.variables)
    assert groups["metrics"] == len(model.metrics_variables) >= 4
    paths = " ".join(captured)
    for part in ("seed_generator_state", "moving_mean", "iteration", "learning_rate", "velocity", "average"):
        assert part in paths, part
    changed = {name for name, array in capture_state(model).items() if array.tobytes() != captured[name].tobytes()}
    assert changed == set()
    model.train_on_batch(X, Y)
    changed = {name for name, array in capture_state(model).items() if array.tobytes() != captured[name].tobytes()}
    constant = {name for name in captured if name.endswith("learning_rate")}
    assert constant <= set(captured) - changed
    if keras.backend.backend() != "torch":  # where dropout draws from the process's generator
        assert any("seed_generator_state" in name for name in changed)


def test_captured_arrays_do_not_change_with_the_model():
    model = new_model()
    captured = capture_state(model)
    before = {name: array.tobytes() for name, array in captured.items()}
    for _ in range(3):
        model.train_on_batch(X, Y)
    model.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    assert before == {name: array.tobytes() for name, array in captured.items()}
    assert all(array.flags.owndata for array in captured.values())


def test_names_do_not_depend_on_how_many_layers_keras_has_counted():
    assert list(capture_state(new_model())) == list(capture_state(new_model()))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"units": 7}, r"dense/kernel' has the shape \(8, 6\), in the model \(8, 7\)"),
        ({"optimizer": "sgd"}, "which the model has not"),
        ({"metrics": ("accuracy", "sparse_categorical_crossentropy")}, "the model has 'metrics/"),
    ],
)
def test_state_of_another_model_is_refused_with_nothing_changed(other, said):
    captured, model = capture_state(new_model()), new_model(**other)
    before = capture_state(model)
    with pytest.raises(InputError, match=said):
        restore_state(model, captured)
    assert same(before, capture_state(model))


def test_the_same_script_gives_the_same_fingerprint_whatever_the_weights():
    one, other = model_fingerprint(new_model()), model_fingerprint(new_model(trained=2))
    assert one == other
    assert first_difference(one, json.loads(json.dumps(other))) is None


def test_augmentation_without_a_seed_is_the_same_model_each_time():
    def build():
        model = keras.Sequential(
            [keras.Input((8, 8, 3)), layers.RandomFlip(), layers.RandomCrop(4, 4), layers.Flatten()]
        )
        model.compile("sgd", "mse")
        return model_fingerprint(model)

    assert build() == build()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"units": 7}, ["model, layers, number", "Dense dense units=6", "units=7"]),
        ({"rate": 0.3}, ["Dropout dropout rate=0.5", "rate=0.3"]),
        ({"optimizer": "sgd"}, ["optimizer, class: 'AdamW' in the run, 'SGD' now"]),
        ({"optimizer": keras.optimizers.AdamW(1e-2, clipnorm=1.0)}, ["use_ema: True in the run, False now"]),
        ({"loss": keras.losses.SparseCategoricalCrossentropy(ignore_class=0)}, ["loss: ", "ignore_class=0"]),
        ({"metrics": ("accuracy", "sparse_categorical_crossentropy")}, ["metrics, number"]),
    ],
)
def test_another_model_is_told_by_what_differs(tmp_path, other, said):
    RunFolder.open(tmp_path, {"epochs": 1, "model": model_fingerprint(new_model())}).close()
    with pytest.raises(InputError) as raised:
        RunFolder.open(tmp_path, {"epochs": 1, "model": model_fingerprint(new_model(**other))})
    for words in said:
        assert words in str(raised.value)


def test_frozen_layers_and_precision_make_another_model():
    model = new_model()
    before = model_fingerprint(model)
    model.get_layer("head").trainable = False
    model.compile(model.optimizer, model.loss, metrics=["accuracy"])
    assert "not trainable" in first_difference(before, model_fingerprint(model))
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        assert "in mixed_bfloat16" in first_difference(before, model_fingerprint(new_model()))
    finally:
        keras.config.set_dtype_policy("float32")


def test_a_learning_rate_that_a_callback_lowers_does_not_make_another_model():
    model = new_model()
    before = model_fingerprint(model)
    model.optimizer.learning_rate = 1e-4
    assert model_fingerprint(model) == before
    assert given_learning_rate(model) == pytest.approx(1e-4)
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 100)
    assert given_learning_rate(new_model(optimizer=keras.optimizers.SGD(schedule))) is None
    other = new_model(optimizer=keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 200)))
    first = model_fingerprint(new_model(optimizer=keras.optimizers.SGD(schedule)))
    assert "decay_steps: 100 in the run, 200 now" in first_difference(first, model_fingerprint(other))


class Subclassed(keras.Model):
    """A model, a loss and a metric of a user's own, none of which can be configured."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(3)

    def call(self, x):
        return self.inner(x)


def test_a_subclassed_model_with_functions_for_a_loss_has_a_fingerprint():
    model = Subclassed()
    model.compile("adam", {"output": lambda y, p: keras.ops.mean((y - p) ** 2, axis=-1)})
    model.compile("adam", lambda y, p: keras.ops.mean((y - p) ** 2, axis=-1))
    model.train_on_batch(X, np.zeros((16, 3), "float32"))
    found = model_fingerprint(model)
    assert found["loss"] == "<lambda>"
    assert found["layers"][0].startswith("Subclassed subclassed")
    assert "subclassed/dense/kernel float32 (8, 3)" in found["variables"]


def test_versions_name_the_backend():
    versions = current_versions()
    assert {"python", "fitroom", "keras", "numpy", keras.backend.backend()} <= set(versions)
    assert "unknown" not in versions.values()


def test_the_finished_model_is_an_ordinary_keras_file(tmp_path):
    model = new_model()
    with RunFolder.open(tmp_path, {"epochs": 1}) as folder:
        path = folder.save_model(model)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["lock", "model.keras", "run.json"]
    np.testing.assert_array_equal(keras.saving.load_model(path).predict(X, verbose=0), model.predict(X, verbose=0))


class Script:
    """A training script: the same callbacks made anew each time, epochs with the losses that are given."""

    def __init__(self, callbacks):
        self.model = new_model(optimizer=keras.optimizers.SGD(1e-2), metrics=())
        of_fit = {"epochs": 10, "steps": 3, "verbose": 0}
        self.list = keras.callbacks.CallbackList(callbacks, add_history=True, model=self.model, **of_fit)
        self.states = CallbackStates(self.list)

    def begin(self, kept=None):
        self.model.stop_training = False
        if kept is not None:
            self.states.continue_files(kept.facts)
        self.list.on_train_begin()
        self.states.record_start()
        if kept is not None:
            restore_state(self.model, kept.arrays)
            self.notes = self.states.restore(kept.facts, kept.arrays)
        return self

    def epochs(self, losses, start=0):
        for epoch, loss in enumerate(losses, start=start):
            self.list.on_epoch_begin(epoch)
            for batch in range(3):
                self.list.on_train_batch_begin(batch)
                self.list.on_train_batch_end(batch, {"loss": loss})
            self.model.train_on_batch(X, Y)
            self.list.on_epoch_end(epoch, {"loss": loss, "val_loss": loss})
        return self

    def kept(self, folder):
        facts, arrays = self.states.capture()
        return through_disk(folder, arrays | capture_state(self.model), facts)


def test_early_stopping_and_the_learning_rate_go_on_as_if_never_stopped(tmp_path):
    def callbacks():
        return [
            keras.callbacks.EarlyStopping(monitor="loss", patience=3, min_delta=0.05, restore_best_weights=True),
            keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=2, min_delta=0.05, cooldown=1),
        ]

    losses = [0.9, 0.5, 0.48, 0.47, 0.46]  # none after the second is better by 0.05
    whole = Script(callbacks()).begin().epochs(losses)
    first = Script(callbacks()).begin().epochs(losses[:3])
    kept = first.kept(tmp_path)
    second = Script(callbacks()).begin(kept)
    stopping, plateau, history = second.list.callbacks
    assert second.notes == []
    assert (stopping.best, stopping.wait, stopping.best_epoch) == (0.5, 1, 1)
    for mine, theirs in zip(stopping.best_weights, first.list.callbacks[0].best_weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (plateau.best, plateau.wait) == (0.5, 1)
    second.epochs(losses[3:], start=3)
    for mine, theirs in zip(second.list.callbacks, whole.list.callbacks, strict=True):
        for name in (
            "wait",
            "best",
            "best_epoch",
            "stopped_epoch",
            "cooldown_counter",
            "min_delta",
            "history",
            "epoch",
        ):
            assert getattr(mine, name, None) == getattr(theirs, name, None), (type(mine), name)
    assert second.model.stop_training
    assert whole.model.stop_training
    assert given_learning_rate(second.model) == given_learning_rate(whole.model) == pytest.approx(1e-3)
    assert history.history["loss"] == losses


def test_a_best_value_of_infinity_survives(tmp_path):
    class Best(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.best, self.worst, self.odd = float("inf"), -float("inf"), float("nan")

    kept = Script([Best()]).begin().epochs([1.0]).kept(tmp_path)
    second = Script([Best()]).begin(kept).list.callbacks[0]
    assert (second.best, second.worst) == (float("inf"), -float("inf"))
    assert second.odd != second.odd


def test_what_the_script_gives_now_is_not_overwritten(tmp_path):
    def callbacks(patience, place):
        return [
            keras.callbacks.EarlyStopping(monitor="loss", patience=patience),
            keras.callbacks.ModelCheckpoint(tmp_path / f"{place}.keras", monitor="loss", save_best_only=True),
        ]

    kept = Script(callbacks(3, "old")).begin().epochs([0.5]).kept(tmp_path / "kept")
    stopping, saving, _ = Script(callbacks(7, "new")).begin(kept).list.callbacks
    assert (stopping.patience, stopping.best) == (7, 0.5)
    assert saving.filepath.endswith("new.keras")
    assert saving.best == 0.5


def test_saving_counts_batches_on(tmp_path):
    def callbacks():
        return [keras.callbacks.ModelCheckpoint(tmp_path / "best.weights.h5", save_freq=5, save_weights_only=True)]

    kept = Script(callbacks()).begin().epochs([0.5]).kept(tmp_path / "kept")
    second = Script(callbacks()).begin(kept)
    assert second.list.callbacks[0]._batches_seen_since_last_saving == 3
    second.epochs([0.4], start=1)
    assert second.list.callbacks[0]._batches_seen_since_last_saving == 1


def rows(path):
    with open(path) as file:
        return [(row["epoch"], row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("num_kept", [0, 2])
def test_a_csv_file_goes_on_without_a_row_twice_or_a_second_header(tmp_path, num_kept):
    def callbacks():
        return [keras.callbacks.CSVLogger(tmp_path / "log.csv")]

    first = Script(callbacks()).begin().epochs([0.9, 0.8][:num_kept])
    kept = first.kept(tmp_path / "kept")
    first.epochs([0.7], start=num_kept)  # killed after the row, before the checkpoint
    second = Script(callbacks()).begin(kept).epochs([0.7, 0.6], start=num_kept)
    second.list.on_train_end()
    assert rows(tmp_path / "log.csv")[:num_kept] == [("0", "0.9"), ("1", "0.8")][:num_kept]
    assert rows(tmp_path / "log.csv")[num_kept:] == [(str(num_kept), "0.7"), (str(num_kept + 1), "0.6")]


class Mine(keras.callbacks.Callback):
    """One of a user's own, with a bit of everything."""

    def __init__(self, x, window=3):
        super().__init__()
        self.x = x
        self.seen = 0
        self.recent = collections.deque(maxlen=window)
        self.by_epoch = collections.defaultdict(list)
        self.matrix = np.zeros((2, 2))
        self.pairs = {(0, 1): "a"}
        self.last = np.float32(0)
        self.flag = False
        self.function = print
        self.mean = keras.metrics.Mean()
        self.shadow = [keras.ops.zeros((2,), "bfloat16")]

    def on_train_begin(self, logs=None):
        self.flag = False

    def on_epoch_begin(self, epoch, logs=None):
        self.flag = True

    def on_train_batch_end(self, batch, logs=None):
        self.flag = False
        self.seen += 1
        self.recent.append(self.seen)
        self.by_epoch["all"].append(self.seen)
        self.matrix += 1
        self.pairs[(self.seen, 2)] = None
        self.last = np.float32(0.1)
        self.shadow = [shadow + 1 for shadow in self.shadow]


def test_a_users_own_callback_keeps_what_is_data(tmp_path):
    first = Script([Mine(X)]).begin().epochs([1.0])
    facts, arrays = first.states.capture()
    assert sorted(facts["Mine.0"]["left_out"]) == ["function", "mean"]
    assert not any("/x/" in name for name in arrays)  # handed to it: the script does that again
    kept = first.kept(tmp_path)
    first.epochs([1.0], start=1)
    mine = Script([Mine(X)]).begin(kept).list.callbacks[0]
    assert (mine.seen, list(mine.recent), mine.recent.maxlen) == (3, [1, 2, 3], 3)
    assert mine.by_epoch["all"] == [1, 2, 3]
    assert mine.by_epoch["new"] == []
    np.testing.assert_array_equal(mine.matrix, np.full((2, 2), 3.0))
    assert mine.pairs == {(0, 1): "a", (1, 2): None, (2, 2): None, (3, 2): None}
    assert keras.ops.is_tensor(mine.shadow[0])
    assert keras.backend.standardize_dtype(mine.shadow[0].dtype) == "bfloat16"
    assert keras.ops.convert_to_numpy(mine.shadow[0]).tolist() == [3.0, 3.0]
    assert (mine.last, mine.last.dtype) == (np.float32(0.1), np.dtype("float32"))


def test_a_run_within_an_epoch_takes_back_what_the_epochs_begin_changes(tmp_path):
    kept = Script([Mine(X)]).begin().epochs([1.0]).kept(tmp_path)
    second = Script([Mine(X)])
    second.list.on_train_begin()
    second.states.record_start()
    second.list.on_epoch_begin(0)
    assert second.list.callbacks[0].flag is True
    second.states.restore(kept.facts, kept.arrays)
    assert second.list.callbacks[0].flag is False


class SaysItself(keras.callbacks.Callback):
    def __init__(self, state=None):
        super().__init__()
        self.secret = state

    def get_state(self):
        return {"secret": self.secret}

    def set_state(self, state):
        self.secret = ("given", state["secret"])


def test_a_callback_that_offers_its_state_is_asked_for_it(tmp_path):
    kept = Script([SaysItself((1, np.arange(3)))]).begin().kept(tmp_path)
    word, (number, array) = Script([SaysItself()]).begin(kept).list.callbacks[0].secret
    assert (word, number, array.tolist()) == ("given", 1, [0, 1, 2])


def test_a_state_that_cannot_be_kept_is_told_before_training():
    with pytest.raises(InputError, match=r"SaysItself.get_state\(\)` must give numbers.*function"):
        Script([SaysItself(print)]).begin()


def test_callbacks_are_found_by_class_when_others_come_or_go(tmp_path):
    def stopping(monitor):
        return keras.callbacks.EarlyStopping(monitor=monitor, mode="min")

    first = Script([stopping("loss"), Mine(X), stopping("val_loss")]).begin().epochs([0.5])
    first.list.callbacks[2].best = 0.25
    kept = first.kept(tmp_path)
    second = Script([keras.callbacks.TerminateOnNaN(), stopping("loss"), stopping("val_loss")]).begin(kept)
    assert [callback.best for callback in second.list.callbacks[1:3]] == [0.5, 0.25]
    assert any("Mine.0" in note and "not there any more" in note for note in second.notes)
    assert any("TerminateOnNaN.0" in note and "new to the run" in note for note in second.notes)


def test_a_progress_bar_keeps_nothing():
    script = Script([keras.callbacks.ProgbarLogger()]).begin()
    assert list(script.states.capture()[0]) == ["History.0"]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="its summaries are TensorFlow's")
def test_tensorboard_counts_its_steps_on(tmp_path):
    """Only what it does without the tensorboard package, which is not needed to count."""

    def begun(place, kept=None):
        board = keras.callbacks.TensorBoard(tmp_path / place, write_steps_per_second=True, profile_batch=0)
        script = Script([board]).begin(kept)
        script.list.on_epoch_begin(0)
        return script, board

    first, board = begun("old")
    first.model.train_on_batch(X, Y)
    for batch in range(4):
        first.list.on_train_batch_begin(batch)
    board._epoch_start_time -= 100  # the epoch has lasted so long
    kept = first.kept(tmp_path / "kept")
    second, board = begun("new", kept)
    second.states.restore(kept.facts, kept.arrays)  # within an epoch: after its begin
    second.list.on_train_batch_begin(4)
    assert board._global_train_batch == 5
    assert board._train_dir.startswith(str(tmp_path / "new"))
    assert board._compute_steps_per_second() == pytest.approx(1 / 100, rel=0.1)
