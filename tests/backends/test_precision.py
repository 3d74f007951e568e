"""Training in another precision than the model's own."""

from typing import ClassVar

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fit_cases import momentum
from fitroom.keras_model.precision import in_precision
from stopped_training import Stop, StopAt

HALF = fitroom.Recipe(precision="mixed_bfloat16")
OPTIONS = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0, "seed": 5}


@keras.saving.register_keras_serializable()
class SeesPrecision(layers.Layer):
    """Writes down in which precision it is called."""

    seen: ClassVar[list[str]] = []

    def call(self, x):
        self.seen.append(keras.backend.standardize_dtype(x.dtype))
        return x


def nested_net(policy="float32", **apart):
    """A model within a model, and one layer that is called twice."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    inner = keras.Sequential(
        [
            keras.Input((6, 6, 4)),
            layers.Conv2D(4, 3, padding="same"),
            layers.BatchNormalization(),
            layers.Activation("relu"),
        ]
    )
    x = keras.Input((6, 6, 3))
    twice = layers.Conv2D(4, 3, padding="same")
    y = inner(twice(twice(layers.Conv2D(4, 1)(x))))
    y = layers.Dense(3)(layers.GlobalAveragePooling2D()(SeesPrecision()(y)))
    model = keras.Model(x, layers.Activation("softmax", **apart)(y))
    model.compile(momentum(), "sparse_categorical_crossentropy", metrics=["accuracy"])
    keras.config.set_dtype_policy("float32")
    return model


def samples(number=24):
    random = np.random.default_rng(0)
    return random.normal(size=(number, 6, 6, 3)).astype("float32"), random.integers(0, 3, number).astype("int32")


def weights_of(model):
    return [np.array(keras.ops.convert_to_numpy(v)) for v in model.variables]


def policies_of(model):
    return [layer.dtype_policy.name for layer in model._flatten_layers()]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(weights_of(one), weights_of(other), strict=True))


@pytest.fixture(autouse=True)
def seen():
    SeesPrecision.seen.clear()
    return SeesPrecision.seen


def test_it_trains_to_the_weights_of_a_model_that_was_built_in_that_precision(seen):
    theirs, ours = nested_net("mixed_bfloat16"), nested_net()
    fitroom.fit(theirs, *samples(), **OPTIONS)
    seen.clear()
    fitroom.fit(ours, *samples(), **OPTIONS, recipe=HALF)
    assert set(seen) == {"bfloat16"}
    assert same(ours, theirs)
    assert {str(variable.dtype) for variable in ours.trainable_variables} == {"float32"}


@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_afterwards_the_model_computes_as_before(ends, seen):
    class Stops(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if ends == "with an error":
                raise ZeroDivisionError
            self.model.predict(samples()[0], verbose=0)  # which Keras compiles, and keeps

    model = nested_net()
    policies, optimizer = policies_of(model), model.optimizer
    model.predict(samples()[0], verbose=0)
    try:
        fitroom.fit(model, *samples(), **OPTIONS, recipe=HALF, callbacks=[Stops()])
    except ZeroDivisionError:
        assert ends == "with an error"
    assert policies_of(model) == policies
    assert model.optimizer is optimizer
    assert "save" not in vars(model)
    twin = nested_net()
    twin.set_weights(model.get_weights())
    x = samples()[0]
    assert np.array_equal(model.predict(x, verbose=0), twin.predict(x, verbose=0))
    seen.clear()
    fitroom.fit(model, *samples(), **OPTIONS)
    assert "bfloat16" not in seen


def test_what_is_trained_next_in_its_own_precision_is_not_what_was_compiled_before(seen):
    model = nested_net()
    for recipe, precision in ((HALF, "bfloat16"), (None, "float32")):
        seen.clear()
        fitroom.fit(model, *samples(), **OPTIONS, recipe=recipe)
        assert set(seen) == {precision}


@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.quick_on("torch"))]
)
def test_files_that_are_saved_in_the_middle_and_at_the_end_are_the_model_as_it_was_built(policy, tmp_path):
    model = nested_net()
    keeping = keras.callbacks.ModelCheckpoint(tmp_path / "kept.keras", save_freq=2)
    recipe = fitroom.Recipe(precision=policy)
    fitroom.fit(model, *samples(), **OPTIONS, recipe=recipe, callbacks=[keeping], run_dir=tmp_path / "run")
    for file in (tmp_path / "kept.keras", tmp_path / "run" / "model.keras"):
        loaded = keras.saving.load_model(file)
        assert policies_of(loaded) == policies_of(model)
        assert type(loaded.optimizer) is type(model.optimizer)
        assert same(loaded, model)
        assert int(loaded.optimizer.iterations) == 6
        assert len(loaded.optimizer.variables) == len(model.optimizer.variables)


@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.quick_on("torch"))]
)
def test_a_run_goes_on_in_its_precision_and_a_finished_one_comes_back(policy, tmp_path):
    recipe = fitroom.Recipe(precision=policy, micro_batch=4)
    options = OPTIONS | {"recipe": recipe, "checkpoint_batches": 1}
    expected = nested_net()
    fitroom.fit(expected, *samples(), **options)
    with pytest.raises(Stop):
        fitroom.fit(nested_net(), *samples(), **options, run_dir=tmp_path / "run", callbacks=[StopAt(4)])
    again = nested_net()
    fitroom.fit(again, *samples(), **options, run_dir=tmp_path / "run")
    assert same(again, expected)
    finished = nested_net()
    history = fitroom.fit(finished, *samples(), **options, run_dir=tmp_path / "run")
    assert same(finished, expected)
    assert [event["kind"] for event in history.fitroom["events"]] == ["finished"]
    assert int(finished.optimizer.iterations) == 6
    with pytest.raises(fitroom.InputError, match="another run"):
        fitroom.fit(nested_net(), *samples(), **OPTIONS, run_dir=tmp_path / "run")


def test_blocks_are_recomputed_in_the_same_precision(seen):
    theirs, ours = nested_net("mixed_bfloat16"), nested_net()
    fitroom.fit(theirs, *samples(), **OPTIONS, recipe=fitroom.Recipe(remat="blocks"))
    seen.clear()
    fitroom.fit(ours, *samples(), **OPTIONS, recipe=fitroom.Recipe(remat="blocks", precision="mixed_bfloat16"))
    assert set(seen) == {"bfloat16"}
    assert same(ours, theirs)


class Lazy(keras.Model):
    """Its layers are made when it is built."""

    def build(self, shape):
        self.first, self.last = layers.Dense(4, dtype=self.dtype_policy), layers.Dense(3, dtype=self.dtype_policy)
        self.first.build(shape)
        self.last.build((*shape[:-1], 4))

    def call(self, x):
        return self.last(self.first(x))


def test_a_model_that_was_never_called_is_built_in_its_own_precision():
    model = Lazy()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = samples()
    history = fitroom.fit(model, x.reshape(len(x), -1), y, **OPTIONS, recipe=fitroom.Recipe(precision="float16"))
    assert {str(variable.dtype) for variable in model.trainable_variables} == {"float32"}
    assert set(policies_of(model)) == {"float32"}
    assert np.isfinite(history.history["loss"]).all()


def test_a_step_of_ones_own_loop_has_the_precision_of_its_recipe(seen):
    theirs, ours = nested_net("mixed_float16"), nested_net()
    of_theirs, of_ours = fitroom.Step(theirs), fitroom.Step(ours, recipe=fitroom.Recipe(precision="mixed_float16"))
    for _ in range(3):
        of_theirs(*samples())
    seen.clear()
    for _ in range(3):
        of_ours(*samples())
        assert set(policies_of(ours)) == {"float32"}
    assert set(seen) == {"float16"}
    assert same(ours, theirs)


def test_a_layer_that_was_set_apart_stays_apart_and_one_policy_may_be_shared():
    model = nested_net("mixed_bfloat16", dtype="float32")
    shared = keras.dtype_policies.get("mixed_bfloat16")
    for layer in model._flatten_layers():
        if layer.dtype_policy.name == "mixed_bfloat16":
            layer.dtype_policy = shared
    before = policies_of(model)
    with in_precision(model, "mixed_float16"):
        within = policies_of(model)
        assert model(samples()[0]).dtype == model.variables[0].value.dtype
    assert within == [name.replace("mixed_bfloat16", "mixed_float16") for name in before]
    assert policies_of(model) == before
    assert shared.name == "mixed_bfloat16"


def test_a_model_that_is_not_compiled_can_be_put_into_a_precision_too(seen):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3), SeesPrecision()])
    seen.clear()
    with in_precision(model, "mixed_float16"):
        model(np.zeros((1, 6), "float32"))
    assert seen == ["float16"]
    assert set(policies_of(model)) == {"float32"}
