"""What estimating asks of a model and leaves of it, on JAX."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fitroom import FitroomError, ModelError, Recipe
from fitroom.backends.jax.trace.step import training_step
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest
from sample_models import SIZE, classifier

BATCH = 4


@pytest.fixture
def estimate(method):
    """Estimates by the jaxpr alone, and by the compiler, which takes seconds for each."""

    def estimate(model: keras.Model, batch_size: int = BATCH, **arguments) -> fitroom.Estimate:
        if method == "traced":
            arguments["recipe"] = replace(arguments.get("recipe", Recipe()), jit=False)
        return fitroom.estimate(model, batch_size, gpu="T4", **arguments)

    return estimate


@pytest.fixture(params=["traced", pytest.param("compiled", marks=pytest.mark.slow)])
def method(request):
    return request.param


def request(**arguments) -> StepRequest:
    return StepRequest(**{"batch_size": BATCH, "card": find_card("T4")} | arguments)


def targets(model: keras.Model) -> tuple:
    """The likeliest targets."""
    with prepare_model(model, request()) as ready:
        return ready.y_candidates[0]


def images(count: int = 8) -> np.ndarray:
    return np.random.default_rng(0).random((count, SIZE, SIZE, 3), "float32")


def labels(count: int = 8) -> np.ndarray:
    return np.arange(count) % 10


def layer_bytes(estimated: fitroom.Estimate) -> dict[str, int]:
    return {row.layer: row.bytes for row in estimated.by_layer}


def state_of(model: keras.Model) -> list[np.ndarray]:
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [keras.ops.convert_to_numpy(variable).copy() for variable in variables]


# What is left of the model.


def test_a_trained_model_is_given_back_as_it_was_and_trains_on(estimate):
    model = classifier(metrics=["accuracy"])
    model.fit(images(), labels(), batch_size=BATCH, verbose=0)
    optimizer, before, names = model.optimizer, state_of(model), [metric.name for metric in model.metrics]
    train_function = model.train_function
    estimate(model)
    assert model.optimizer is optimizer
    assert model.train_function is train_function
    assert [metric.name for metric in model.metrics] == names
    assert all(np.array_equal(was, now) for was, now in zip(before, state_of(model), strict=True))
    history = model.fit(images(), labels(), batch_size=BATCH, verbose=0).history
    assert set(history) == {"loss", "accuracy"}
    assert int(optimizer.iterations) == 4


def test_a_model_that_was_not_compiled_stays_so(estimate):
    model = classifier()
    estimated = estimate(model)
    assert not model.compiled
    assert getattr(model, "optimizer", None) is None
    assert model.loss is None
    assert "Not compiled by you: estimated with Adam and sparse_categorical_crossentropy." in estimated.notes
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(images(), labels(), verbose=0)


def test_the_optimizer_of_a_model_not_yet_trained_stays_without_slots(estimate):
    model = classifier(metrics=["accuracy"])
    estimate(model)
    assert not model.optimizer.built
    model.fit(images(), labels(), verbose=0)


def test_metrics_are_still_resolved_by_the_data_they_first_see(estimate):
    """Nothing tells from outside that this loss takes class numbers, nor that a batch of ours was not the user's."""

    def my_loss(y_true, y_pred):
        if len(y_true.shape) == 1:
            return keras.losses.sparse_categorical_crossentropy(y_true, y_pred)
        return keras.losses.categorical_crossentropy(y_true, y_pred)

    model = classifier(loss=my_loss, metrics=["accuracy", keras.metrics.F1Score()])
    estimate(model)
    history = model.fit(images(), keras.utils.to_categorical(labels(), 10), verbose=0).history
    assert set(history) == {"loss", "accuracy", "f1_score"}
    model = classifier(loss=my_loss, metrics=["accuracy"])
    estimate(model)
    model.fit(images(), labels(), verbose=0)
    assert isinstance(model.metrics[-1].metrics[0], keras.metrics.SparseCategoricalAccuracy)


def test_an_estimate_that_fails_leaves_the_model_as_it_was_too(estimate):
    model = classifier(loss="categorical_hinge", metrics=["accuracy"])
    optimizer = model.optimizer
    with pytest.raises(FitroomError):
        estimate(model, loss="no_such_loss")
    assert model.optimizer is optimizer
    assert model.loss == "categorical_hinge"


# What the step is fed.


def two_headed(outputs: type = list) -> keras.Model:
    """A classifier and a regression of several numbers; the names are not in the order of the alphabet."""
    pictures = keras.Input((SIZE, SIZE, 3), name="pictures")
    numbers = keras.Input((5,), name="numbers")
    x = layers.Conv2D(8, 3, name="conv")(pictures)
    x = layers.Concatenate(name="join")([layers.GlobalAveragePooling2D(name="pool")(x), numbers])
    species = layers.Dense(10, activation="softmax", name="species")(x)
    box = layers.Dense(4, name="box")(x)
    heads = {"species": species, "box": box} if outputs is dict else [species, box]
    return keras.Model({"pictures": pictures, "numbers": numbers}, heads, name="two_headed")


LOSS_OF_HEAD = {"species": "sparse_categorical_crossentropy", "box": "mse"}


@pytest.mark.parametrize("outputs", [list, dict])
def test_a_dict_of_losses_gives_each_output_its_own_targets(outputs, estimate):
    model = two_headed(outputs)
    model.compile("adam", LOSS_OF_HEAD, metrics={"species": ["accuracy"]})
    y = targets(model)
    species, box = (y["species"], y["box"]) if outputs is dict else y
    assert (species.shape, species.dtype) == ((BATCH,), "int32")
    assert (box.shape, box.dtype) == ((BATCH, 4), "float32")
    layers_seen = set(layer_bytes(estimate(model)))
    assert {"conv", "species", "box"} <= layers_seen


def test_a_list_of_losses_goes_with_the_outputs_in_their_order(estimate):
    model = two_headed()
    model.compile("adam", ["sparse_categorical_crossentropy", "mse"], loss_weights=[1.0, 0.5])
    species, box = targets(model)
    assert species.shape == (BATCH,)
    assert box.shape == (BATCH, 4)
    estimate(model)
    count = 8
    x = {"pictures": images(count), "numbers": np.zeros((count, 5))}
    model.fit(x, [labels(count), np.zeros((count, 4))], verbose=0)


def test_several_inputs_all_count_as_input(estimate):
    model = two_headed()
    estimated = estimate(model)
    assert estimated.by_kind["input"] >= BATCH * 4 * (SIZE * SIZE * 3 + 5)


def test_an_uncompiled_model_of_several_outputs_can_be_estimated(estimate):
    assert not two_headed().compiled
    assert estimate(two_headed(dict)).peak_bytes > 0


def test_a_regression_is_fed_what_it_predicts(estimate):
    model = keras.Sequential([keras.Input((16,)), layers.Dense(3)])
    model.compile("sgd", "mse")
    assert targets(model).shape == (BATCH, 3)
    model.compile("sgd", keras.losses.Huber(), metrics=[keras.metrics.RootMeanSquaredError()])
    assert estimate(model).peak_bytes > 0


def test_a_loss_function_of_the_users_own_gets_targets_that_it_takes():
    def takes_class_numbers(y_true, y_pred):
        return keras.losses.sparse_categorical_crossentropy(y_true, y_pred)

    def takes_vectors(y_true, y_pred):
        return keras.ops.mean(keras.ops.square(y_true - y_pred), axis=-1)

    for loss, shape in ((takes_class_numbers, (BATCH,)), (takes_vectors, (BATCH, 10))):
        with prepare_model(classifier(loss=loss), request()) as ready:
            _, (_, y) = training_step(ready).specs
        assert y.shape == shape


def test_a_loss_that_takes_no_batch_is_a_clear_error(estimate):
    def broken(y_true, y_pred):
        raise ValueError("I do not like these targets")

    with pytest.raises(ModelError, match="I do not like these targets") as raised:
        estimate(classifier(loss=broken))
    assert "model.fit" in raised.value.hint


# Which models.


def test_a_sequential_model_is_the_same_as_a_functional_one(estimate):
    stack = [layers.Conv2D(8, 3, name="conv"), layers.Flatten(name="flat"), layers.Dense(10, name="head")]
    sequential = keras.Sequential([keras.Input((SIZE, SIZE, 3)), *stack])
    inputs = keras.Input((SIZE, SIZE, 3))
    x = inputs
    for layer in stack:
        x = layer.__class__.from_config(layer.get_config())(x)
    functional = keras.Model(inputs, x)
    assert estimate(sequential).peak_bytes == estimate(functional).peak_bytes


class Subclassed(keras.Model):
    """Its input shape is known by `build` alone."""

    def __init__(self, heads=1, **arguments):
        super().__init__(**arguments)
        self.conv = layers.Conv2D(8, 3, name="conv")
        self.pool = layers.GlobalAveragePooling2D(name="pool")
        self.heads = [layers.Dense(10, activation="softmax", name=f"head_{i}") for i in range(heads)]

    def build(self, input_shape):
        self.conv.build(input_shape)
        for head in self.heads:
            head.build((None, 8))
        self.built = True

    def call(self, x):
        x = self.pool(self.conv(x))
        found = {head.name: head(x) for head in self.heads}
        return found if len(found) > 1 else found["head_0"]


def test_a_subclassed_model_that_was_built_is_estimated_by_its_layers(estimate):
    model = Subclassed()
    with pytest.raises(ModelError, match="not built") as raised:
        estimate(model)
    assert "model.build" in raised.value.hint
    model.build((None, SIZE, SIZE, 3))
    estimated = estimate(model)
    assert {"conv", "head_0"} <= set(layer_bytes(estimated))
    larger = estimate(model, 4 * BATCH)
    assert larger.by_kind["input"] > 3.9 * estimated.by_kind["input"]


def test_a_subclassed_model_may_return_a_dict(estimate):
    model = Subclassed(heads=2)
    model.build((None, SIZE, SIZE, 3))
    model.compile("adam", {"head_0": "sparse_categorical_crossentropy", "head_1": "mse"})
    assert {name: spec.shape for name, spec in targets(model).items()} == {"head_0": (BATCH,), "head_1": (BATCH, 10)}
    assert estimate(model).peak_bytes > 0


def test_a_subclassed_model_cannot_be_put_into_another_precision_and_says_how(estimate):
    model = Subclassed()
    model.build((None, SIZE, SIZE, 3))
    with pytest.raises(ModelError, match="could not be rebuilt in mixed_bfloat16") as raised:
        estimate(model, recipe=Recipe(precision="mixed_bfloat16"))
    assert "set_dtype_policy('mixed_bfloat16')" in raised.value.hint


def test_layers_of_nested_models_are_named_by_their_path(estimate):
    deepest = keras.Sequential([layers.Conv2D(8, 3, name="conv")], name="deepest")
    inner = keras.Sequential([deepest, layers.ReLU(name="relu")], name="inner")
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.GlobalAveragePooling2D(name="pool")(inner(inputs))
    model = keras.Model(inputs, layers.Dense(10, name="head")(x))
    found = layer_bytes(estimate(model))
    assert {"inner/deepest/conv", "head"} <= set(found)
    assert not {"conv", "inner", "deepest", "deepest/conv"} & set(found)


def test_a_train_step_of_the_users_own_is_what_is_estimated(estimate):
    """On JAX it is a function of the state; this one keeps two copies of the model's slots busy at once."""

    class Doubled(keras.Model):
        def train_step(self, state, data):
            x, y = data
            logs, state = super().train_step(state, (keras.ops.concatenate([x, x]), keras.ops.concatenate([y, y])))
            return logs, state

    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(32, 3, name="conv")(inputs)
    x = layers.Activation("gelu", name="gelu")(x)
    outputs = layers.Dense(10, activation="softmax", name="head")(layers.GlobalAveragePooling2D(name="pool")(x))
    plain, doubled = keras.Model(inputs, outputs), Doubled(inputs, outputs)
    for model in (plain, doubled):
        model.compile("sgd", "sparse_categorical_crossentropy")
    ratio = estimate(doubled, 16).by_kind["activations"] / estimate(plain, 16).by_kind["activations"]
    assert 1.8 < ratio < 2.6
    doubled.fit(images(), labels(), verbose=0)


def test_a_train_step_written_for_another_backend_is_refused_with_the_reason(estimate):
    class ForTensorFlow(keras.Model):
        def train_step(self, data):
            raise AssertionError("never called with JAX's arguments")

    inputs = keras.Input((8,))
    model = ForTensorFlow(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    with pytest.raises(ModelError, match="train_step"):
        estimate(model)


def test_a_train_step_that_assigns_variables_is_refused_and_harms_nothing(estimate):
    """As it is written for TensorFlow; traced on JAX it would leave the model without its weights."""

    class Assigning(keras.Model):
        def train_step(self, state, data):
            for variable in self.trainable_variables:
                variable.assign(variable + 1)
            return {"loss": 0.0}, state

    inputs = keras.Input((8,))
    model = Assigning(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    before = state_of(model)
    with pytest.raises(ModelError, match="assigns variables by itself") as raised:
        estimate(model)
    assert "logs, state" in raised.value.hint
    assert all(np.array_equal(was, now) for was, now in zip(before, state_of(model), strict=True))


def test_a_compile_of_the_users_own_is_left_alone(estimate):
    class OwnCompile(keras.Model):
        def compile(self, teacher):
            super().compile("sgd", "mse")
            self.teacher = teacher

    inputs = keras.Input((8,))
    model = OwnCompile(inputs, layers.Dense(1)(inputs))
    model.compile(teacher="a teacher")
    optimizer = model.optimizer
    assert estimate(model).peak_bytes > 0
    assert model.optimizer is optimizer
    assert model.teacher == "a teacher"


def test_an_image_size_for_a_model_of_numbers_is_refused(estimate):
    with pytest.raises(ModelError, match="takes no images"):
        estimate(wide(), recipe=Recipe(image_size=32))


def test_what_is_not_a_model_is_refused(estimate):
    with pytest.raises(ModelError, match=r"must be a `keras\.Model`"):
        estimate(layers.Dense(3))


def test_a_model_without_weights_takes_its_batch(estimate):
    model = keras.Sequential([keras.Input((8, 8, 3)), layers.Flatten(), layers.Rescaling(0.5)])
    estimated = estimate(model, training=False)
    assert estimated.by_kind["weights"] == 0
    assert estimated.by_kind["input"] == BATCH * 8 * 8 * 3 * 4


def test_a_nested_model_that_was_compiled_can_be_put_into_another_precision():
    inner = classifier(metrics=["accuracy"])
    inputs = keras.Input((SIZE, SIZE, 3))
    model = keras.Model(inputs, layers.Dense(2, name="new_head")(inner(inputs)))
    with prepare_model(model, request(recipe=Recipe(precision="mixed_bfloat16"))) as ready:
        assert ready.model.get_layer("classifier").get_layer("conv").compute_dtype == "bfloat16"
    assert inner.compiled


def test_an_input_with_a_fixed_batch_takes_no_other(estimate):
    inputs = keras.Input((8,), batch_size=4)
    model = keras.Model(inputs, layers.Dense(1)(inputs))
    assert estimate(model, 4).peak_bytes > 0
    with pytest.raises(ModelError, match="fixed batch of 4"):
        estimate(model, 8)


# How it is trained.


def wide() -> keras.Model:
    """Mostly weights, so that what an optimizer keeps of them shows."""
    inputs = keras.Input((256,))
    x = layers.Dense(512, activation="relu", name="first")(inputs)
    return keras.Model(inputs, layers.Dense(512, name="second")(x))


def test_frozen_layers_take_less(estimate):
    weights = (256 * 512 + 512) * 4
    trained, frozen = wide(), wide()
    frozen.get_layer("first").trainable = False
    saved = estimate(trained).peak_bytes - estimate(frozen).peak_bytes
    assert saved >= 2 * weights  # at least its two slots of Adam


@pytest.mark.parametrize("method", ["compiled"])  # which has the peak where all slots are there
def test_an_optimizer_with_slots_takes_what_its_slots_take(estimate):
    weights = sum(int(np.prod(weight.shape)) for weight in wide().weights) * 4
    slots = {name: estimate(wide(), optimizer=name).by_kind["optimizer"] for name in ("sgd", "rmsprop", "adam")}
    assert slots["rmsprop"] - slots["sgd"] == pytest.approx(weights, rel=0.01)
    assert slots["adam"] - slots["sgd"] == pytest.approx(2 * weights, rel=0.01)


def test_an_optimizer_object_is_used_with_its_settings_and_stays_unbuilt(estimate):
    momentum = keras.optimizers.SGD(momentum=0.9, learning_rate=keras.optimizers.schedules.CosineDecay(0.1, 100))
    with_momentum = estimate(wide(), optimizer=momentum).by_kind["optimizer"]
    assert with_momentum > estimate(wide(), optimizer="sgd").by_kind["optimizer"] + 256 * 512 * 4
    assert not momentum.built
    assert estimate(wide(), optimizer=keras.optimizers.SGD(learning_rate=lambda: 0.1)).peak_bytes > 0


def test_unknown_names_in_the_library_are_fitroom_errors(estimate):
    with pytest.raises(FitroomError, match="no_such_optimizer"):
        estimate(wide(), optimizer="no_such_optimizer")
    with pytest.raises(FitroomError, match="no_such_loss"):
        estimate(wide(), loss="no_such_loss")
    with pytest.raises(FitroomError, match="batch_size"):
        estimate(wide(), 0)
    with pytest.raises(FitroomError, match="no_such_dtype"):
        estimate(wide(), recipe=Recipe(input_dtype="no_such_dtype"))


def test_accumulation_adds_one_buffer_of_the_weights_to_the_micro_batch(estimate):
    model = wide()
    weights = sum(int(np.prod(weight.shape)) for weight in model.weights) * 4
    micro = estimate(model, 8)
    whole = estimate(model, 32, recipe=Recipe(keras_accumulation=4))
    assert whole.by_kind["input"] == micro.by_kind["input"]
    extra = whole.by_kind["optimizer"] - micro.by_kind["optimizer"]
    assert extra >= 0.99 * weights
    assert whole.batch_size == 32


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_precision_by_recipe_is_as_good_as_building_in_it(policy, estimate):
    by_recipe = estimate(classifier(metrics=["accuracy"]), recipe=Recipe(precision=policy))
    keras.config.set_dtype_policy(policy)
    built = estimate(classifier(metrics=["accuracy"]))
    assert by_recipe.precision == built.precision == policy
    assert by_recipe.peak_bytes == built.peak_bytes
    assert by_recipe.by_kind == built.by_kind
    assert keras.config.dtype_policy().name == policy


def test_precision_by_recipe_leaves_a_layer_that_was_set_apart():
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(8, 3)(inputs)
    x = layers.Activation("softmax", dtype="float64", name="apart")(x)
    model = keras.Model(inputs, x)
    with prepare_model(model, request(recipe=Recipe(precision="mixed_bfloat16"))) as ready:
        twin = ready.model
        assert twin is not model
        assert twin.get_layer("apart").compute_dtype == "float64"
        assert twin.layers[1].compute_dtype == "bfloat16"
    assert model.layers[1].compute_dtype == "float32"


def test_loss_scaling_is_part_of_a_step_in_mixed_float16(estimate):
    keras.config.set_dtype_policy("mixed_float16")
    model = classifier(optimizer="sgd")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    optimizer = model.optimizer
    estimated = estimate(model)
    assert estimated.precision == "mixed_float16"
    assert model.optimizer is optimizer
    accumulating = estimate(model, 4 * BATCH, recipe=Recipe(keras_accumulation=4))
    assert accumulating.by_kind["optimizer"] > estimated.by_kind["optimizer"]


def test_an_estimate_in_another_precision_still_scales_the_loss():
    model = classifier(optimizer="sgd")
    with prepare_model(model, request(recipe=Recipe(precision="mixed_float16"))) as ready:
        assert isinstance(ready.model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert isinstance(model.optimizer, keras.optimizers.SGD)
