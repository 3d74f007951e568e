"""The graph of a step as TensorFlow would run it on the card: inlined, lowered and rewritten by Grappler.

Grappler is given a virtual cluster with the card. When a step runs for real, its functions and loops are inlined before
Grappler sees them. Where Grappler does it, it lets each function wait for all its inputs, and passes each input of the
step through a node of its own, which gives another order of operations: the condition of a loop, for one, would wait
for all of the round before. That is undone here, in the names of operations too.
"""

from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.python.grappler import cluster as grappler_cluster  # no public name leads to Grappler
from tensorflow.python.grappler import tf_optimizer  # no public name leads to Grappler

from fitroom.backends.quiet import hold_stderr
from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep
from fitroom.cards.catalogue import Card

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"

_MIB = 2**20
_CUDNN = "90300"
"""The cuDNN that TensorFlow 2.18 and later are built with; the layout optimizer asks for its version."""


def make_virtual_cluster(card: Card | None) -> Any:
    """A cluster of a CPU and the card. What decides is its compute capability: layouts are chosen by it."""
    properties, named = device_properties_pb2.DeviceProperties, device_properties_pb2.NamedDevice
    cpu = properties(type="CPU", frequency=3000, num_cores=8, memory_size=64 * 1024 * _MIB)
    devices = [named(name=CPU, properties=cpu)]
    if card is not None:
        devices.insert(0, named(name=GPU, properties=_gpu(card)))
    return grappler_cluster.Cluster(devices=devices)


def _gpu(card: Card) -> Any:
    major, minor = card.compute_capability or (8, 0)
    gpu = device_properties_pb2.DeviceProperties(
        type="GPU",
        vendor="NVIDIA",
        model=card.name,
        frequency=round(card.clock_ghz * 1000),
        num_cores=card.sm_count,
        bandwidth=card.bandwidth_bytes_per_second // 1000,
        memory_size=card.memory_bytes,
    )
    gpu.environment.update({"architecture": f"{major}.{minor}", "cuda": "12050", "cudnn": _CUDNN})
    return gpu


_CALL = "StatefulPartitionedCall"
_END = "end_of_step"
_OUTPUT = "output_{}_of_step"


def optimise_graph(step: TensorFlowStep, card: Card | None) -> Any:
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
            configuration, meta_graph, verbose=False, graph_id=b"step", cluster=make_virtual_cluster(card)
        )
    return relax_waits(optimised, _CALL)


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


_WAITING = "/input_control_node/"
_BODY_BEGINS = "/loop_body_control/"


def relax_waits(graph_def: Any, call: str) -> Any:
    """The same graph, with functions and loops that wait for what TensorFlow would have them wait for.

    `call` is the node that called the step: what was inlined in its place loses its name.
    """
    merges = {node.name for node in graph_def.node if node.op == "Merge"}
    waits_for = {
        node.name: _find_waits([each[1:] for each in node.input], merges)
        for node in graph_def.node
        if node.op == "NoOp" and _WAITING in node.name
    }
    needless = {f"^{name}" for name, others in waits_for.items() if not others}
    passed_on = {node.name: node.input[0] for node in graph_def.node if node.name.startswith(f"Func/{call}/input/")}
    lenient = type(graph_def)(versions=graph_def.versions, library=graph_def.library)
    for node in graph_def.node:
        if f"^{node.name}" in needless or node.name in passed_on:
            continue
        kept = lenient.node.add()
        kept.CopyFrom(node)
        kept.name = node.name.replace(f"{call}/", "", 1)
        given = [f"^{name}" for name in waits_for[node.name]] if node.name in waits_for else node.input
        del kept.input[:]
        sources = [_source(each, passed_on) for each in given if each not in needless]
        kept.input.extend(source.replace(f"{call}/", "", 1) for source in sources)
    return lenient


def _find_waits(others: list[str], merges: set[str]) -> list[str]:
    """What a function waits for: the body of a loop for its begin, a condition for the loop's counter, others nothing.

    Constants have to wait for something of the loop that they are in.
    """
    begins = [name for name in others if _BODY_BEGINS in name]
    around = [name for name in others if name in merges]
    return begins or sorted(around, key=lambda name: int(name.rpartition("_")[2]))[:1]


def _source(given: str, passed_on: dict[str, str]) -> str:
    mark = "^" if given.startswith("^") else ""
    source = passed_on.get(given[len(mark) :], given[len(mark) :])
    return f"^{source.partition(':')[0]}" if mark else source
