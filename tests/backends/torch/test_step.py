"""What is PyTorch's own about training steps."""

import contextlib
import gc
import weakref
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
from fitroom.backends.torch.train import updates
from fitroom.backends.torch.train.stepper import TorchStepper
from fitroom.batch import Batch
from fitroom.cards.catalogue import find_card
from fitroom.errors import ModelError, StateLostError
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest
from sample_models import convolutions_with_shortcuts, dense_with_shortcuts
from step_cases import FIRST, compiled, dense, dense_batch, state_of
from step_comparison import OwnStep, assert_close, assert_identical, trained_by_keras

MIB = 1024**2


def out_of_memory(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (planted)")


def trained_batches(model, micro_batch=7, steps=2):
    stepper = TorchStepper(model)
    for _ in range(steps):
        stepper.train(dense_batch(FIRST), micro_batch)
    return state_of(model)


# What a step leaves behind.


@pytest.mark.parametrize("micro_batch", [FIRST, 7])
def test_no_gradient_outlives_its_step(micro_batch):
    model = dense()
    trained_batches(model, micro_batch)
    assert all(weight._value.grad is None for weight in model.trainable_weights)


def test_nothing_of_a_part_is_there_when_the_next_begins(never_collected):
    """Keras holds the inputs of an Add in cycles, which Python may leave for long."""
    model = compiled(
        lambda x: layers.Dense(3)(layers.Add(name="add")([layers.Dense(8)(x), layers.Dense(8)(x)])), loss="mse"
    )
    left = []
    inputs = []

    def called(module, arguments):
        left.append(sum(reference() is not None for reference in inputs))
        inputs.extend(map(weakref.ref, arguments[0]))

    stepper = TorchStepper(model)
    stepper.prepare(dense_batch(FIRST))
    handle = model.get_layer("add").register_forward_pre_hook(called)
    stepper.train(dense_batch(FIRST), 7)
    handle.remove()
    assert len(left) > 2
    assert not any(left)


class Interrupted(layers.Layer):
    """Raises KeyboardInterrupt in its forward pass (planted), once it is armed, at the second part."""

    passes_left = None

    def call(self, x):
        if self.passes_left is not None:
            self.passes_left -= 1
            if self.passes_left == 0:
                raise KeyboardInterrupt
        return x * 1.0


def test_an_interrupted_step_is_taken_back_and_holds_nothing():
    model = compiled(lambda x: layers.Dense(3)(Interrupted(name="between")(layers.Dense(8)(x))), loss="mse")
    stepper = TorchStepper(model)
    stepper.train(dense_batch(FIRST), 7)
    before = state_of(model)
    layer = model.get_layer("between")
    layer.passes_left = 2
    tensors = []
    handle = layer.register_forward_pre_hook(lambda module, inputs: tensors.append(weakref.ref(inputs[0])))
    with pytest.raises(KeyboardInterrupt):
        stepper.train(dense_batch(FIRST), 7)
    handle.remove()
    layer.passes_left = None
    gc.collect()
    assert_identical(state_of(model), before)
    assert len(tensors) == 2
    assert [reference() for reference in tensors] == [None, None]
    assert all(weight._value.grad is None for weight in model.trainable_weights)


# Copies before the update.


def test_without_room_for_copies_the_update_is_that_of_keras(monkeypatch):
    """Planted: out of memory whenever weights are to be copied."""
    expected = trained_batches(dense())
    model = dense()
    monkeypatch.setattr(updates, "Snapshot", out_of_memory)
    assert_identical(trained_batches(model), expected)


class FullOnce(keras.optimizers.SGD):
    """Out of memory (planted) in the middle of one update, with weights changed and slots not."""

    fails_left = 0

    def apply(self, grads, trainable_variables=None):
        if self.fails_left:
            self.fails_left -= 1
            trainable_variables[0].assign(trainable_variables[0] * 2)
            out_of_memory()
        super().apply(grads, trainable_variables)


@pytest.mark.parametrize("micro_batch", [FIRST, 7])
def test_an_update_that_fails_for_the_room_of_the_copies_is_made_without_them(micro_batch):
    expected = trained_batches(dense(optimizer=FullOnce(0.1)), micro_batch)
    model = dense(optimizer=FullOnce(0.1))
    model.optimizer.fails_left = 1
    assert_identical(trained_batches(model, micro_batch), expected)


@pytest.mark.parametrize("micro_batch", [FIRST, 7])
def test_an_update_that_cannot_be_taken_back_says_so(micro_batch):
    model = dense(optimizer=FullOnce(0.1))
    model.optimizer.fails_left = 2
    with pytest.raises(StateLostError, match="half changed") as raised:
        trained_batches(model, micro_batch)
    assert "checkpoint" in raised.value.hint
    assert isinstance(raised.value.__cause__, torch.OutOfMemoryError)


def test_an_update_that_changed_nothing_is_plainly_out_of_memory(monkeypatch):
    model = dense()
    stepper = TorchStepper(model)
    stepper.train(dense_batch(FIRST), 7)
    before = state_of(model)
    monkeypatch.setattr(torch, "_foreach_mul_", out_of_memory)  # the first thing that SGD does
    monkeypatch.setattr(updates, "Snapshot", out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        stepper.train(dense_batch(FIRST), FIRST)
    assert_identical(state_of(model), before)


# Models that are PyTorch's, or bring their own step.


def test_modules_of_pytorch_are_taken_back_too():
    keras.utils.set_random_seed(5)
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 4))
    wrapped = layers.TorchModuleWrapper(module, name="wrapped", output_shape=(None, 4))
    model = compiled(lambda x: layers.Dense(3)(Interrupted(name="between")(wrapped(x))), loss="mse")
    norm = module[0]
    stepper = TorchStepper(model)
    stepper.train(dense_batch(FIRST), 7)
    assert int(norm.num_batches_tracked) == 1
    means = [part.x.mean(axis=0) * part.size / FIRST for part in dense_batch(FIRST).micro_batches(7)]
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.1 * sum(means), rtol=1e-4, atol=1e-7)
    before = [buffer.clone() for buffer in module.buffers()] + [torch.get_rng_state()]
    model.get_layer("between").passes_left = 2
    with pytest.raises(KeyboardInterrupt):
        stepper.train(dense_batch(FIRST), 7)
    after = [*module.buffers(), torch.get_rng_state()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


class TwoOptimizers(keras.Model):
    """Trains its layers in turn, as adversarial networks do; breaks off (planted) between the two if armed."""

    armed = False

    def train_step(self, data):
        x, y = data[:2]
        for optimizer, layer in ((self.first_optimizer, self.layers[1]), (self.optimizer, self.layers[2])):
            loss = self.compute_loss(x, y, self(x, training=True))
            self.zero_grad()
            loss.backward()
            with torch.no_grad():
                optimizer.apply([weight.value.grad for weight in layer.trainable_weights], layer.trainable_weights)
            if self.armed:
                raise ValueError("planted")
        return {"loss": loss.detach()}


def with_two_optimizers(**arguments):
    model = dense(kind=TwoOptimizers, **arguments)
    model.first_optimizer = keras.optimizers.Adam(0.01)
    return model


def test_out_of_memory_in_the_second_of_two_updates_takes_both_back():
    model = with_two_optimizers(optimizer=FullOnce(0.1))
    model.optimizer.fails_left = 1
    stepper = TorchStepper(model)
    before = state_of(model)
    with pytest.raises(torch.OutOfMemoryError):
        stepper.train(dense_batch(FIRST), FIRST)
    assert_identical({name: state_of(model)[name] for name in before}, before)
    assert int(model.first_optimizer.iterations) == 0


def test_a_step_with_two_optimizers_is_taken_back_whole():
    make = with_two_optimizers
    batch, model, twin = dense_batch(FIRST), make(), make()
    stepper = TorchStepper(model)
    model.armed = True
    before = state_of(model)
    with pytest.raises(ValueError, match="planted"):
        stepper.train(batch, FIRST)
    assert_identical({name: state_of(model)[name] for name in before}, before)
    assert [int(optimizer.iterations) for optimizer in (model.optimizer, model.first_optimizer)] == [0, 0]
    model.armed = False
    stepper.train(batch, FIRST)
    assert_close(state_of(model), trained_by_keras(twin, batch)[1])


class ChangesFrozen(OwnStep):
    """Moves a frozen layer by itself, as averaging a teacher does, and breaks off (planted)."""

    def train_step(self, data):
        self.get_layer("first").kernel.assign_add(self.get_layer("first").kernel)
        raise ValueError("planted")


def test_changes_that_no_copy_covers_are_not_passed_over():
    model = dense(kind=ChangesFrozen)
    model.get_layer("first").trainable = False
    with pytest.raises(StateLostError, match="planted"):
        TorchStepper(model).train(dense_batch(FIRST), FIRST)


def test_modules_are_in_the_mode_of_fit_and_of_evaluate():
    model = dense()
    stepper = TorchStepper(model)
    stepper.train(dense_batch(FIRST), 7)
    assert model.training
    stepper.test(dense_batch(FIRST), 7)
    assert not model.training


# Its memory, as predicted.


def real_peak(model, batch_size, micro_batch):
    """The most that the second step had on PyTorch's CPU allocator, beyond what it found there."""
    x = np.zeros((batch_size, *model.input_shape[1:]), "float32")
    batch, stepper = Batch(x=x, y=np.zeros(batch_size, "int32")), TorchStepper(model)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        for _ in range(2):
            with torch.profiler.record_function("a step"):
                logs = stepper.train(batch, micro_batch)  # noqa: F841 - held, as `fit` holds it
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    last_step = max(event.start_ns() for event in events if event.name() == "a step")
    sizes = [event.nbytes() for event in events if event.name() == "[memory]" and event.start_ns() >= last_step]
    return max(accumulate(sizes))


def traced_peak(model, batch_size, micro_batch):
    """The same as traced for the CPU, without the batch, which stays in NumPy's memory there."""
    recipe = Recipe(micro_batch=micro_batch)
    request = StepRequest(batch_size=batch_size, card=find_card("T4"), recipe=recipe)
    with prepare_model(model, request, borrow_values=lambda variables: contextlib.nullcontext()) as ready:
        steps = training_steps(ready, cpu())
    events = [(steps.log.buffers[max(event, ~event)], event >= 0) for event in steps.log.events]
    start = next(place for place, (buffer, _) in enumerate(events) if buffer.first >= steps.last_step)
    sizes = [(buffer, buffer.size_bytes if made else -buffer.size_bytes) for buffer, made in events[start:]]
    return max(accumulate(size for buffer, size in sizes if buffer.kind != "input"))


@pytest.mark.parametrize(
    ("make", "batch_size", "micro_batch"),
    [(dense_with_shortcuts, 512, 171), (dense_with_shortcuts, 12, 4), (convolutions_with_shortcuts, 24, 8)],
    ids=["dense", "dense, mostly weights", "convolutions"],
)
def test_the_peak_of_a_real_step_in_micro_batches_is_found(make, batch_size, micro_batch, never_collected):
    model = make()
    model.compile("adam", "sparse_categorical_crossentropy")
    real = real_peak(model, batch_size, micro_batch)
    assert traced_peak(model, batch_size, micro_batch) == pytest.approx(real, rel=0.02)


def estimate(model, micro_batch, batch_size=64):
    return fitroom.estimate(model, batch_size, gpu="H200", recipe=Recipe(micro_batch=micro_batch))


def test_smaller_micro_batches_take_less_memory():
    model = convolutions_with_shortcuts()
    model.compile("adam", "sparse_categorical_crossentropy")
    found = [estimate(model, micro_batch, 16) for micro_batch in (None, 8, 4)]
    assert found[0].peak_bytes > found[1].peak_bytes > found[2].peak_bytes
    assert found[0].required_bytes > found[1].required_bytes > found[2].required_bytes


def test_gradients_add_up_in_one_copy_and_belong_to_their_layers():
    model = keras.Sequential([keras.Input((1024,)), layers.Dense(1024, name="wide"), layers.Dense(1, name="head")])
    model.compile("adam", "mse")
    timeline = estimate(model, 16).timeline
    gradients = timeline.usage_bytes_of("gradients")
    assert gradients[0] < MIB  # none is left of the step before
    # Between two parts: the weight's gradient, once.
    forward = [n for n, moment in enumerate(timeline.moments) if moment.phase == "forward" and moment.layer == "head"]
    assert 4 * MIB <= gradients[forward[-1]] < 6 * MIB
    assert {b.layer for b in timeline.buffers if b.kind == "gradients" and b.size_bytes >= 4 * MIB} == {"wide"}


def test_weights_and_slots_are_copied_for_the_update():
    model = keras.Sequential([keras.Input((1024,)), layers.Dense(1024), layers.Dense(1)])
    model.compile("adam", "mse")
    whole, cut = estimate(model, None), estimate(model, 16)
    # Less what the structures of a whole batch still hold at its update, and those of parts do not.
    assert cut.by_phase["update"] - whole.by_phase["update"] == pytest.approx(12 * MIB, rel=0.2)


def test_masks_and_mixed_precision_are_traced_as_well():
    inputs = keras.Input((5,), dtype="int32")
    x = layers.Dropout(0.2)(layers.Embedding(9, 4, mask_zero=True)(inputs))
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(layers.Dense(512)(x)))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    recipes = [Recipe(micro_batch=m, precision="mixed_float16") for m in (512, 256)]
    found = [fitroom.estimate(model, 1024, gpu="H200", recipe=recipe) for recipe in recipes]
    assert found[0].peak_bytes > found[1].peak_bytes


def test_estimating_a_cut_leaves_the_model_as_it_was():
    model = dense()
    trained_batches(model)
    before = state_of(model)
    estimate(model, 16)
    assert_identical(state_of(model), before)
    trained_batches(model)


def test_a_model_that_cannot_be_cut_has_no_estimate_for_it():
    with pytest.raises(ModelError, match="train_step"):
        estimate(dense(kind=OwnStep), 16)
