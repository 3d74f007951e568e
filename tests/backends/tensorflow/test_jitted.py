"""TensorFlow's jitted step, compiled without a card.

The compiler is the one that is installed beside the tests, whatever its version: what is checked here holds for all.
"""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf
from keras import layers

from fitroom.backends.tensorflow.trace.borrowed_variables import borrow_values
from fitroom.backends.tensorflow.trace.jitted import compiler
from fitroom.backends.tensorflow.trace.jitted.estimate import JittedEstimate, jitted_timeline
from fitroom.backends.tensorflow.trace.jitted.hlo import lower_step, normalise_program
from fitroom.backends.tensorflow.trace.jitted.placement import train
from fitroom.backends.tensorflow.trace.jitted.required import left_behind_bytes, smallest_limit_bytes
from fitroom.backends.tensorflow.trace.micro_batches import jitted_timeline_of_micro_batches, trace_micro_batch_step
from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep, predict_step, training_step
from fitroom.cards.catalogue import find_card
from fitroom.errors import BackendError, CompilerError, InputError, ModelError
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory import cache
from fitroom.memory.allocators.best_fit import BestFitAllocator
from fitroom.memory.step import StepRequest
from fitroom.memory.timeline import INPUT_LAYER, NO_LAYER, Timeline
from fitroom.recipe import Recipe

SIZE = 64
BATCH = 16
LIMIT_BYTES = 10 * 2**30
CRASHING_TARGET = (
    "gpu_device_info { cuda_compute_capability { major: 7 minor: 5 } core_count: 40 "
    'device_memory_size: 16000000000 } platform_name: "CUDA"'
)


def classifier() -> keras.Model:
    """Layers that are named by Keras, a nested model, one that is called twice."""
    inputs = keras.Input((SIZE, SIZE, 3))
    x = layers.Conv2D(32, 3, padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(32, 3, padding="same")(x)
    inner_inputs = keras.Input((SIZE, SIZE, 32))
    inner = keras.Model(inner_inputs, layers.Conv2D(32, 3, padding="same", name="conv")(inner_inputs), name="inner")
    shared = layers.Conv2D(32, 1, name="shared")
    x = layers.Add()([x, inner(x)])
    x = shared(layers.ReLU()(shared(x)))
    x = layers.Dropout(0.5)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax", name="head")(x), name="classifier")


def wide() -> keras.Model:
    """Much weight, little else."""
    inputs = keras.Input((2048,))
    return keras.Model(inputs, layers.Dense(2048, name="wide")(inputs))


def found(model: keras.Model, *, limit_bytes: int = LIMIT_BYTES, training: bool = True) -> JittedEstimate:
    request = StepRequest(batch_size=BATCH, card=find_card("T4"), training=training)
    with prepare_model(model, request, borrow_values) as ready:
        step = training_step(ready) if training else predict_step(ready)
        return jitted_timeline(step, request, limit_bytes)


@pytest.fixture(autouse=True)
def own_names():
    keras.backend.clear_session()
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture(scope="module")
def trained() -> JittedEstimate:
    keras.backend.clear_session()
    return found(classifier())


def cached_files() -> list[Path]:
    folder = cache.cache_folder()
    assert folder is not None
    return list(folder.glob("*.json.gz")) if folder.exists() else []


def test_what_the_step_is_given_is_counted_to_the_byte(trained):
    kinds = trained.timeline.by_kind()
    assert kinds["input"] == BATCH * SIZE * SIZE * 3 * 4 + 256  # the labels take the least that can be had
    weight_bytes = 4 * sum(weight.shape.num_elements() for weight in tf.nest.flatten(_trainable()))
    assert kinds["weights"] >= weight_bytes
    assert kinds["optimizer"] >= 2 * weight_bytes


def _trainable() -> list[tf.TensorSpec]:
    return [tf.TensorSpec(weight.shape) for weight in classifier().trainable_weights]


def test_the_peak_lies_between_what_backward_needs_and_all_that_is_ever_made(trained):
    image_bytes = BATCH * SIZE * SIZE * 32 * 4
    convolutions = 5
    assert convolutions * image_bytes < trained.timeline.peak_bytes < 4 * convolutions * image_bytes
    assert trained.required_bytes >= trained.timeline.peak_bytes


def test_variables_are_updated_in_place():
    """Weight, two slots, a gradient, and the hole it lies in; a new copy of the first would be three more."""
    kernel_bytes = 2048 * 2048 * 4
    peak_bytes = found(wide()).timeline.peak_bytes
    assert 4 * kernel_bytes < peak_bytes < 5.5 * kernel_bytes


def test_what_is_needed_counts_the_holes_that_making_variables_leaves():
    """Two pieces of the kernel's size lie free below it, each too small for the block of temporaries."""
    kernel_bytes, block_bytes = 100 * 2**20, 300 * 2**20
    spare_bytes = 2 * 2**20  # how finely the limit is searched

    def step(num_slots: int) -> TensorFlowStep:
        kinds = ["weights"] + ["optimizer"] * num_slots
        size = {"shape": (kernel_bytes // 8, 2), "dtype": "float32", "size_bytes": kernel_bytes}
        variables = tuple(StepVariable(variable=None, kind=kind, layer=None, **size) for kind in kinds)
        return SimpleNamespace(variables=variables, batch_bytes=2**20, prefetches_next=False)

    def holes_bytes(num_slots: int) -> int:
        peak_bytes = (1 + num_slots) * kernel_bytes + 2**20 + block_bytes
        smallest_bytes = smallest_limit_bytes(step(num_slots), block_bytes, peak_bytes)
        return smallest_bytes + 2**20 - peak_bytes  # with the batch that comes ahead

    assert 2 * kernel_bytes <= holes_bytes(0) <= 2 * kernel_bytes + spare_bytes
    # One slot fills one of them.
    assert kernel_bytes <= holes_bytes(1) <= kernel_bytes + spare_bytes
    # Two slots are the same zeros at first, in one of them, and the batch is in the other when the slots part.
    assert 2 * kernel_bytes <= holes_bytes(2) <= 2 * kernel_bytes + spare_bytes


def test_a_hole_that_is_a_little_too_large_is_taken_whole():
    """Making the first weight leaves a hole of twice its size, too small to be cut for the second."""
    sizes = {"first": 100 * 2**20, "second": 150 * 2**20}
    variables = tuple(
        StepVariable(variable=None, shape=(size // 4,), dtype="float32", size_bytes=size, kind="weights", layer=name)
        for name, size in sizes.items()
    )
    variables = (replace(variables[0], shape=(variables[0].shape[0] // 2, 2)), variables[1])
    expected = sum(sizes.values()) + 50 * 2**20 + 2**20 + 2**30
    for prefetches_next in (False, True):
        step = SimpleNamespace(variables=variables, batch_bytes=2**20, prefetches_next=prefetches_next)
        found = train(step, 2**30, BestFitAllocator(limit_bytes=2**33))
        assert found == expected + prefetches_next * 2**20, "the next batch is there as well"


def test_nearly_all_of_the_peak_belongs_to_layers(trained):
    by_layer = trained.timeline.by_layer()
    assert sum(by_layer.values()) == trained.timeline.peak_bytes
    # Gaps between buffers are nobody's, and large in so small a model.
    nameless_bytes = by_layer.get(NO_LAYER, 0) - trained.timeline.by_kind()["other"]
    assert nameless_bytes < 0.01 * trained.timeline.peak_bytes


def test_layers_are_called_by_their_own_names(trained):
    names = {buffer.layer for buffer in trained.timeline.buffers if buffer.layer}
    assert {"conv2d", "conv2d_1", "batch_normalization", "inner/conv", "shared", "head"} <= names
    assert names <= {layer.name for layer in classifier().layers} | {"inner/conv"}
    assert INPUT_LAYER in trained.timeline.by_layer()


def test_every_phase_has_its_peak(trained):
    phases = trained.timeline.by_phase()
    assert all(phases.values())
    assert trained.timeline.by_kind()["activations"] > trained.timeline.peak_bytes / 3
    names = [moment.phase for moment in trained.timeline.moments if moment.phase]
    assert names.index("forward") < names.index("backward") < len(names) - 1 - names[::-1].index("update")


def test_a_step_with_a_loop_is_traced_as_xla_will_have_it():
    inputs = keras.Input((6, 4))
    outputs = layers.Dense(1, name="head")(layers.LSTM(8, use_cudnn=False, name="lstm")(inputs))
    looped = found(keras.Model(inputs, outputs)).timeline
    assert {"lstm/lstm_cell", "head"} <= {buffer.layer for buffer in looped.buffers}
    assert looped.by_phase()["backward"]


def test_half_precision_takes_less(trained):
    keras.config.set_dtype_policy("mixed_float16")
    mixed = found(classifier()).timeline.peak_bytes
    assert mixed < 0.8 * trained.timeline.peak_bytes


def test_on_a_card_that_is_too_small_xla_recomputes(trained, monkeypatch):
    monkeypatch.setattr(compiler, "_limit_of_xla", lambda card: 50 * 2**20)
    small = found(classifier())
    assert any("recomputes" in note for note in small.notes)
    assert small.timeline.peak_bytes < trained.timeline.peak_bytes


def test_predict_has_neither_gradients_nor_optimizer(trained):
    predicted = found(classifier(), training=False).timeline
    kinds = predicted.by_kind()
    assert kinds["gradients"] == kinds["optimizer"] == 0
    assert kinds["activations"] > 0
    assert predicted.by_phase()["backward"] is None
    assert predicted.peak_bytes < trained.timeline.peak_bytes / 2


def test_the_same_step_is_compiled_once_whatever_the_limit(trained):
    """TensorFlow does not tell XLA of the allocator's limit."""
    kept = len(cached_files())
    keras.backend.clear_session()
    again = found(classifier(), limit_bytes=LIMIT_BYTES // 1000)
    assert again == trained
    assert len(cached_files()) == kept


def test_the_program_is_the_same_whenever_it_is_traced():
    def program() -> bytes:
        keras.backend.clear_session()
        request = StepRequest(batch_size=BATCH, card=find_card("T4"))
        with prepare_model(classifier(), request, borrow_values) as ready:
            return normalise_program(lower_step(training_step(ready)))

    assert program() == program()


def test_weights_of_a_model_that_has_values_stay_as_they_are():
    model = classifier()
    before = [weight.numpy().copy() for weight in model.weights]
    found(model)
    assert all((weight.numpy() == was).all() for weight, was in zip(model.weights, before, strict=True))


def test_a_step_that_xla_cannot_compile_is_refused_with_a_way_out():
    class Unjittable(keras.Model):
        def train_step(self, data):
            tf.strings.format("{}", data[0])
            tf.raw_ops.StringLower(input=tf.strings.as_string(data[1]))
            return super().train_step(data) | {"text": tf.strings.length(tf.strings.as_string(data[1]))}

    inputs = keras.Input((8,))
    with pytest.raises(ModelError, match="cannot compile this step with XLA") as caught:
        found(Unjittable(inputs, layers.Dense(1)(inputs)))
    assert "--no-jit" in caught.value.hint


def test_a_crash_of_the_compiler_is_an_error_with_a_next_step(monkeypatch):
    """XLA divides by what this description leaves out."""
    monkeypatch.setattr(compiler, "target_description", lambda card, limit_bytes: CRASHING_TARGET)
    with pytest.raises(CompilerError, match=r"crashed \(SIG.*T4"):
        found(wide())


def test_a_compiler_that_refuses_is_quoted(monkeypatch):
    monkeypatch.setattr(compiler, "target_description", lambda card, limit_bytes: "nonsense {")
    with pytest.raises(CompilerError, match="Failed to parse"):
        found(wide())


def test_a_compiler_of_another_version_is_named_with_the_way_to_a_nearer_one(trained):
    assert trained.versions["compiler"].startswith("jax-cuda")
    (note,) = trained.notes
    assert trained.versions["compiler"] in note
    assert "pip install" in note


def test_a_folder_without_a_compiler_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("FITROOM_TF_COMPILER", str(tmp_path))
    with pytest.raises(InputError, match="no XLA compiler") as caught:
        found(wide())
    assert "pip install" in caught.value.hint


def test_without_any_compiler_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("fitroom.backends.tensorflow.trace.jitted.library.installed_compiler", lambda: None)
    with pytest.raises(BackendError, match="not installed") as caught:
        found(wide())
    assert "pip install" in caught.value.hint


def test_a_batch_in_parts_has_its_sums_beside_it_and_takes_less_the_smaller_they_are(trained):
    def in_parts(model: keras.Model, micro_batch: int) -> Timeline:
        request = StepRequest(batch_size=BATCH, card=find_card("T4"), recipe=Recipe(micro_batch=micro_batch))
        with prepare_model(model, request, borrow_values) as ready:
            return jitted_timeline_of_micro_batches(trace_micro_batch_step(ready), request, LIMIT_BYTES).timeline

    halves, eighths = (in_parts(classifier(), BATCH // number) for number in (2, 8))
    assert eighths.peak_bytes < halves.peak_bytes < trained.timeline.peak_bytes
    kernel_bytes = 2048 * 2048 * 4
    phases = in_parts(wide(), 1).by_phase()
    # Weight, two slots, sums, new sums and a hole in a part; in the update the old ones of the first three.
    assert 5 * kernel_bytes < phases["backward"] < 6.5 * kernel_bytes
    assert 7 * kernel_bytes < phases["update"] < 7.5 * kernel_bytes


def depthwise(num_layers: int, policy: str = "float32") -> TensorFlowStep:
    """A step with layers that are all alike."""
    keras.config.set_dtype_policy(policy)
    inputs = keras.Input((SIZE, SIZE, 32))
    x = inputs
    for _ in range(num_layers):
        x = layers.DepthwiseConv2D(3, padding="same")(x)
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    with prepare_model(model, StepRequest(batch_size=BATCH, card=find_card("T4")), borrow_values) as ready:
        return training_step(ready)


def test_kernels_that_cannot_be_tried_leave_their_results_behind():
    result_bytes = BATCH * SIZE * SIZE * 32 * 4
    step, gib = depthwise(3), 2**30
    assert left_behind_bytes(step, 4 * gib) == 2 * result_bytes  # forward and backward, each tried once
    assert left_behind_bytes(step, 4 * gib, num_sizes=1.5) == 3 * result_bytes
    assert 0 < left_behind_bytes(step, 12 * gib) < left_behind_bytes(step, 8 * gib) < 2 * result_bytes
    assert left_behind_bytes(step, 16 * gib) == 0
    assert left_behind_bytes(depthwise(3, "mixed_float16"), 4 * gib) == 0
    assert left_behind_bytes(depthwise(0), 4 * gib) == 0
