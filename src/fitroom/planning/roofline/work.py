"""Counts the work of each call of a layer graph for one sample: operations and elements moved, by kind of work."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from fitroom.remat.call_costs import count_operations, count_positions, matrix_shapes
from fitroom.remat.graph import Call, LayerGraph
from fitroom.remat.shapes import Shape, shapes_of

Array = Any
"""A NumPy array."""

KINDS = ("convolution", "depthwise", "wide depthwise", "matrix", "normalisation", "elementwise", "pooling", "other")
"""Kinds of work that a card does at different rates. One layer can do several: a separable convolution does two."""

WIDE = 7
"""The kernel size from which on a depthwise convolution counts as a kind of its own. In float32 ConvNeXt took 2.6 times
the time predicted from the other models, and it is the only measured model that has them. They were not timed alone.
"""

_VIEWS = ("Reshape", "Flatten", "InputLayer", "Identity", "Masking", "ExpandDims", "Squeeze")
"""Layers whose output shares the memory of their input."""

_COPIES = ("Concatenate", "Embedding", "Permute", "RepeatVector", "Pad", "Cropping", "UpSampling", "Resizing")
_REDUCTIONS = ("Mean", "Sum", "Max", "Min")

_BACKWARD_WITHOUT_WEIGHTS = 1.5
"""A ReLU reads one tensor and writes one; its backward pass reads two and writes one."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of the forward pass of one sample: one row for each call, one column for each kind."""

    operations: Array
    elements: Array
    """How many elements are read and written."""

    backward: Array
    """For each call, the work of its backward pass as a multiple of its forward pass."""

    weights: int
    """The number of trained weights."""

    slots: int
    """The number of elements in the optimizer's slots."""


def count_work(model: Any, graph: LayerGraph) -> Work:
    """Count the work of a model from the shapes of its graph."""
    import numpy as np

    shapes = shapes_of(graph)
    operations: Array = np.zeros((len(graph.calls), len(KINDS)))
    elements: Array = np.zeros((len(graph.calls), len(KINDS)))
    for number, call in enumerate(graph.calls):
        inputs, outputs = [shapes[place] for place in call.inputs], [shapes[place] for place in call.outputs]
        for kind, kind_operations, kind_elements in _split_by_kind(call, inputs, outputs):
            operations[number, KINDS.index(kind)] += kind_operations
            elements[number, KINDS.index(kind)] += kind_elements
    weights = sum(prod(variable.shape) for variable in model.trainable_variables)
    # A model that is not compiled is taken to be trained with Adam, which has two slots for each weight.
    kept = model.optimizer.variables if model.compiled and model.optimizer and model.optimizer.built else None
    slots = 2 * weights if kept is None else sum(prod(variable.shape) for variable in kept)
    return Work(
        operations=operations,
        elements=elements,
        backward=np.array(_count_backward(graph)),
        weights=weights,
        slots=slots,
    )


def _split_by_kind(call: Call, inputs: list[Shape], outputs: list[Shape]) -> Iterator[tuple[str, int, int]]:
    """Yield kind, operations and elements of each kind of work that a call does."""
    operation, name = call.operation, type(call.operation).__name__
    if call.enters or name in _VIEWS:
        return
    given, made = (sum(shape.num_elements for shape in each) for each in (inputs, outputs))
    operations = count_operations(operation, inputs, outputs)
    if hasattr(operation, "depthwise_kernel") and hasattr(operation, "pointwise_kernel"):
        positions = count_positions(operation, inputs, outputs)
        kernel = tuple(operation.depthwise_kernel.shape)
        between = positions * prod(kernel[-2:])
        yield _depthwise(operation), 2 * positions * prod(kernel), given + between
        yield "convolution", operations - 2 * positions * prod(kernel), between + made
    else:
        yield _kind(operation, name), operations, given + made
    activation = getattr(getattr(operation, "activation", None), "__name__", "linear")
    if matrix_shapes(operation) and activation != "linear":
        yield "elementwise", made, 2 * made


def _kind(operation: Any, name: str) -> str:
    if any(part in name for part in _COPIES):
        return "other"
    if matrix_shapes(operation):
        groups = getattr(operation, "groups", 1)
        if "Depthwise" in name or (groups > 1 and groups == getattr(operation, "filters", None)):
            return _depthwise(operation)
        return "convolution" if hasattr(operation, "kernel_size") else "matrix"
    if "Normalization" in name:
        return "normalisation"
    return "pooling" if "Pool" in name or name in _REDUCTIONS else "elementwise"


def _depthwise(operation: Any) -> str:
    return "wide depthwise" if max(operation.kernel_size) >= WIDE else "depthwise"


def _count_backward(graph: LayerGraph) -> list[float]:
    """Return the work of each call's backward pass as a multiple of its forward pass.

    It computes a gradient for the inputs, where anything before it is trained, and one for the call's own weights. Each
    takes about as much as the forward pass. Calls before the first trained one have no backward pass.
    """
    flowing: set[int] = set()
    found = []
    for call in graph.calls:
        reached = any(place in flowing for place in call.inputs)
        trained = bool(getattr(call.operation, "trainable_variables", ())) and not call.enters
        if reached or trained:
            flowing.update(call.outputs)
        if not getattr(call.operation, "weights", ()):
            found.append(_BACKWARD_WITHOUT_WEIGHTS * reached)
        else:
            found.append(float(reached + trained))
    return found
