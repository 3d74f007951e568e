"""The operations of an optimised graph with the sizes of what they make, ready to be replayed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.python.grappler import item as grappler_item  # no public name leads to Grappler

from fitroom.backends.tensorflow.trace.graph.output import Output, shape_of
from fitroom.backends.tensorflow.trace.graph.shapes import complete_shapes


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One node of the graph."""

    index: int
    name: str
    op: str
    inputs: tuple[tuple[int, int], ...]
    """The operation and the output of it that each input is."""

    control_inputs: tuple[int, ...]
    outputs: tuple[Output, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Program:
    """All operations in the order of the graph, and how many shapes stayed unknown."""

    operations: tuple[Operation, ...]
    num_unknown: int

    results: frozenset[int] = frozenset()
    """Operations whose outputs stay until the program is done, and after."""

    held: frozenset[str] = frozenset()
    """Variables whose old values are held by others until the program is done, by the names of their handles."""

    def input_outputs(self, operation: Operation) -> list[Output]:
        """What each input of the operation is."""
        return [self.operations[source].outputs[slot] for source, slot in operation.inputs]


def program_of(graph_def: Any) -> Program:
    """Read a `GraphDef`; TensorFlow itself infers the shapes."""
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(_without_devices(graph_def), name="")
    names = {node.name: index for index, node in enumerate(graph_def.node)}
    by_name = {operation.name: operation for operation in graph.get_operations()}
    outputs_of = {
        name: tuple(Output(shape_of(tensor), tensor.dtype) for tensor in operation.outputs)
        for name, operation in by_name.items()
    }
    if _num_unknown(outputs_of):
        outputs_of = complete_shapes(graph, _through_loops(graph_def, outputs_of))
    operations = []
    for index, node in enumerate(graph_def.node):
        made = by_name[node.name]
        operations.append(
            Operation(
                index=index,
                name=node.name,
                op=node.op,
                inputs=tuple((names[each.op.name], each.value_index) for each in made.inputs),
                control_inputs=tuple(names[each[1:]] for each in node.input if each.startswith("^")),
                outputs=outputs_of[node.name],
                attributes=node.attr,
            )
        )
    return Program(operations=tuple(operations), num_unknown=_num_unknown(outputs_of))


def _num_unknown(outputs_of: Mapping[str, tuple[Output, ...]]) -> int:
    return sum(each.is_open for outputs in outputs_of.values() for each in outputs)


def _through_loops(graph_def: Any, outputs_of: Mapping[str, tuple[Output, ...]]) -> dict[str, tuple[Output, ...]]:
    """Shapes that only Grappler's analysis finds: importing a graph does not follow its loops."""
    meta_graph = meta_graph_pb2.MetaGraphDef()
    meta_graph.graph_def.CopyFrom(graph_def)
    meta_graph.collection_def["train_op"].node_list.value.extend(outputs_of)
    properties = grappler_item.Item(meta_graph).GetOpProperties()
    found = {}
    for name, outputs in outputs_of.items():
        inferred = properties.get(name, [])
        found[name] = tuple(
            Output(_shape_of_proto(inferred[slot].shape), output.dtype)
            if output.num_elements is None and slot < len(inferred)
            else output
            for slot, output in enumerate(outputs)
        )
    return found


def _shape_of_proto(proto: Any) -> tuple[int | None, ...] | None:
    return None if proto.unknown_rank else tuple(None if each.size < 0 else each.size for each in proto.dim)


def _without_devices(graph_def: Any) -> Any:
    """A copy that any machine can import: its devices are not here, and colocation does not matter."""
    copy = type(graph_def)()
    copy.CopyFrom(graph_def)
    for node in copy.node:
        node.device = ""
        node.attr.pop("_class", None)
    return copy
