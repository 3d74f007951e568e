"""Segments computed again on TensorFlow: jitted training, and the memory they take, real and predicted."""

from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import fitroom
from fitroom import Recipe
from fitroom.backends.tensorflow.trace.borrowed_variables import borrow_values
from fitroom.backends.tensorflow.trace.graph.estimate import step_program
from fitroom.backends.tensorflow.trace.graph.kernels import ScratchPlan
from fitroom.backends.tensorflow.trace.graph.replay import replay
from fitroom.backends.tensorflow.trace.graph.residents import residents_of
from fitroom.backends.tensorflow.trace.micro_batches import trace_micro_batch_step
from fitroom.backends.tensorflow.trace.step import training_step
from fitroom.backends.tensorflow.train.stepper import TensorFlowStepper
from fitroom.batch import Batch
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest
from remat_cases import CASES
from remat_comparison import assert_close, in_threes
from step_cases import state_of

NUM_BLOCKS = 5
IN_BLOCKS = fitroom.Remat(segments=[(f"wide{number}", f"norm{number}") for number in range(NUM_BLOCKS)])
SAMPLES = 2048
TOLERANCE = 0.25
"""The CPU runs operations in another order than a GPU, several at once, and its regions grow."""


def network() -> keras.Model:
    """Blocks that each hand on little, and keep five times as much for the backward pass. Narrow: steps really run."""
    keras.utils.set_random_seed(5)
    inputs = keras.Input((64,))
    x = inputs
    for number in range(NUM_BLOCKS):
        x = layers.Dense(256, activation="gelu", name=f"wide{number}")(x)
        x = layers.Dropout(0.1, name=f"drop{number}")(x)
        x = layers.LayerNormalization(name=f"norm{number}")(
            layers.Dense(64, activation="tanh", name=f"slim{number}")(x)
        )
    model = keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def real_peak(remat, micro_batch):
    """The most that a steady step had on TensorFlow's CPU allocator, beyond what it found there."""
    stepper = TensorFlowStepper(network(), jit=False, remat=remat)
    batch = Batch(x=np.zeros((SAMPLES, 64), "float32"), y=np.zeros(SAMPLES, "int32"))
    taken = []
    for _ in range(4):
        start = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        stepper.train(batch, micro_batch)
        taken.append(tf.config.experimental.get_memory_info("CPU:0")["peak"] - start)
    return np.median(taken[1:])


def replayed_peak(remat, micro_batch):
    """The same as replayed for the CPU, without scratch memory."""
    recipe = Recipe(micro_batch=micro_batch, remat=remat)
    request = StepRequest(batch_size=SAMPLES, card=find_card("T4"), recipe=recipe)
    with prepare_model(network(), request, borrow_values) as ready:
        step = training_step(ready) if micro_batch == SAMPLES else trace_micro_batch_step(ready).micro_batch
        residents = residents_of(step)
        program = step_program(step, residents, None)
        found = replay(program, residents, lambda operation, inputs: ScratchPlan(), 2**40)
    return found.peak_bytes - sum(each.size_bytes for each in step.variables if each.kind != "gradients")


@pytest.mark.parametrize("micro_batch", [SAMPLES, pytest.param(SAMPLES // 2, marks=pytest.mark.slow)])
def test_the_peak_falls_and_is_the_one_that_the_replay_finds(micro_batch):
    real = real_peak(IN_BLOCKS, micro_batch)
    assert real < 0.5 * real_peak(None, micro_batch)
    assert replayed_peak(IN_BLOCKS, micro_batch) == pytest.approx(real, rel=TOLERANCE)


def test_jitted_updates_are_those_of_plain_jitted_training():
    case = CASES["residual, dropout, regularizer"]
    expected = jitted_updates(case.make(), case.data(), None)
    model = case.make()
    assert_close(jitted_updates(model, case.data(), in_threes(model)), expected, case)


def jitted_updates(model, batch, remat):
    stepper = TensorFlowStepper(model, jit=True, remat=remat)
    logs = [{name: float(value) for name, value in stepper.train(batch, batch.size).items()} for _ in range(2)]
    return logs, state_of(model)


@cache
def estimated(remat, *, jit):
    return fitroom.estimate(network(), 4 * SAMPLES, gpu="H200", recipe=Recipe(jit=jit, remat=remat))


@pytest.mark.parametrize("jit", [False, True])
def test_estimates_for_a_card_see_what_is_computed_again(jit):
    again, plain = estimated(IN_BLOCKS, jit=jit), estimated(None, jit=jit)
    assert again.by_kind["activations"] < 0.5 * plain.by_kind["activations"]
    # Weights and the scratch memory of matrix products stay; how much else there is depends on the compiler.
    assert again.peak_bytes < 0.7 * plain.peak_bytes
    if jit:  # at the peak a block has been computed again, and its backward pass has just begun
        assert again.by_kind["gradients"] < again.by_kind["activations"]


def test_what_is_computed_again_are_activations_of_its_layers_in_the_backward_pass():
    timeline = estimated(IN_BLOCKS, jit=False).timeline
    again = {at: moment for at, moment in enumerate(timeline.moments) if moment.name.startswith("recomputed")}
    assert {moment.phase for moment in again.values()} == {"backward"}
    assert {f"wide{number}" for number in range(NUM_BLOCKS)} <= {moment.layer for moment in again.values()}
    made = {buffer.kind for buffer in timeline.buffers if buffer.first in again}
    assert made <= {"activations", "workspace", "other"}
