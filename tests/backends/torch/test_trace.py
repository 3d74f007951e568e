"""What tracing finds on PyTorch, and leaves of the model."""

import contextlib
import gc
import random
from collections import Counter
from itertools import accumulate
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import torch
from keras import layers

import fitroom
from fitroom import BackendError, InputError, ModelError, Recipe
from fitroom.backends.torch.trace import collector
from fitroom.backends.torch.trace import estimate as trace
from fitroom.backends.torch.trace import measure as measured
from fitroom.backends.torch.trace.cuda.reductions import scratch_bytes
from fitroom.backends.torch.trace.platform import cpu
from fitroom.backends.torch.trace.step import training_steps
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest
from sample_models import ADAM_AND_LOSS, SIZE, classifier, convolutions_with_shortcuts, dense_with_shortcuts

MIB = 1024**2
BATCH = 4


@pytest.fixture(autouse=True)
def plain_policy():
    yield
    keras.config.set_dtype_policy("float32")


def estimate(model: keras.Model, batch_size: int = BATCH, **arguments) -> fitroom.Estimate:
    return fitroom.estimate(model, batch_size, **{"gpu": "H200"} | arguments)


def images(count: int = 8) -> np.ndarray:
    return np.random.default_rng(0).random((count, SIZE, SIZE, 3), "float32")


def labels(count: int = 8) -> np.ndarray:
    return np.arange(count) % 10


def state_of(model: keras.Model) -> list[np.ndarray]:
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    return [keras.ops.convert_to_numpy(variable).copy() for variable in variables]


# Beside real steps on PyTorch's CPU.


def real_step(model: keras.Model, batch_size: int) -> list[int]:
    """What PyTorch's CPU allocator did in the third step, as the profiler tells: bytes, negative where freed."""
    batch = torch.zeros(batch_size, *model.input_shape[1:]), torch.zeros(batch_size, dtype=torch.int32)
    model.train()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        for _ in range(3):
            with torch.profiler.record_function("a step"):
                logs = model.train_step(batch)  # noqa: F841 - held, as `fit` holds it
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    last_step = max(event.start_ns() for event in events if event.name() == "a step")
    return [event.nbytes() for event in events if event.name() == "[memory]" and event.start_ns() >= last_step]


def traced_step(model: keras.Model, batch_size: int) -> list[int]:
    """The same as traced for the CPU, without the batch."""
    request = StepRequest(batch_size=batch_size, card=find_card("T4"))
    with prepare_model(model, request, borrow_values=lambda variables: contextlib.nullcontext()) as ready:
        steps = training_steps(ready, cpu())
    events = [(steps.log.buffers[max(event, ~event)], event >= 0) for event in steps.log.events]
    start = next(place for place, (buffer, _) in enumerate(events) if buffer.first >= steps.last_step)
    sizes = [(buffer, buffer.size_bytes if made else -buffer.size_bytes) for buffer, made in events[start:]]
    return [size for buffer, size in sizes if buffer.kind != "input"]


def test_every_tensor_of_a_real_step_is_seen_and_its_peak_found(never_collected):
    model = dense_with_shortcuts()
    model.compile(**ADAM_AND_LOSS)
    real, traced = real_step(model, 64), traced_step(model, 64)
    assert max(accumulate(traced)) == pytest.approx(max(accumulate(real)), rel=0.01)
    # Below that, scalars: PyTorch keeps some on the CPU's own heap.
    sizes = [Counter(abs(size) for size in step if abs(size) > 4096) for step in (real, traced)]
    assert sizes[0] == sizes[1]


def test_the_peak_of_a_real_step_of_convolutions_is_found(never_collected):
    model = convolutions_with_shortcuts()
    model.compile(**ADAM_AND_LOSS)
    real, traced = real_step(model, 32), traced_step(model, 32)
    assert max(accumulate(traced)) == pytest.approx(max(accumulate(real)), rel=0.02)


# As on CUDA.


def moments(model: keras.Model, **arguments) -> list[str]:
    return [moment.name for moment in estimate(model, **arguments).timeline.moments]


def test_python_collects_as_often_as_is_assumed():
    """By structures gone through, in a training of some steps."""
    walks, collections = [], []
    model = dense_with_shortcuts()
    model.compile(**ADAM_AND_LOSS)
    x, y = np.zeros((4, 256), "float32"), np.zeros(4, "int32")
    model.train_on_batch(x, y)
    with pytest.MonkeyPatch.context() as patch:
        counted = collector._CountedWalks(collector.keras_tree.torch_tree, lambda: walks.append(1))
        patch.setattr(collector.keras_tree, "torch_tree", counted)
        gc.collect()
        gc.callbacks.append(lambda phase, info: collections.append(phase == "stop"))
        try:
            for _ in range(20):
                model.train_on_batch(x, y)
        finally:
            gc.callbacks.pop()
    assert 80 < len(walks) / sum(collections) < 160


def test_a_long_loop_in_python_requires_more():
    assert trace._old_garbage_share(5) == 0 < trace._old_garbage_share(11) < trace._old_garbage_share(100) < 0.5


def test_operations_are_those_of_cuda():
    names = moments(classifier(optimizer="adam"))
    assert "aten.native_dropout.default" in names
    assert "aten.convolution.default" in names
    assert not any("mkldnn" in name for name in names)


def test_attention_takes_the_kernel_that_the_card_has():
    inputs = keras.Input((64, 32))
    model = keras.Model(inputs, layers.Dense(1)(layers.MultiHeadAttention(2, 16)(inputs, inputs)))
    halves = Recipe(precision="mixed_float16")
    assert any("efficient_attention" in name for name in moments(model))
    assert any("flash_attention" in name for name in moments(model, recipe=halves))
    assert not any("flash_attention" in name for name in moments(model, recipe=halves, gpu="T4"))


class AsksForTheCard(layers.Layer):
    """Does as attention of KerasHub's decoders does: one way on a card, another elsewhere, yet another on a T4."""

    def call(self, x):
        if not torch.cuda.is_available():
            return torch.sin(x)
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        return torch.cos(x) if any("T4" in name for name in names) else torch.tanh(x)


def test_layers_that_ask_for_a_card_are_told_of_the_one_that_is_estimated_for():
    model = keras.Sequential([keras.Input((8,)), layers.Dense(8), AsksForTheCard(), layers.Dense(1)])
    has_card = torch.cuda.is_available()
    assert {"aten.tanh.default"} == {"aten.sin.default", "aten.cos.default", "aten.tanh.default"} & set(moments(model))
    assert "aten.cos.default" in moments(model, gpu="T4")
    assert torch.cuda.is_available() == has_card


def test_scratch_memory_of_a_reduction_is_that_of_the_card():
    """Measured on an H200: 132 MiB to sum 128 x 45 x 45 places of 128 channels."""
    shape, strides = (128, 45, 45, 128), (259200, 5760, 128, 1)
    assert scratch_bytes(shape, strides, (0, 1, 2), 4, find_card("H200")) == 132 * MIB
    assert scratch_bytes((4, 4), (4, 1), (1,), 4, find_card("H200")) == 0


def test_gradients_of_the_last_step_are_there_in_the_forward_pass():
    """Keras clears them after it: two copies of a weight and its Adam slots, from the first moment on."""
    model = keras.Sequential([keras.Input((1024,)), layers.Dense(1024, name="wide"), layers.Dense(1)])
    found = estimate(model, 1).timeline
    assert found.usage_bytes_of("gradients")[0] >= 4 * MIB
    assert found.usage_bytes[0] >= 16 * MIB


def test_the_libraries_workspaces_are_counted_by_the_card():
    """One for the thread that runs forward and one for autograd's."""
    model = keras.Sequential([keras.Input((64,)), layers.Dense(64), layers.Dense(1)])
    assert estimate(model).by_kind["workspace"] == 2 * 32 * MIB
    assert estimate(model, gpu="T4").by_kind["workspace"] == 2 * (2 * 4096 + 8 * 16) * 1024


# What is said of it.


def test_splits_name_layers_and_phases():
    model = classifier(metrics=["accuracy"])
    found = estimate(model, 64)
    assert sum(found.by_kind.values()) == found.peak_bytes == sum(row.bytes for row in found.by_layer)
    by_layer = {row.layer: row.bytes for row in found.by_layer}
    assert {"conv", "norm", "relu"} <= set(by_layer)
    assert by_layer["(input batch)"] >= 64 * SIZE * SIZE * 3 * 4
    assert all(found.by_phase.values())
    backward = {moment.layer for moment in found.timeline.moments if moment.phase == "backward"}
    assert {"conv", "norm", "relu", "head"} <= backward
    assert found.method == "traced"


def test_what_lies_between_layers_has_a_name_and_nested_models_are_opened():
    inner_inputs = keras.Input((SIZE, SIZE, 3))
    inner = keras.Model(inner_inputs, layers.Conv2D(32, 3, name="conv")(inner_inputs), name="inner")
    inputs = keras.Input((SIZE, SIZE, 3))
    x = inner(inputs)
    model = keras.Model(inputs, layers.Dense(1)(layers.Flatten()(x + keras.ops.tanh(x))))
    names = {row.layer for row in estimate(model, 64).by_layer}
    assert {"inner/conv", "tanh"} <= names


@pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
def test_precision(precision):
    found = estimate(classifier(), 64, recipe=Recipe(precision=precision))
    assert found.precision == precision
    assert found.by_phase["update"]


@pytest.mark.parametrize("optimizer", ["nadam", "adafactor", "muon"])
def test_optimizers_that_make_or_ask_for_values(optimizer):
    assert estimate(classifier(), optimizer=optimizer).by_kind["optimizer"] > 0


def test_masks_and_tensors_that_a_layer_brings_along():
    class Scaled(layers.Layer):
        def __init__(self):
            super().__init__()
            self.scales = keras.ops.ones((8,))
            self.supports_masking = True

        def call(self, x):
            return x * self.scales

    words = keras.Input((12,), dtype="int32")
    x = Scaled()(layers.Embedding(50, 8, mask_zero=True)(words))
    x = layers.LSTM(4, return_sequences=True)(x)
    model = keras.Model(words, layers.Dense(1)(layers.GlobalAveragePooling1D()(x)))
    assert estimate(model).peak_bytes


def test_a_scale_for_each_channel_takes_no_more_than_one_for_all():
    """Lists become tensors on the host, where PyTorch is asked for them on the card."""

    def scaled(scale):
        inputs = keras.Input((32, 32, 3))
        x = layers.Conv2D(4, 3)(layers.Rescaling(scale, offset=-1.0)(inputs))
        return keras.Model(inputs, layers.Dense(2)(layers.GlobalAveragePooling2D()(x)))

    one, each = (estimate(scaled(scale)).required_bytes for scale in (0.1, [0.1, 0.2, 0.3]))
    assert one <= each <= one + 4096


def test_what_cudnn_would_do_in_one_kernel_is_said():
    model = keras.Sequential([keras.Input((4, 8)), layers.LSTM(4, name="recurrent"), layers.Dense(1)])
    assert any("recurrent may run as one cuDNN kernel" in note for note in estimate(model).notes)


def test_nothing_recomputed_requires_what_keras_requires():
    model = convolutions_with_shortcuts()
    assert estimate(model, 64, recipe=Recipe(remat="none")).required_bytes == estimate(model, 64).required_bytes


def test_operations_between_layers_follow_another_precision():
    def residual():
        x = inputs = keras.Input((32, 32, 3))
        x = layers.Conv2D(8, 3, padding="same")(x)
        x = 2 * x + layers.Conv2D(8, 3, padding="same")(x)
        return keras.Model(inputs, layers.Dense(5)(layers.GlobalAveragePooling2D()(x)))

    rebuilt = estimate(residual(), 64, recipe=Recipe(precision="mixed_bfloat16"))
    keras.config.set_dtype_policy("mixed_bfloat16")
    assert rebuilt.peak_bytes == estimate(residual(), 64).peak_bytes


def test_another_precision_leaves_the_seeds_alone():
    keras.utils.set_random_seed(0)
    model, before = classifier(), random.getstate()
    estimate(model, recipe=Recipe(precision="mixed_bfloat16"))
    assert random.getstate() == before


@pytest.mark.parametrize("method", ["train_step", "compute_loss", "call"])
def test_a_method_of_its_own_that_another_precision_would_lose_is_refused(method):
    class Own(keras.Model):
        def __init__(self):
            inputs = keras.Input((8,))
            super().__init__(inputs, layers.Dense(2)(inputs))

    def as_keras_does(self, *arguments, **named):
        return getattr(super(Own, self), method)(*arguments, **named)

    setattr(Own, method, as_keras_does)
    with pytest.raises(ModelError, match="Own cannot be made of inputs and outputs"):
        estimate(Own(), recipe=Recipe(precision="mixed_bfloat16"))


def test_a_model_within_two_models_is_estimated():
    inputs = keras.Input((8,))
    shared = keras.Model(inputs, layers.Dense(8)(inputs * 2.0))
    one, other = (keras.Model(each, shared(each)) for each in (keras.Input((8,)), keras.Input((8,))))
    assert estimate(keras.Model(inputs, one(inputs) + other(inputs))).peak_bytes


def test_losses_that_layers_add_do_not_stay():
    class Adding(layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(x))
            return x

    inputs = keras.Input((8,))
    model = keras.Model(inputs, layers.Dense(2)(Adding()(inputs)))
    estimate(model)
    assert model.losses == []


def test_a_limit_above_what_the_card_has_is_noted():
    model = classifier()
    assert "T4 has 15.00 GiB, less than the limit of 40.00 GiB." in estimate(model, gpu="T4", limit="40GiB").notes
    assert not any("less than the limit" in note for note in estimate(model, gpu="T4", limit="14GiB").notes)


def test_predict_keeps_nothing_for_a_backward_pass():
    model = convolutions_with_shortcuts()
    training, predicting = estimate(model, 64), estimate(model, 64, training=False)
    assert predicting.by_kind["gradients"] == predicting.by_kind["optimizer"] == 0
    assert predicting.by_phase["backward"] is None
    assert predicting.peak_bytes < training.peak_bytes


def test_a_smaller_input_dtype_and_accumulation_take_less():
    model = classifier()
    whole = estimate(model, 64)
    assert estimate(model, 64, recipe=Recipe(input_dtype="uint8")).by_kind["input"] < whole.by_kind["input"]
    assert estimate(model, 64, recipe=Recipe(keras_accumulation=4)).peak_bytes < whole.peak_bytes


def test_more_is_required_than_the_peak_for_what_lies_in_pieces():
    found = estimate(convolutions_with_shortcuts(), 256)
    assert found.peak_bytes < found.required_bytes < 1.2 * found.peak_bytes


def test_the_same_is_found_twice():
    model = dense_with_shortcuts()
    first, second = estimate(model, 64), estimate(model, 64)
    assert first.peak_bytes == second.peak_bytes


# What is left of the model.


def test_a_trained_model_is_given_back_as_it_was_and_trains_on():
    model = classifier(metrics=["accuracy"])
    model.fit(images(), labels(), batch_size=BATCH, verbose=0)
    before, optimizer = state_of(model), model.optimizer
    values = [variable.value for variable in model.variables]
    gradients = [variable.value.grad for variable in model.trainable_variables]
    parameters = dict(model.named_parameters())
    estimate(model)
    assert model.optimizer is optimizer
    assert all(was is variable.value for was, variable in zip(values, model.variables, strict=True))
    assert all(was is v.value.grad for was, v in zip(gradients, model.trainable_variables, strict=True))
    assert all(was is now for was, now in zip(parameters.values(), model.parameters(), strict=True))
    assert all(np.array_equal(was, now) for was, now in zip(before, state_of(model), strict=True))
    assert not model.training
    model.fit(images(), labels(), batch_size=BATCH, verbose=0)
    assert int(optimizer.iterations) == 4


def test_modules_of_pytorch_in_a_model_are_followed_and_given_back():
    module = torch.nn.Linear(64, 1024)
    inputs = keras.Input((64,))
    x = layers.TorchModuleWrapper(module, output_shape=(None, 1024), name="wrapped")(inputs)
    model = keras.Model(inputs, layers.Dense(1)(x))
    weight = module.weight
    by_layer = {row.layer: row.bytes for row in estimate(model).by_layer}
    assert by_layer["wrapped"] >= 4 * 64 * 1024 * 4
    assert module.weight is weight
    assert weight.grad is None


def test_measuring_runs_real_steps_and_gives_the_model_back(monkeypatch):
    """On the CPU in place of a card, whose counters are the only thing that is made up."""
    counters = {
        "get_per_process_memory_fraction": lambda: 1.0,
        "set_per_process_memory_fraction": lambda fraction: None,
        "get_device_properties": lambda index: SimpleNamespace(total_memory=find_card("H200").memory_bytes),
        "memory_allocated": lambda: 1000,
        "max_memory_allocated": lambda: 100 * MIB + 1000,
    }
    for name, counter in counters.items():
        monkeypatch.setattr(torch.cuda, name, counter)
    for name in ("empty_cache", "reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(measured, "_DEVICE", "cpu")
    monkeypatch.setattr(trace, "check_card", lambda card: None)
    model = classifier(metrics=["accuracy"])
    model.fit(images(), labels(), batch_size=BATCH, verbose=0)
    before = state_of(model)
    found = estimate(model, measure=True)
    assert (found.method, found.peak_bytes, found.typical_error) == ("measured", 100 * MIB, 0.0)
    assert sum(found.by_kind.values()) == 100 * MIB
    assert any("of what was measured" in note for note in found.notes)
    assert all(np.array_equal(was, now) for was, now in zip(before, state_of(model), strict=True))
    model.fit(images(), labels(), batch_size=BATCH, verbose=0)


def test_a_model_without_values_stays_without():
    with keras.StatelessScope(initialize_variables=False):
        model = classifier()
    estimate(model)
    assert all(variable._value is None for variable in model.variables)
    assert not model.compiled


def test_seeds_and_settings_outside_the_model_stay_as_they_were():
    class Noisy(layers.Layer):
        def call(self, x):
            return x + keras.random.normal(x.shape)

    model = keras.Sequential([keras.Input((8,)), Noisy(), layers.Dense(1)])
    thresholds = gc.get_threshold()
    flash = torch.backends.cuda.can_use_flash_attention
    estimate(model)
    assert (gc.get_threshold(), gc.isenabled()) == (thresholds, True)
    assert torch.backends.cuda.can_use_flash_attention is flash
    assert type(keras.random.normal((2,))) is torch.Tensor


def test_models_with_a_step_and_optimizers_of_their_own():
    class Adversaries(keras.Model):
        def __init__(self):
            super().__init__()
            self.judge = keras.Sequential([keras.Input((16,)), layers.Dense(32), layers.Dense(1)])
            self.maker = keras.Sequential([keras.Input((8,)), layers.Dense(16)])
            self.loss_of_judge = keras.metrics.Mean(name="loss_of_judge")
            self.built = True

        def compile(self, *optimizers):
            super().compile(loss="mse")
            self.of_judge, self.of_maker = optimizers

        def get_build_config(self):
            return {"input_shape": (None, 16)}

        def call(self, x):
            return self.judge(x)

        def train_step(self, data):
            for network, optimizer in ((self.judge, self.of_judge), (self.maker, self.of_maker)):
                self.zero_grad()
                made = self.judge(self.maker(keras.random.normal((data[0].shape[0], 8))))
                loss = made.mean() - self.judge(data[0]).mean()
                loss.backward()
                with torch.no_grad():
                    gradients = [weight.value.grad for weight in network.trainable_weights]
                    optimizer.apply(gradients, network.trainable_weights)
            self.loss_of_judge.update_state(loss)
            return {"loss": self.loss_of_judge.result()}

    model = Adversaries()
    model.compile(keras.optimizers.Adam(), keras.optimizers.SGD())
    assert estimate(model).by_kind["optimizer"] > 0
    assert not model.of_judge.built
    x, y = np.zeros((8, 16), "float32"), np.zeros((8, 1), "float32")
    model.fit(x, y, verbose=0)
    estimate(model)
    model.fit(x, y, verbose=0)


@pytest.mark.parametrize("metric", ["AUC", "SensitivityAtSpecificity", "MeanIoU"])
def test_metrics_that_count_are_estimated_as_others_are(metric):
    named = {"AUC": {}, "SensitivityAtSpecificity": {"specificity": 0.5}, "MeanIoU": {"num_classes": 2}}[metric]
    found = []
    for metrics in ([], [getattr(keras.metrics, metric)(**named)]):
        model = keras.Sequential([keras.Input((64,)), layers.Dense(64, activation="sigmoid")])
        model.compile("adam", "binary_crossentropy", metrics=metrics)
        found.append(estimate(model, 64).peak_bytes)
    assert abs(found[1] - found[0]) < 2**20


# What is refused.


def test_what_cannot_be_traced_is_refused_with_a_reason():
    with pytest.raises(BackendError, match=r"torch\.compile"):
        estimate(classifier(), recipe=Recipe(jit=True))
    with pytest.raises(InputError, match="by AMD"):
        estimate(classifier(), gpu="MI300X")
    with pytest.raises(InputError, match="no NVIDIA GPU in this machine"):
        estimate(classifier(), measure=True)

    class Broken(layers.Layer):
        def call(self, x):
            raise RuntimeError("this layer is broken")

        def compute_output_shape(self, shape):
            return shape

    model = keras.Sequential([keras.Input((8,)), Broken(), layers.Dense(1)])
    with pytest.raises(ModelError, match="this layer is broken"):
        estimate(model)
