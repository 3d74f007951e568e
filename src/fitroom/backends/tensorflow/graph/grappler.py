"""The graph of a step as TensorFlow would run it on the card: inlined, lowered and rewritten by Grappler."""

from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.grappler import tf_optimizer  # no public name leads to Grappler

from fitroom.backends.tensorflow.graph.cluster import CPU, GPU, virtual_cluster
from fitroom.backends.tensorflow.step import TensorFlowStep
from fitroom.estimating.cards import Card


def optimised_graph(step: TensorFlowStep, card: Card | None) -> Any:
    """The step's `GraphDef` after Grappler, every node on the card; or on the CPU, where no card is given."""
    graph = step.concrete.graph
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph.as_graph_def())
    _name_variables(meta_graph.graph_def, step)
    for node in meta_graph.graph_def.node:
        node.device = CPU if card is None else GPU
    kept = [operation.name for operation in graph.control_outputs]
    kept += [tensor.op.name for tensor in graph.outputs]
    meta_graph.collection_def["train_op"].node_list.value.extend(dict.fromkeys(kept))
    configuration = config_pb2.ConfigProto()
    rewriting = configuration.graph_options.rewrite_options
    rewriting.min_graph_nodes = -1
    optimised = tf_optimizer.OptimizeGraph(
        configuration, meta_graph, verbose=False, graph_id=b"step", cluster=virtual_cluster(card)
    )
    _let_conditions_run_ahead(optimised)
    return optimised


def _name_variables(graph_def: Any, step: TensorFlowStep) -> None:
    """Put a handle that tells dtype and shape in the place of each captured variable."""
    captured = step.captures()
    for node in graph_def.node:
        variable = captured.get(node.name)
        if variable is None:
            continue
        node.op = "VarHandleOp"
        node.ClearField("attr")
        node.attr["dtype"].type = tf.as_dtype(variable.dtype).as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(variable.shape).as_proto())
        node.attr["shared_name"].s = node.name.encode()


def _let_conditions_run_ahead(graph_def: Any) -> None:
    """Have the condition of a loop wait for the loop's counter alone.

    A training step's loops are lowered before Grappler sees them, and then nothing else holds their conditions up.
    Where Grappler lowers them itself, as here, it makes them wait for all that goes around the loop.
    """
    merges = {node.name for node in graph_def.node if node.op == "Merge"}
    for node in graph_def.node:
        waits_for = [each[1:] for each in node.input if each.startswith("^")]
        around = [name for name in waits_for if name in merges]
        if node.op == "NoOp" and len(around) > 1:
            counter = min(around, key=lambda name: int(name.rpartition("_")[2]))
            del node.input[:]
            node.input.append(f"^{counter}")
