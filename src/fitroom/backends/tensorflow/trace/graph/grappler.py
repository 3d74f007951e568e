"""The graph of a step as TensorFlow would run it on the card: inlined, lowered and rewritten by Grappler."""

from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.grappler import tf_optimizer  # no public name leads to Grappler

from fitroom.backends.quiet import hold_stderr
from fitroom.backends.tensorflow.trace.graph.cluster import CPU, GPU, virtual_cluster
from fitroom.backends.tensorflow.trace.graph.strictness import without_strictness
from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep
from fitroom.cards.catalogue import Card

_CALL = "StatefulPartitionedCall"
_END = "end_of_step"
_OUTPUT = "output_{}_of_step"


def optimised_graph(step: TensorFlowStep, card: Card | None) -> Any:
    """The step's `GraphDef` after Grappler, every node on the card; or on the CPU, where no card is given.

    Grappler is given what Keras gives it: a graph that calls the step as a function. The order in which it leaves the
    operations, and so the order in which they run, comes of that.
    """
    meta_graph = meta_graph_pb2.MetaGraphDef()
    kept = _call_step(meta_graph.graph_def, step)
    for node in meta_graph.graph_def.node:
        node.device = CPU if card is None else GPU
    meta_graph.collection_def["train_op"].node_list.value.extend(kept)
    configuration = config_pb2.ConfigProto()
    rewriting = configuration.graph_options.rewrite_options
    rewriting.min_graph_nodes = -1
    with hold_stderr():  # for a card, a TensorFlow without one misses the kernel of every operation, and says so
        optimised = tf_optimizer.OptimizeGraph(
            configuration, meta_graph, verbose=False, graph_id=b"step", cluster=virtual_cluster(card)
        )
    return without_strictness(optimised, _CALL)


def names_of_outputs(step: TensorFlowStep) -> frozenset[str]:
    """The operations of the optimised graph that return the step's results."""
    return frozenset(_OUTPUT.format(place) for place in range(len(step.concrete.graph.outputs)))


def _call_step(graph_def: Any, step: TensorFlowStep) -> list[str]:
    """Add the step's inputs, a call of it and its outputs; the names of those to keep."""
    graph, function = step.concrete.graph, step.concrete.function_def
    graph_def.CopyFrom(tf.Graph().as_graph_def())
    graph_def.library.CopyFrom(graph.as_graph_def().library)
    if function.signature.name not in {each.signature.name for each in graph_def.library.function}:
        graph_def.library.function.add().CopyFrom(function)
    captured = step.captures()
    for tensor in graph.inputs:
        _add_input(graph_def, tensor, captured.get(tensor.op.name))
    call = graph_def.node.add(name=_CALL, op=_CALL, input=[tensor.op.name for tensor in graph.inputs])
    call.attr["f"].func.name = function.signature.name
    call.attr["Tin"].list.type.extend(tensor.dtype.as_datatype_enum for tensor in graph.inputs)
    call.attr["Tout"].list.type.extend(tensor.dtype.as_datatype_enum for tensor in graph.outputs)
    graph_def.node.add(name=_END, op="NoOp", input=[f"^{_CALL}"])
    kept = [_END]
    for place, tensor in enumerate(graph.outputs):
        output = graph_def.node.add(name=_OUTPUT.format(place), op="Identity", input=[f"{_CALL}:{place}"])
        output.attr["T"].type = tensor.dtype.as_datatype_enum
        kept.append(output.name)
    return kept


def _add_input(graph_def: Any, tensor: Any, variable: StepVariable | None) -> None:
    """A placeholder, or for a variable a handle that tells its dtype and shape."""
    node = graph_def.node.add(name=tensor.op.name, op="Placeholder" if variable is None else "VarHandleOp")
    dtype, shape = (tensor.dtype, tensor.shape) if variable is None else (variable.dtype, variable.shape)
    node.attr["dtype"].type = tf.as_dtype(dtype).as_datatype_enum
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(shape).as_proto())
    if variable is not None:
        node.attr["shared_name"].s = node.name.encode()
