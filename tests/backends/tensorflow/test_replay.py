"""Replayed steps beside real ones on TensorFlow's limited CPU allocator."""

import gc
import weakref
from collections.abc import Sequence
from functools import cache

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from fitroom.backends.choose import current_backend
from fitroom.backends.tensorflow.trace.borrowed_variables import borrow_values
from fitroom.backends.tensorflow.trace.graph.estimate import step_program
from fitroom.backends.tensorflow.trace.graph.grappler import optimise_graph
from fitroom.backends.tensorflow.trace.graph.kernels import ScratchPlan
from fitroom.backends.tensorflow.trace.graph.output import Output
from fitroom.backends.tensorflow.trace.graph.program import Operation, program_of
from fitroom.backends.tensorflow.trace.graph.replay import RecordedProcess, ReplayedStep, Span, replay
from fitroom.backends.tensorflow.trace.graph.required import lost_bytes, required_bytes
from fitroom.backends.tensorflow.trace.graph.residents import residents_of
from fitroom.backends.tensorflow.trace.graph.values import Held
from fitroom.backends.tensorflow.trace.measure import borrow_zeros, measure_peak_bytes
from fitroom.backends.tensorflow.trace.micro_batches import trace_micro_batch_step
from fitroom.backends.tensorflow.trace.step import TensorFlowStep, training_step
from fitroom.batch import Batch
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.step import StepRequest
from fitroom.recipe import Recipe

BATCH = 512
FEATURES = 128
TOLERANCE = 0.25
"""The CPU runs operations in another order than a GPU, several at once, and its regions grow."""


class Peaks(keras.callbacks.Callback):
    """The allocator's bytes at the start of each step, and at most during it."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[int] = []
        self.peaks: list[int] = []

    def on_train_batch_begin(self, batch, logs=None):
        tf.config.experimental.reset_memory_stats("CPU:0")
        self.starts.append(tf.config.experimental.get_memory_info("CPU:0")["current"])

    def on_train_batch_end(self, batch, logs=None):
        self.peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])


def network(optimizer: str) -> keras.Model:
    hidden = [part for _ in range(4) for part in (layers.Dense(512, activation="relu"), layers.LayerNormalization())]
    model = keras.Sequential([keras.Input((FEATURES,)), *hidden, layers.Dense(10, activation="softmax")])
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    return model


@pytest.fixture(autouse=True)
def memory_of_its_own():
    """What earlier tests left behind is freed before one begins, and not while it measures."""
    current_backend().release()


def replayed(model: keras.Model) -> tuple[ReplayedStep, int]:
    """The step as it would run on the CPU, without scratch memory; and the bytes of variables."""
    request = StepRequest(batch_size=BATCH, card=find_card("T4"))
    with prepare_model(model, request, borrow_values) as ready:
        step = training_step(ready)
        residents = residents_of(step)
        program = program_of(optimise_graph(step, None))
        found = replay(program, residents, no_scratch, 2**40)
    return found, sum(variable.size_bytes for variable in step.variables)


def trained(model: keras.Model) -> Peaks:
    peaks = Peaks()
    x, y = np.zeros((BATCH, FEATURES), "float32"), np.zeros(BATCH, "int32")
    batches = tf.data.Dataset.from_tensors((x, y)).repeat(4)
    model.fit(batches, epochs=1, verbose=0, shuffle=False, callbacks=[peaks])
    return peaks


@cache
def replayed_and_trained(optimizer: str) -> tuple[ReplayedStep, int, Peaks]:
    model = network(optimizer)
    predicted, measured = replayed(model), trained(model)
    measured.set_model(None)  # which it would keep in memory
    return *predicted, measured


@pytest.mark.parametrize("optimizer", [pytest.param("sgd", marks=pytest.mark.slow), "adam"])
def test_a_step_takes_what_the_replay_says(optimizer):
    predicted, variable_bytes, measured = replayed_and_trained(optimizer)
    taken = max(measured.peaks[1:]) - measured.starts[-1]
    assert predicted.peak_bytes - variable_bytes == pytest.approx(taken, rel=TOLERANCE)


@pytest.mark.slow  # what the first step of a process takes depends on what ran before it
def test_slots_of_one_shape_get_memory_of_their_own_in_the_first_step():
    predicted, _, measured = replayed_and_trained("adam")
    slots = sum(span.held.size_bytes for span in predicted.spans if span.held.variable and span.held.source is not None)
    assert measured.starts[1] - measured.starts[0] == pytest.approx(slots, rel=0.4)


@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("adam", marks=pytest.mark.slow)])
def test_a_batch_in_parts_takes_what_the_replay_of_its_programs_says(optimizer):
    model = network(optimizer)
    request = StepRequest(batch_size=2 * BATCH, card=find_card("T4"), recipe=Recipe(micro_batch=BATCH))
    with prepare_model(model, request, borrow_values) as ready:
        step = trace_micro_batch_step(ready)
        predicted_bytes = max(map(peak_bytes_of, (step.micro_batch, step.update)))
        variable_bytes = sum(each.size_bytes for each in step.micro_batch.variables if each.kind != "gradients")
    stepper = current_backend().stepper(model, jit=None)
    batch = Batch(x=np.zeros((2 * BATCH, FEATURES), "float32"), y=np.zeros(2 * BATCH, "int32"))
    taken = []
    for _ in range(5):
        start = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        stepper.train(batch, BATCH)
        taken.append(tf.config.experimental.get_memory_info("CPU:0")["peak"] - start)
    assert predicted_bytes - variable_bytes == pytest.approx(np.median(taken[1:]), rel=TOLERANCE)


def peak_bytes_of(step: TensorFlowStep) -> int:
    residents = residents_of(step)
    program = step_program(step, residents, None)
    return replay(program, residents, no_scratch, 2**40).peak_bytes


def test_measuring_runs_real_steps_on_values_that_are_not_the_models():
    model = network("adam")
    trained(model)
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in model.variables]
    request = StepRequest(batch_size=BATCH, card=find_card("T4"))
    with prepare_model(model, request, borrow_zeros) as ready:
        measured_bytes = measure_peak_bytes(training_step(ready), jit=False, device="CPU:0")
        lent = [weakref.ref(variable.value.handle) for variable in ready.model.variables]
    gc.collect()
    assert not any(handle() for handle in lent)
    after = [keras.ops.convert_to_numpy(variable) for variable in model.variables]
    assert all(np.array_equal(was, now) for was, now in zip(before, after, strict=True))
    assert measured_bytes == pytest.approx(replayed(model)[0].peak_bytes, rel=TOLERANCE)


def test_what_is_required_holds_processes_whose_variables_lie_a_little_differently():
    request = StepRequest(batch_size=BATCH, card=find_card("T4"))
    with prepare_model(network("adam"), request, borrow_values) as ready:
        step = training_step(ready)
        residents = residents_of(step)
        program = program_of(optimise_graph(step, None))

    processes = [RecordedProcess(program, residents, no_scratch, seed=seed) for seed in range(5)]

    def peak_bytes(process: RecordedProcess, limit_bytes: int = 2**40) -> int:
        return process.replay(limit_bytes, num_steady=1, strewn=True).peak_bytes

    assert len(set(map(peak_bytes, processes[:4]))) == 4
    required = required_bytes(processes, processes[0].replay(2**40))
    assert all(peak_bytes(process, required) <= required for process in processes)


def test_a_record_of_two_steps_replays_like_one_of_all_steps(monkeypatch):
    request = StepRequest(batch_size=BATCH, card=find_card("T4"))
    with prepare_model(network("adam"), request, borrow_values) as ready:
        step = training_step(ready)
        residents = residents_of(step)
        program = program_of(optimise_graph(step, None))
    short = RecordedProcess(program, residents, no_scratch).replay(2**40)
    monkeypatch.setattr("fitroom.backends.tensorflow.trace.graph.replay._state", lambda kernels: object())
    whole = RecordedProcess(program, residents, no_scratch).replay(2**40)
    assert shown(short) == shown(whole)


def shown(step: ReplayedStep) -> list[tuple[int, int, int | None, int, int]]:
    return [(each.held.size_bytes, each.held.address, each.held.source, each.first, each.last) for each in step.spans]


def test_what_small_chunks_waste_at_once_may_be_wasted_once_more():
    def span(asked_bytes: int, size_bytes: int, first: int, last: int) -> Span:
        return Span(held=Held(0, asked_bytes, size_bytes, None, False, first), first=first, last=last)

    spans = (span(1000, 1900, 0, 3), span(1000, 1900, 4, 9), span(500, 600, 4, 4), span(2**21, 2**22, 0, 9))
    assert lost_bytes(ReplayedStep(spans=spans, moments=(), peak_bytes=0)) == 900 + 100
    assert lost_bytes(ReplayedStep(spans=(), moments=(), peak_bytes=0)) == 0


def no_scratch(operation: Operation, inputs: Sequence[Output]) -> ScratchPlan:
    return ScratchPlan()
