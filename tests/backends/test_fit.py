"""`fitroom.fit` on a real framework."""

from functools import cache

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fit_cases import assert_same, dense_net, momentum, samples, weights_of
from fitroom.backends.choose import current_backend
from step_comparison import untraced


def fitted(train, *, optimizer=momentum, **options):
    """The weights and the history of a training by `model.fit` or `fitroom.fit`."""
    model = dense_net(optimizer=optimizer())
    x, y = samples()
    history = train(model, x, y, **{"epochs": 3, "batch_size": 10, "shuffle": False, "verbose": 0} | options)
    return weights_of(model), history


def keras_fit(model, *arguments, **options):
    return untraced(model).fit(*arguments, **options)


WITH_ADAM = {"batch_size": 16, "optimizer": lambda: keras.optimizers.Adam(0.01)}


@cache
def fitted_with_adam():
    return fitted(keras_fit, **WITH_ADAM)


@pytest.mark.parametrize(
    "micro_batch", [None, 7, 1, *(pytest.param(number, marks=pytest.mark.slow) for number in (16, 3))]
)
def test_it_trains_to_the_weights_and_the_history_of_keras(micro_batch):
    """With a short last batch, and Adam."""
    expected, history = fitted_with_adam()
    recipe = fitroom.Recipe(micro_batch=micro_batch)
    found, ours = fitted(fitroom.fit, recipe=recipe, **WITH_ADAM)
    assert_same(found, expected)
    assert ours.epoch == history.epoch
    assert list(ours.history) == list(history.history)
    for name, values in history.history.items():
        np.testing.assert_allclose(np.array(ours.history[name], "float32"), np.array(values, "float32"), rtol=1e-4)


def test_validation_is_that_of_keras():
    xv, yv = samples(21, seed=3)
    options = {"validation_data": (xv, yv), "validation_batch_size": 8}
    expected, history = fitted(keras_fit, **options)
    found, ours = fitted(fitroom.fit, **options, recipe=fitroom.Recipe(micro_batch=5))
    assert_same(found, expected)
    for name in ("val_loss", "val_accuracy"):
        np.testing.assert_allclose(ours.history[name], history.history[name], rtol=1e-4)


@pytest.mark.quick_on("torch")
@pytest.mark.parametrize(
    "options",
    [
        {"validation_split": 0.3},
        {"class_weight": {0: 1.0, 1: 3.0, 2: 0.5}},
        {"sample_weight": np.linspace(0.1, 2.0, 50).astype("float32")},
        {"validation_split": 0.2, "validation_freq": 2},
        {"validation_split": 0.2, "validation_freq": [1, 3]},
        {"steps_per_epoch": 2, "batch_size": 16},
        {"initial_epoch": 1},
        {"validation_split": 0.5, "validation_steps": 1, "validation_batch_size": 4},
    ],
    ids=lambda options: ",".join(options),
)
def test_the_arguments_of_keras_mean_what_they_mean_there(options):
    expected, history = fitted(keras_fit, **options)
    found, ours = fitted(fitroom.fit, **options, recipe=fitroom.Recipe(micro_batch=5))
    assert_same(found, expected)
    assert ours.epoch == history.epoch
    assert {name: len(values) for name, values in ours.history.items()} == {
        name: len(values) for name, values in history.history.items()
    }
    for name, values in history.history.items():
        np.testing.assert_allclose(np.array(ours.history[name], "float32"), np.array(values, "float32"), rtol=1e-4)


class Counting(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.calls = []


_HOOKS = [
    *("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_train_batch_begin", "on_train_batch_end"),
    *("on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end"),
]
for _hook in _HOOKS:

    def _record(self, *arguments, _hook=_hook, **_):
        number = next((argument for argument in arguments if isinstance(argument, int)), None)
        self.calls.append((_hook, number))

    setattr(Counting, _hook, _record)


@pytest.mark.quick_on("torch")
def test_callbacks_are_called_as_keras_calls_them_and_see_real_updates_as_batches():
    theirs, ours = Counting(), Counting()
    fitted(keras_fit, callbacks=[theirs], validation_split=0.2)
    fitted(fitroom.fit, callbacks=[ours], validation_split=0.2, recipe=fitroom.Recipe(micro_batch=5))
    assert ours.calls == theirs.calls
    assert ours.calls.count(("on_train_batch_end", 0)) == 3


@pytest.mark.quick_on("torch")
def test_early_stopping_stops_and_restores_its_best_weights():
    def stopping():
        return keras.callbacks.EarlyStopping(monitor="loss", min_delta=10.0, patience=1, restore_best_weights=True)

    expected, history = fitted(keras_fit, callbacks=[stopping()])
    found, ours = fitted(fitroom.fit, callbacks=[stopping()])
    assert ours.epoch == history.epoch == [0, 1]
    assert_same(found, expected)


def test_a_callback_that_stops_within_an_epoch_stops_there():
    class StopAtSecond(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    model = dense_net()
    fitroom.fit(model, *samples(), batch_size=10, epochs=5, verbose=0, callbacks=[StopAtSecond()])
    assert int(model.optimizer.iterations) == 2


@pytest.mark.quick_on("torch")
def test_callbacks_that_change_the_learning_rate_change_it():
    def callbacks():
        return [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
            keras.callbacks.ReduceLROnPlateau(monitor="loss", min_delta=10.0, patience=1, factor=0.1),
        ]

    expected, _ = fitted(keras_fit, callbacks=callbacks())
    found, ours = fitted(fitroom.fit, callbacks=callbacks(), recipe=fitroom.Recipe(micro_batch=5))
    assert_same(found, expected)
    assert "learning_rate" in ours.history


@pytest.mark.quick_on("torch")
def test_checkpoints_and_logs_of_keras_are_written(tmp_path):
    callbacks = [
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", monitor="loss"),
        keras.callbacks.CSVLogger(tmp_path / "log.csv"),
    ]
    found, _ = fitted(fitroom.fit, callbacks=callbacks)
    assert_same(weights_of(keras.saving.load_model(tmp_path / "best.keras")), found)
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4


@pytest.mark.quick_on("torch")
def test_samples_are_shuffled_by_the_seed():
    def weights(seed):
        return fitted(fitroom.fit, shuffle=True, seed=seed)[0]

    assert_same(weights(1), weights(1), rtol=0, atol=0)
    assert any(not np.allclose(a, b) for a, b in zip(weights(1), weights(2), strict=True))


def test_several_inputs_and_outputs():
    def two_heads():
        keras.utils.set_random_seed(3)
        a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
        joined = layers.Dense(8, activation="relu")(layers.Concatenate()([a, b]))
        heads = {"kind": layers.Dense(3, name="kind")(joined), "size": layers.Dense(1, name="size")(joined)}
        model = keras.Model({"a": a, "b": b}, heads)
        model.compile(
            "adam",
            {"kind": keras.losses.SparseCategoricalCrossentropy(from_logits=True), "size": "mse"},
            loss_weights={"kind": 1.0, "size": 0.3},
            metrics={"kind": ["accuracy"], "size": ["mae"]},
        )
        return model

    random = np.random.default_rng(0)
    # No short last batch: there Keras on TensorFlow averages the losses of outputs by batches, not by samples.
    x = {"a": random.normal(size=(36, 4)).astype("float32"), "b": random.normal(size=(36, 3)).astype("float32")}
    y = {"kind": random.integers(0, 3, 36).astype("int32"), "size": random.normal(size=(36, 1)).astype("float32")}
    options = {"batch_size": 12, "epochs": 2, "shuffle": False, "verbose": 0}
    theirs, ours = two_heads(), two_heads()
    expected = untraced(theirs).fit(x, y, **options).history
    found = fitroom.fit(ours, x, y, **options, recipe=fitroom.Recipe(micro_batch=5)).history
    assert_same(weights_of(ours), weights_of(theirs))
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(np.array(found[name], "float32"), np.array(values, "float32"), rtol=2e-4)


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(8, activation="tanh"), layers.Dense(3)

    def call(self, x, training=False):
        return self.out(self.hidden(x))


def test_a_subclassed_model_that_was_never_called_trains():
    model = Subclassed()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    history = fitroom.fit(model, *samples(), epochs=2, batch_size=16, verbose=0, recipe=fitroom.Recipe(micro_batch=4))
    assert int(model.optimizer.iterations) == 8
    assert np.isfinite(history.history["loss"]).all()


class OwnStep(keras.Model):
    """Its `train_step` is Keras's; that it is its own is enough."""

    def __init__(self):
        super().__init__()
        self.out = layers.Dense(3)

    def call(self, x):
        return self.out(x)

    def train_step(self, *arguments):
        return super().train_step(*arguments)


def test_a_model_with_its_own_train_step_is_trained_whole_and_never_cut():
    model = OwnStep()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fitroom.fit(model, *samples(), batch_size=16, verbose=0)
    assert int(model.optimizer.iterations) == 4
    with pytest.raises(fitroom.ModelError, match="train_step"):
        fitroom.fit(model, *samples(), batch_size=16, verbose=0, recipe=fitroom.Recipe(micro_batch=4))


def test_a_loss_that_couples_samples_is_never_cut():
    def spread(y_true, y_pred):
        return -keras.ops.var(y_pred)

    model = dense_net(loss=spread, metrics=None)
    with pytest.raises(fitroom.ModelError, match="couples the samples"):
        fitroom.fit(model, *samples(), batch_size=16, verbose=0, recipe=fitroom.Recipe(micro_batch=4))


@pytest.mark.quick_on("torch")
def test_data_sets_and_generators():
    x, y = samples(48)

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return x[16 * index : 16 * index + 16], y[16 * index : 16 * index + 16]

    def endless():
        while True:
            for start in range(0, 48, 16):
                yield x[start : start + 16], y[start : start + 16]

    expected = dense_net()
    untraced(expected).fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    sources = [(Batches(), {"shuffle": False}), (endless(), {"steps_per_epoch": 3})]
    for data, options in sources:
        model = dense_net()
        fitroom.fit(model, data, epochs=2, verbose=0, **options)
        assert_same(weights_of(model), weights_of(expected))


def test_a_recipe_may_bring_another_precision_for_the_time_of_training():
    model = dense_net()
    history = fitroom.fit(model, *samples(), verbose=0, recipe=fitroom.Recipe(precision="mixed_bfloat16"))
    assert np.isfinite(history.history["loss"]).all()
    assert {layer.dtype_policy.name for layer in model.layers} == {"float32"}
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


def test_knobs_that_fit_cannot_turn_are_refused():
    with pytest.raises(fitroom.InputError, match="image_size"):
        fitroom.fit(dense_net(), *samples(), recipe=fitroom.Recipe(image_size=64))


@pytest.mark.parametrize(
    "use",
    [
        lambda model, recipe: fitroom.fit(model, *samples(), recipe=recipe),
        lambda model, recipe: fitroom.Step(model, recipe=recipe),
        lambda model, recipe: fitroom.estimate(model, 16, recipe=recipe),
    ],
)
def test_a_recipe_is_a_recipe(use):
    with pytest.raises(fitroom.InputError, match=r"must be a `fitroom\.Recipe`\. Received: 'blocks'") as raised:
        use(dense_net(), "blocks")
    assert "fitroom.Recipe(remat='blocks')" in raised.value.hint


def test_a_model_that_is_not_compiled_is_refused():
    with pytest.raises(fitroom.ModelError, match="not compiled"):
        fitroom.fit(keras.Sequential([keras.Input((6,)), layers.Dense(1)]), *samples())


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (np.zeros((0, 6), "float32"), np.zeros(0, "int32"), "empty|no samples|0 samples"),
        (np.zeros((10, 6), "float32"), np.zeros(9, "int32"), "10.*9|9.*10"),
    ],
)
def test_data_that_cannot_work_is_refused(x, y, words):
    with pytest.raises(fitroom.InputError, match=words):
        fitroom.fit(dense_net(), x, y, verbose=0)


def test_a_batch_larger_than_the_data_is_one_short_batch():
    model = dense_net()
    fitroom.fit(model, *samples(10), batch_size=1000, verbose=0)
    assert int(model.optimizer.iterations) == 1


@pytest.mark.quick_on("torch")
def test_a_loss_that_is_no_number_is_said_with_its_batch(caplog):
    x, y = samples(40)
    x[25] = np.nan
    history = fitroom.fit(dense_net(), x, y, batch_size=10, shuffle=False, verbose=0)
    [event] = [event for event in history.fitroom["events"] if event["kind"] == "loss not finite"]
    assert event["batch"] == 2
    assert "batch 3 of epoch 1" in caplog.text


def test_step_is_the_same_transaction_one_batch_at_a_time():
    theirs, ours = dense_net(), dense_net()
    x, y = samples(20)
    step = fitroom.Step(ours, recipe=fitroom.Recipe(micro_batch=6))
    for _ in range(3):
        expected = untraced(theirs).train_on_batch(x, y, return_dict=True)
        found = step(x, y)
    assert_same(weights_of(ours), weights_of(theirs))
    assert found.keys() == expected.keys()
    np.testing.assert_allclose(found["loss"], float(expected["loss"]), rtol=1e-4)
    assert step.micro_batch == 6


class PlantedError(Exception):
    """Stands for the framework's error where the CPU cannot run out of memory: recognised by its text."""


class FailsAt(layers.Layer):
    """Raises out of memory for batches above a size. PLANTED: the framework itself does not run out here."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def call(self, x, training=False):
        if training and x.shape[0] is not None and x.shape[0] > self.most:
            raise PlantedError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.0GiB (planted)")
        return x


def failing_net(most):
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(8), FailsAt(most), layers.Dense(3)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def test_planted_out_of_memory_in_the_forward_pass_shrinks_and_loses_nothing():
    expected = failing_net(most=10**9)
    fitroom.fit(expected, *samples(), batch_size=16, epochs=2, shuffle=False, verbose=0)
    model = failing_net(most=5)
    assert current_backend().is_out_of_memory(
        PlantedError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate")
    )
    history = fitroom.fit(
        model, *samples(), batch_size=16, epochs=2, shuffle=False, verbose=0, validation_data=samples(8)
    )
    assert_same(weights_of(model), weights_of(expected))
    assert history.fitroom["micro_batch"] == 4
    assert history.fitroom["out_of_memory"] >= 2
    assert int(model.optimizer.iterations) == 8


def test_losses_of_single_outputs_weigh_a_short_last_batch_by_its_samples():
    inputs = keras.Input((1,))
    model = keras.Model(inputs, [layers.Dense(1, name=name)(inputs) for name in "ab"])
    model.compile(keras.optimizers.SGD(0.0), ["mae", "mae"])
    x, y = np.zeros((10, 1), "float32"), np.array([1.0] * 8 + [11.0] * 2, "float32")[:, None]
    for micro_batch in (None, 4):
        recipe = fitroom.Recipe(micro_batch=micro_batch)
        history = fitroom.fit(model, x, [y, y], batch_size=8, shuffle=False, verbose=0, recipe=recipe).history
        assert history["a_loss"] == pytest.approx([3.0])


@pytest.mark.quick_on("torch")
def test_backup_and_restore_of_keras_goes_on_at_its_epoch(tmp_path):
    def fit(*more):
        return fitroom.fit(
            dense_net(), *samples(), epochs=5, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(tmp_path), *more]
        )

    def die_in_the_third(epoch, logs):
        if epoch == 2:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fit(keras.callbacks.LambdaCallback(on_epoch_end=die_in_the_third))
    assert fit().epoch == [3, 4]


def test_a_loss_of_ones_own_is_tried_whatever_the_samples_weigh():
    weights = np.array([0.0] * 10 + [1.0] * 40, "float32")
    x, y = samples()

    def loss_of(micro_batch):
        model = dense_net(loss=lambda y, p: keras.ops.mean(keras.ops.abs(keras.ops.cast(y, p.dtype) - p), -1))
        recipe = fitroom.Recipe(micro_batch=micro_batch)
        options = {"batch_size": 50, "verbose": 0, "shuffle": False, "recipe": recipe}
        return fitroom.fit(model, x, y[:, None], sample_weight=weights, **options).history["loss"]

    assert loss_of(4) == pytest.approx(loss_of(None), rel=1e-5)


def test_a_layer_that_keeps_its_state_is_never_cut():
    model = keras.Sequential([keras.Input((5, 3), batch_size=8), layers.LSTM(4, stateful=True), layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((8, 5, 3), "float32"), np.ones((8, 1), "float32")
    with pytest.raises(fitroom.ModelError, match="keeps its state from batch to batch"):
        fitroom.fit(model, x, y, batch_size=8, verbose=0, recipe=fitroom.Recipe(micro_batch=4))


def test_whole_numbers_may_be_numpys_and_others_are_refused():
    whole = {"epochs": np.int64(1), "batch_size": np.int32(16), "steps_per_epoch": np.int64(2), "seed": np.int64(3)}
    assert len(fitroom.fit(dense_net(), *samples(), verbose=0, **whole).epoch) == 1
    with pytest.raises(ValueError, match="`batch_size` must be a whole number") as refused:
        fitroom.fit(dense_net(), *samples(), batch_size=8.0)
    assert isinstance(refused.value, fitroom.InputError)


def test_validation_has_no_more_at_once_than_the_recipe_says(monkeypatch):
    model, sizes = dense_net(), []
    kind = type(current_backend().stepper(model, jit=None))
    test = kind.test
    monkeypatch.setattr(kind, "test", lambda self, batch, size: sizes.append(size) or test(self, batch, size))
    recipe = fitroom.Recipe(micro_batch=4)
    fitroom.fit(model, *samples(16), batch_size=16, validation_data=samples(16), verbose=0, recipe=recipe)
    assert sizes == [4]


@pytest.mark.quick_on("torch")
@pytest.mark.parametrize(("own", "at_once", "of_validation"), [("test_step", 4, 16), ("train_step", 16, 48)])
def test_validation_of_a_model_that_cannot_be_cut_there_stays_whole(own, at_once, of_validation):
    def as_keras_does(self, *arguments):
        return getattr(keras.Model, own)(self, *arguments)

    inputs = keras.Input((6,))
    model = type("Own", (keras.Model,), {own: as_keras_does})(inputs, layers.Dense(3)(inputs))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    history = fitroom.fit(
        model,
        *samples(16),
        batch_size=16,
        validation_data=samples(48),
        validation_batch_size=of_validation,
        verbose=0,
        recipe=fitroom.Recipe(micro_batch=at_once),
    )
    assert np.isfinite(history.history["val_loss"]).all()
