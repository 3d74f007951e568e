"""What estimating in graph mode asks of a model and says of it."""

import weakref
from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import fitroom
from fitroom import Recipe
from fitroom.backends.tensorflow.device import release
from fitroom.backends.tensorflow.pool import default_limit_bytes
from fitroom.backends.tensorflow.trace.borrowed_variables import borrow_values
from fitroom.backends.tensorflow.trace.graph.grappler import optimise_graph
from fitroom.backends.tensorflow.trace.graph.program import program_of
from fitroom.backends.tensorflow.trace.graph.scratch import scratch_plan
from fitroom.backends.tensorflow.trace.step import training_step
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest
from sample_models import SIZE, classifier

BATCH = 64
GRAPH = Recipe(jit=False)


@pytest.fixture(autouse=True)
def plain_policy():
    yield
    keras.config.set_dtype_policy("float32")


def dense(units: int = 1024) -> keras.Model:
    hidden = [layers.Dense(units, activation="relu", name=f"hidden{k}") for k in range(2)]
    return keras.Sequential([keras.Input((256,)), *hidden, layers.Dense(4, activation="softmax", name="head")])


def estimate(model: keras.Model, batch_size: int = BATCH, **arguments) -> fitroom.Estimate:
    return fitroom.estimate(model, batch_size, **{"gpu": "H200", "recipe": GRAPH} | arguments)


@cache
def usual() -> fitroom.Estimate:
    """Of a training step of the classifier, as it is."""
    return estimate(classifier())


def program(model: keras.Model, *, card: str = "H200", batch_size: int = BATCH):
    request = StepRequest(batch_size=batch_size, card=find_card(card))
    with prepare_model(model, request, borrow_values) as ready:
        return program_of(optimise_graph(training_step(ready), request.card))


def state_of(model: keras.Model) -> list[np.ndarray]:
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [keras.ops.convert_to_numpy(variable).copy() for variable in variables]


def images(count: int = 8) -> np.ndarray:
    return np.random.default_rng(0).random((count, SIZE, SIZE, 3), "float32")


def labels(count: int = 8) -> np.ndarray:
    return np.arange(count) % 10


def layers_of(estimated: fitroom.Estimate) -> dict[str, int]:
    return {row.layer: row.bytes for row in estimated.by_layer}


# What is left of the model.


def test_a_trained_model_is_given_back_as_it_was_and_trains_on():
    """Whole and in micro-batches."""
    model = classifier(metrics=["accuracy"], jit_compile=False)
    model.fit(images(), labels(), batch_size=4, verbose=0)
    optimizer, before, train_function = model.optimizer, state_of(model), model.train_function
    dependencies = list(model._self_unconditional_checkpoint_dependencies)
    estimate(model)
    estimate(model, recipe=parts_of(16))
    assert model.optimizer is optimizer
    assert model.train_function is train_function
    assert model._self_unconditional_checkpoint_dependencies == dependencies
    assert all(np.array_equal(was, now) for was, now in zip(before, state_of(model), strict=True))
    model.fit(images(), labels(), batch_size=4, verbose=0)
    assert int(optimizer.iterations) == 4


def test_a_model_that_was_not_compiled_stays_so():
    model = classifier()
    estimated = estimate(model)
    assert not model.compiled
    assert "Not compiled by you: estimated with Adam and sparse_categorical_crossentropy." in estimated.notes
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(images(), labels(), verbose=0)


def test_variables_without_values_are_without_values_again():
    with keras.StatelessScope(initialize_variables=False):
        model = classifier()
    estimate(model)
    assert all(variable._value is None for variable in model.variables)


# What is counted.


def test_the_split_sums_to_the_peak_and_names_every_layer():
    estimated = usual()
    assert sum(estimated.by_kind.values()) == estimated.peak_bytes == sum(layers_of(estimated).values())
    assert {"conv", "norm", "head"} <= set(layers_of(estimated))
    assert layers_of(estimated).get("(no layer)", 0) < 0.05 * estimated.peak_bytes
    assert all(estimated.by_phase.values())


def test_layers_that_differ_by_a_number_are_told_apart():
    sizes = {"dense": 100, "dense_1": 3000, "dense_2": 200}
    hidden = [layers.Dense(units, name=name) for name, units in sizes.items()]
    model = keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(4, activation="softmax", name="head")])
    found = layers_of(estimate(model, 2048, optimizer="sgd"))
    assert set(sizes) <= set(found)
    assert found["dense_2"] > found["dense_1"] > 3 * found["dense"]


def test_one_activation_of_the_size_of_the_convolution_is_kept_for_each_use():
    """The convolution's output, and its normalised copy with what the activation keeps of it."""
    one = BATCH * SIZE * SIZE * 32 * 4
    peak = usual().peak_bytes
    assert 4 * one < peak < 6 * one


def test_adam_holds_two_slots_a_weight_and_sgd_none():
    weights = sum(int(np.prod(variable.shape)) * 4 for variable in dense().variables)
    adam, sgd = (estimate(dense(), 8, optimizer=name) for name in ("adam", "sgd"))
    # Also what the update makes on its way.
    assert adam.by_kind["optimizer"] == pytest.approx(2 * weights, rel=0.7)
    assert sgd.by_kind["optimizer"] < 0.01 * weights
    assert adam.by_kind["weights"] == pytest.approx(weights, rel=0.05)


def test_predict_takes_less_than_training():
    assert estimate(classifier(), training=False).peak_bytes < 0.5 * usual().peak_bytes


def test_a_half_precision_step_takes_less_and_takes_the_branch_that_updates():
    half = estimate(classifier(), recipe=Recipe(jit=False, precision="mixed_float16"))
    assert half.precision == "mixed_float16"
    assert half.peak_bytes < 0.9 * usual().peak_bytes
    assert half.by_phase["update"]


def test_accumulation_takes_the_memory_of_a_part_of_the_batch():
    model = classifier()
    parts = estimate(model, recipe=Recipe(jit=False, keras_accumulation=4))
    assert parts.peak_bytes == pytest.approx(estimate(model, BATCH // 4).peak_bytes, rel=0.05)


def test_what_is_required_holds_the_peak():
    for estimated in (usual(), estimate(dense())):
        assert estimated.peak_bytes <= estimated.required_bytes < 2.5 * estimated.peak_bytes


def test_a_step_of_the_users_own_is_traced():
    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            return {"loss": loss}

    inputs = keras.Input((20,))
    model = Own(inputs, layers.Dense(3, activation="softmax")(layers.Dense(500, name="wide")(inputs)))
    model.compile("adam", "sparse_categorical_crossentropy")
    assert layers_of(estimate(model))["wide"] > 0


def test_a_loop_keeps_what_its_backward_pass_needs_for_every_round():
    def recurrent(steps: int) -> keras.Model:
        words = keras.Input((steps,), dtype="int32")
        x = layers.LSTM(64, name="lstm", use_cudnn=False)(layers.Embedding(50, 16)(words))
        return keras.Model(words, layers.Dense(3, activation="softmax")(x))

    short, long = (estimate(recurrent(steps), 32).by_kind["activations"] for steps in (5, 20))
    assert long == pytest.approx(4 * short, rel=0.25)


def test_recurrent_layers_that_cudnn_would_run_are_said_so():
    words = keras.Input((2,), dtype="int32")
    model = keras.Model(words, layers.Dense(3)(layers.LSTM(8, name="lstm")(layers.Embedding(50, 16)(words))))
    assert any("cuDNN" in note and "lstm" in note for note in estimate(model, 4).notes)


def test_measuring_without_a_card_is_refused():
    with pytest.raises(fitroom.FitroomError, match=r"no NVIDIA GPU|The card in this machine"):
        estimate(dense(), measure=True)


def test_cards_of_other_makers_are_refused():
    with pytest.raises(fitroom.FitroomError, match="NVIDIA"):
        estimate(dense(), gpu="RX 7900 XTX")


# What Grappler makes of the graph for a card.


def test_float32_convolutions_are_computed_channels_first_and_halves_channels_last():
    def layouts(model: keras.Model) -> set[bytes]:
        return {each.attributes["data_format"].s for each in program(model).operations if each.op == "Conv2D"}

    assert layouts(classifier()) == {b"NCHW"}
    keras.config.set_dtype_policy("mixed_bfloat16")
    assert layouts(classifier()) == {b"NHWC"}


def test_every_size_is_known_and_branches_and_calls_are_part_of_the_graph():
    keras.config.set_dtype_policy("mixed_float16")
    found = program(classifier())
    assert found.num_unknown == 0
    kinds = {operation.op for operation in found.operations}
    assert {"Switch", "Merge"} <= kinds
    assert not kinds & {"If", "StatelessIf", "PartitionedCall", "StatefulPartitionedCall"}


def test_the_limit_is_the_card_less_a_reserve():
    for name in ("T4", "A100", "H200"):
        card = find_card(name)
        assert 0.85 * card.memory_bytes < default_limit_bytes(card) < card.memory_bytes
    assert estimate(dense(), limit="1GiB").limit_bytes == 2**30


# Batches in parts.


def parts_of(micro_batch: int) -> Recipe:
    return Recipe(jit=False, micro_batch=micro_batch)


def test_a_batch_in_parts_takes_less_the_smaller_they_are():
    model = classifier(metrics=["accuracy"], jit_compile=False)
    whole, *cut = (estimate(model, recipe=parts_of(size)) for size in (BATCH, BATCH // 2, BATCH // 8))
    assert whole.peak_bytes == estimate(model).peak_bytes
    for smaller, larger in zip(cut, (whole, *cut), strict=False):
        assert smaller.peak_bytes < larger.peak_bytes
        assert smaller.required_bytes < larger.required_bytes
    assert all(found.required_bytes >= found.peak_bytes for found in cut)


def test_the_update_after_the_parts_holds_old_values_new_ones_and_the_sums_of_gradients():
    model = dense(units=2048)
    model.compile("adam", "sparse_categorical_crossentropy")
    weight_bytes = sum(4 * weight.shape.num_elements() for weight in map(tf.TensorSpec, shapes_of(model)))
    found = estimate(model, recipe=parts_of(1))
    assert found.by_phase["update"] == found.peak_bytes
    assert 7 * weight_bytes < found.peak_bytes < 10 * weight_bytes
    assert found.by_kind["gradients"] >= weight_bytes
    # In a part there are weights, two slots, the sums and the new sums.
    assert 4.9 * weight_bytes < found.by_phase["backward"] < 6 * weight_bytes
    assert {"hidden0", "hidden1", "head"} <= layers_of(found).keys()


def shapes_of(model: keras.Model) -> list[tuple[int, ...]]:
    return [tuple(weight.shape) for weight in model.trainable_weights]


def test_a_step_that_cannot_be_cut_is_not_estimated_in_parts():
    class OwnStep(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    inputs = keras.Input((8,))
    model = OwnStep(inputs, layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    with pytest.raises(fitroom.FitroomError, match="train_step"):
        estimate(model, recipe=parts_of(16))


@pytest.mark.parametrize(("micro_batch", "remat"), [(None, None), (2, None), (None, "blocks")])
def test_an_estimate_does_not_keep_the_models_values(micro_batch, remat):
    def handle():
        model = classifier()
        estimate(model, 4, recipe=Recipe(jit=False, micro_batch=micro_batch, remat=remat))
        return weakref.ref(model.trainable_variables[0].value.handle)

    kept = handle()
    release()
    assert kept() is None


def test_the_optimizers_that_a_model_brings_are_counted_and_left_as_they_were():
    class Judged(keras.Model):
        def __init__(self):
            super().__init__()
            self.maker, self.judge = layers.Dense(8), layers.Dense(1)
            self.judges = keras.optimizers.Adam()

        def call(self, x):
            return self.judge(self.maker(x))

        def train_step(self, data):
            x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
            with tf.GradientTape(persistent=True) as tape:
                loss = tf.reduce_mean(self(x) ** 2)
            for optimizer, layer in ((self.optimizer, self.maker), (self.judges, self.judge)):
                optimizer.apply(tape.gradient(loss, layer.trainable_weights), layer.trainable_weights)
            return {"loss": loss}

    model = Judged()
    model.build((None, 16))
    model.compile(keras.optimizers.SGD())
    for jit in (False, True):
        found = estimate(model, 4, recipe=Recipe(jit=jit))
        assert found.by_kind["optimizer"] >= 2 * 4 * (8 + 1), "Adam's slots of the judge"
        assert not model.judges.built
        assert len(model.judges.variables) == 2
    model.fit(np.ones((4, 16), "float32"), verbose=0)
    assert len(model.judges.variables) == 6


def test_a_model_with_a_layer_that_xla_cannot_compile_is_planned_without_it():
    model = keras.Sequential(
        [keras.Input((SIZE, SIZE, 3)), layers.RandomRotation(0.1), layers.Flatten(), layers.Dense(2)]
    )
    assert fitroom.plan(model, 4, gpu="T4").recipe.jit is False


def test_gradients_of_dilated_convolutions_have_known_sizes():
    images = x = keras.Input((24, 24, 3))
    for rate in (2, 3, 4):
        x = layers.Conv2D(8, 3, padding="same", dilation_rate=rate)(x)
    model = keras.Model(images, layers.Dense(4, activation="softmax")(layers.GlobalAveragePooling2D()(x)))
    found = program(model, batch_size=4)
    assert any(operation.op == "SpaceToBatchND" for operation in found.operations)
    assert not found.num_unknown


def test_three_dimensional_convolutions_take_scratch_memory():
    frames = keras.Input((4, 8, 8, 3))
    x = layers.Conv3D(8, 3, padding="same")(layers.Conv3D(8, 3, padding="same")(frames))
    found = program(keras.Model(frames, layers.GlobalAveragePooling3D()(x)), batch_size=4)
    for operation in found.operations:
        if operation.op.startswith("Conv3D"):
            plan = scratch_plan(operation, found.input_outputs(operation))
            assert plan.workspace_bytes > 0
            assert (plan.place_of_output is not None) == operation.op.startswith("Conv3DBackpropInput")
    assert sum(operation.op.startswith("Conv3D") for operation in found.operations) == 5


def test_what_is_computed_on_bits_is_on_the_card():
    """Keras's `argmax`, which accuracy calls, looks at the sign of each number as at the bits of a whole one."""
    model = keras.Sequential([keras.Input((8,)), layers.Dense(2048, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    found = estimate(model).timeline
    made = {found.moments[buffer.first].name: buffer.size_bytes for buffer in found.buffers}
    assert max(size for name, size in made.items() if "BitwiseAnd" in name) >= 4 * BATCH * 2048
