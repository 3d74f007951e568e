"""Segments computed again on PyTorch: what they leave alone, and the memory they take, real and predicted."""

import contextlib
from itertools import accumulate

import keras
import numpy as np
import pytest
import torch
from keras import layers

import fitroom
from fitroom import Recipe
from fitroom.backends.torch.trace.platform import cpu
from fitroom.backends.torch.trace.step import training_steps
from fitroom.backends.torch.train.stepper import TorchStepper
from fitroom.batch import Batch
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest

NUM_BLOCKS = 4
IN_BLOCKS = fitroom.Remat(segments=[(f"conv{number}", f"add{number}") for number in range(NUM_BLOCKS)])


def residual(**arguments) -> keras.Model:
    keras.utils.set_random_seed(5)
    inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(8, 3, padding="same", name="stem")(inputs)
    for number in range(NUM_BLOCKS):
        y = layers.Conv2D(8, 3, padding="same", use_bias=False, name=f"conv{number}")(x)
        y = layers.BatchNormalization(name=f"norm{number}")(y)
        y = layers.Dropout(0.2, name=f"drop{number}")(layers.Activation("relu", name=f"relu{number}")(y))
        x = layers.Add(name=f"add{number}")([x, y])
    x = layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, layers.Dense(10, activation="softmax", dtype="float32")(x))
    model.compile("adam", "sparse_categorical_crossentropy", **arguments)
    return model


def batch_of(size: int) -> Batch:
    return Batch(x=np.zeros((size, 32, 32, 3), "float32"), y=np.zeros(size, "int32"))


def real_peak(model, batch_size, micro_batch, remat):
    """The most that the third step had on PyTorch's CPU allocator, beyond what it found there."""
    stepper, batch = TorchStepper(model, remat=remat), batch_of(batch_size)
    for _ in range(2):
        logs = stepper.train(batch, micro_batch)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        logs = stepper.train(batch, micro_batch)  # noqa: F841 - held, as `fit` holds it
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in events if event.name() == "[memory]"))


def traced_peak(model, batch_size, micro_batch, remat):
    """The same as traced for the CPU, without the batch, which stays in NumPy's memory there."""
    recipe = Recipe(micro_batch=micro_batch, remat=remat)
    request = StepRequest(batch_size=batch_size, card=find_card("T4"), recipe=recipe)
    with prepare_model(model, request, borrow_values=lambda variables: contextlib.nullcontext()) as ready:
        steps = training_steps(ready, cpu())
    events = [(steps.log.buffers[max(event, ~event)], event >= 0) for event in steps.log.events]
    start = next(place for place, (buffer, _) in enumerate(events) if buffer.first >= steps.last_step)
    sizes = [(buffer, buffer.size_bytes if made else -buffer.size_bytes) for buffer, made in events[start:]]
    return max(accumulate(size for buffer, size in sizes if buffer.kind != "input"))


def test_the_peak_falls(never_collected):
    assert real_peak(residual(), 16, 16, IN_BLOCKS) < 0.5 * real_peak(residual(), 16, 16, None)


@pytest.mark.parametrize("micro_batch", [16, 8])
def test_the_peak_is_the_one_that_tracing_finds(micro_batch, never_collected):
    real = real_peak(residual(), 16, micro_batch, IN_BLOCKS)
    assert traced_peak(residual(), 16, micro_batch, IN_BLOCKS) == pytest.approx(real, rel=0.02)


class Normalised(torch.nn.Module):
    """A module of PyTorch, with statistics of its own and dropout."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.nn.functional.dropout(self.norm(self.conv(x.permute(0, 3, 1, 2))), 0.5)


def with_a_module() -> keras.Model:
    keras.utils.set_random_seed(5)
    inputs = keras.Input((8, 8, 3))
    x = layers.TorchModuleWrapper(Normalised(), name="module", output_shape=(None, 4, 6, 6))(inputs)
    x = layers.Flatten(name="flat")(layers.ReLU(name="relu")(x))
    model = keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def test_modules_of_pytorch_change_once_and_draw_the_same():
    states = []
    for remat in (None, fitroom.Remat(segments=[("module", "flat")])):
        model = with_a_module()
        stepper = TorchStepper(model, remat=remat)
        random = np.random.default_rng(1)
        for _ in range(2):
            stepper.train(Batch(x=random.normal(size=(8, 8, 8, 3)).astype("float32"), y=np.arange(8)), 8)
        states.append(
            [*model.get_weights(), *(buffer.numpy() for buffer in model.get_layer("module").module.buffers())]
        )
    for found, expected in zip(*states, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
