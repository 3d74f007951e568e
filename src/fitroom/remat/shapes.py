"""The shape and size of every tensor of a graph for one sample, in the precision in which the layers compute now."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from fitroom.input_sizes import fill_in
from fitroom.remat.graph import Call, LayerGraph

_ITEM_BYTES = {"float64": 8, "int64": 8, "uint64": 8, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2}
_BYTE_WIDE = ("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")

USUAL_LENGTHS = {4: 224, 3: 128}
"""The length that an open dimension gets where none was given, by the rank of the input: images, sequences."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One tensor, for one sample."""

    dimensions: tuple[int, ...]
    """Without the first, which is the batch."""

    item_bytes: int

    @property
    def num_elements(self) -> int:
        """The number of its elements."""
        return prod(self.dimensions)

    @property
    def size_bytes(self) -> int:
        """The bytes it takes."""
        return self.num_elements * self.item_bytes


def shapes_of(graph: LayerGraph) -> tuple[Shape, ...]:
    """The shape of each tensor; open dimensions of the input get `USUAL_LENGTHS`.

    A dimension that is open for another reason, as in a product of all samples with all samples, counts once.
    """
    tensors = _close_dimensions(graph)
    item_bytes: dict[int, int] = {}
    for call in graph.calls:
        for tensor in call.outputs:
            item_bytes[tensor] = _item_bytes(_dtype(call, graph.tensors[tensor], item_bytes))
    return tuple(
        Shape(
            dimensions=tuple(1 if length is None else length for length in tensor.shape[1:]),
            item_bytes=item_bytes.get(place) or _item_bytes(tensor.dtype),
        )
        for place, tensor in enumerate(tensors)
    )


def _dtype(call: Call, tensor: Any, item_bytes: dict[int, int]) -> str:
    """A layer may compute in another precision than when the graph was made; operations follow their inputs."""
    if not tensor.dtype.startswith(("float", "bfloat")):
        return str(tensor.dtype)
    if hasattr(call.operation, "compute_dtype") and not call.enters:
        return str(call.operation.compute_dtype)
    widths = [item_bytes[place] for place in call.inputs if place in item_bytes]
    return "float16" if widths and max(widths) == 2 else str(tensor.dtype)


def num_bytes(dimensions: Sequence[int | None], dtype: str) -> int:
    """The size of a tensor, an open dimension counted once.

    >>> num_bytes((None, 8, 3), "bfloat16")
    48
    """
    return prod(length or 1 for length in dimensions) * _item_bytes(dtype)


def _item_bytes(dtype: str) -> int:
    return 1 if dtype in _BYTE_WIDE else _ITEM_BYTES.get(dtype, 4)


def _close_dimensions(graph: LayerGraph) -> Sequence[Any]:
    """The symbolic tensors, none of their dimensions open but the first."""
    if all(None not in tensor.shape[1:] for tensor in graph.tensors):
        return graph.tensors
    import keras

    found: dict[int, Any] = {}
    for number, place in enumerate(graph.inputs):
        tensor = graph.tensors[place]
        usual = USUAL_LENGTHS.get(len(tensor.shape), 128)
        known = fill_in(tensor.shape, name=tensor.name, place=number, count=len(graph.inputs))
        shape = (None, *(usual if length is None else length for length in known[1:]))
        found[place] = keras.KerasTensor(shape, dtype=tensor.dtype)
    for call in graph.calls:
        if call.enters:
            given: Any = [found[place] for place in call.inputs]
        else:
            by_id = {key: found[place] for key, place in graph.places.items() if place in found}
            args, kwargs = call.arguments.fill_in(by_id)
            given = keras.tree.flatten(call.operation.compute_output_spec(*args, **kwargs))
        found.update(zip(call.outputs, given, strict=True))
    return [found.get(place, tensor) for place, tensor in enumerate(graph.tensors)]
