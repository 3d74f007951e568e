"""The order of a step's operations, beside that of steps that ran."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.python.eager import context  # the graphs of functions that ran have no public name

from fitroom.backends.tensorflow.trace.borrowed_variables import borrow_values
from fitroom.backends.tensorflow.trace.graph.copies import with_copies
from fitroom.backends.tensorflow.trace.graph.executor import Executor
from fitroom.backends.tensorflow.trace.graph.grappler import optimise_graph
from fitroom.backends.tensorflow.trace.graph.kernels import Kernels, ScratchPlan
from fitroom.backends.tensorflow.trace.graph.memory_rules import RECEIVE
from fitroom.backends.tensorflow.trace.graph.program import Program, program_of
from fitroom.backends.tensorflow.trace.graph.residents import place_residents, residents_of
from fitroom.backends.tensorflow.trace.graph.values import Holdings
from fitroom.backends.tensorflow.trace.step import TensorFlowStep, training_step
from fitroom.cards.catalogue import find_card
from fitroom.keras_model.prepared import prepare_model
from fitroom.memory.allocators.best_fit import BestFitAllocator
from fitroom.memory.step import StepRequest

BATCH, FEATURES, STEPS = 8, 16, 10


def dense_net(optimizer: str) -> keras.Model:
    hidden = [layers.Dense(32, activation="relu", name=f"hidden{number}") for number in range(4)]
    head = layers.Dense(4, activation="softmax", name="head")
    model = keras.Sequential([keras.Input((FEATURES,)), *hidden, head], name="net")
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    return model


def recurrent_net() -> keras.Model:
    """Its loop is Keras's own, and has a gradient to hand on."""
    before, loop = layers.Dense(FEATURES, name="before"), layers.LSTM(24, use_cudnn=False, name="loop")
    head = layers.Dense(4, activation="softmax", name="head")
    model = keras.Sequential([keras.Input((STEPS, FEATURES)), before, loop, head], name="net")
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    return model


def graph_that_runs(model: keras.Model) -> Any:
    """The graph of the step as TensorFlow runs it here, from a run."""
    x = np.zeros((BATCH, *model.input_shape[1:]), "float32")
    context.context().enable_run_metadata()
    try:
        model.fit(x, np.zeros(BATCH, "int32"), batch_size=BATCH, verbose=0)
        functions = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_run_metadata()
    graphs = [function.post_optimization_graph for function in functions]
    return max(graphs, key=lambda graph: len(graph.node))


@contextmanager
def traced(model: keras.Model) -> Iterator[TensorFlowStep]:
    with prepare_model(model, StepRequest(batch_size=BATCH, card=find_card("T4")), borrow_values) as ready:
        yield training_step(ready)


def our_graph(model: keras.Model) -> Any:
    with traced(model) as step:
        return optimise_graph(step, None)


def plain(name: str) -> str:
    """The name without the call that it was inlined for, and without the number of the optimizer."""
    return re.sub(r"^(adam|sgd)[_\d]*/", r"\1/", name.replace("StatefulPartitionedCall/", ""))


def consumers(graph_def: Any) -> dict[str, list[str]]:
    """Who waits for what the operations of the backward pass make, in the order of the graph."""
    found: dict[str, list[str]] = {}
    for node in graph_def.node:
        for given in node.input:
            if not given.startswith("^") and "gradient" in given:
                found.setdefault(plain(given), []).append(plain(node.name))
    return found


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_operations_that_wait_for_the_same_tensor_come_in_the_order_in_which_they_run(optimizer):
    ours, real = (consumers(graph(dense_net(optimizer))) for graph in (our_graph, graph_that_runs))
    assert ours == real
    assert any(len(waiting) > 2 for waiting in ours.values())


def waits_for(graph_def: Any, ending: str) -> set[str]:
    """The operations of its loop that a node waits for without needing what they make."""
    nodes = {node.name: node for node in graph_def.node}
    (found,) = [node for name, node in nodes.items() if name.endswith(ending) and "gradient" not in name]
    waiting = {each[1:] for each in found.input if each.startswith("^")}
    through = [nodes[name] for name in waiting if nodes[name].op == "NoOp"]
    waiting |= {each[1:] for node in through for each in node.input}
    return {nodes[name].op for name in waiting} - {"NoOp"}


def test_the_condition_of_a_loop_waits_for_its_counter_alone():
    ours, real = (waits_for(graph(recurrent_net()), "while/Less/y") for graph in (our_graph, graph_that_runs))
    assert ours == real == {"Merge"}


@cache
def loop_program() -> tuple[Program, Any]:
    with traced(recurrent_net()) as step:
        return program_of(optimise_graph(step, find_card("T4"))), residents_of(step)


def test_whole_numbers_that_a_loop_keeps_are_copied_to_the_card():
    program = with_copies(loop_program()[0])
    copied = {each.index for each in program.operations if each.op == RECEIVE}
    pushing = [each for each in program.operations if each.op == "TensorListPushBack"]
    kept = [each for each in pushing if program.operations[each.inputs[1][0]].outputs[0].dtype == tf.int32]
    assert kept
    assert all(each.inputs[1][0] in copied for each in kept)


def test_what_a_loop_takes_is_given_back_when_the_step_is_done():
    program, residents = loop_program()
    holdings = Holdings(BestFitAllocator(limit_bytes=2**40))
    kernels = Kernels(holdings, lambda operation, inputs: ScratchPlan(), place_residents(residents, holdings))
    executor = Executor(with_copies(program), kernels)
    in_use = []
    for _ in range(3):
        executor.run_step(lambda operation: None)
        in_use.append(len(holdings.live))
    assert in_use[1] == in_use[2]
    rows = [held for held, _ in holdings.gone if held.asked_bytes == BATCH * FEATURES * 4]
    assert len(rows) >= 3 * STEPS, "each row of the input is a copy"
