"""What each call of a graph does for one sample, by the kind of work: operations, and elements moved."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from fitroom.remat.call_costs import count_operations, count_positions, matrix_shapes
from fitroom.remat.graph import Call, LayerGraph
from fitroom.remat.shapes import Shape, shapes_of

Array = Any
"""NumPy's."""

KINDS = ("convolution", "depthwise", "wide depthwise", "matrix", "normalisation", "elementwise", "pooling", "other")
"""Kinds of work that a card does at rates of their own. A layer can be several: a separable convolution is two."""

WIDE = 7
"""The window from which on a depthwise convolution is a kind of its own. In float32 ConvNeXt took 2.6 times what the
other models let expect, and it alone of those measured has them; nobody has timed them by themselves.
"""

_VIEWS = ("Reshape", "Flatten", "InputLayer", "Identity", "Masking", "ExpandDims", "Squeeze")
"""What gives out the memory that it is given."""

_COPIES = ("Concatenate", "Embedding", "Permute", "RepeatVector", "Pad", "Cropping", "UpSampling", "Resizing")
_REDUCTIONS = ("Mean", "Sum", "Max", "Min")

_BACKWARD_WITHOUT_WEIGHTS = 1.5
"""A rectifier reads one tensor and writes one; backwards it reads two."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One row a call, one column a kind; for one sample, forwards."""

    operations: Array
    elements: Array
    """How many elements are read and written."""

    backward: Array
    """For each call how many times its forward pass its backward pass is."""

    weights: int
    """The number of the model's weights that are trained."""

    slots: int
    """The number of elements that the optimizer keeps beside them."""


def work_of(model: Any, graph: LayerGraph) -> Work:
    """Counted from shapes."""
    import numpy as np

    shapes = shapes_of(graph)
    operations: Array = np.zeros((len(graph.calls), len(KINDS)))
    elements: Array = np.zeros((len(graph.calls), len(KINDS)))
    for number, call in enumerate(graph.calls):
        inputs, outputs = [shapes[place] for place in call.inputs], [shapes[place] for place in call.outputs]
        for kind, kind_operations, kind_elements in _parts(call, inputs, outputs):
            operations[number, KINDS.index(kind)] += kind_operations
            elements[number, KINDS.index(kind)] += kind_elements
    weights = sum(prod(variable.shape) for variable in model.trainable_variables)
    # Adam keeps two numbers for each weight; it is what a model that nobody compiled is taken to be trained with.
    kept = model.optimizer.variables if model.compiled and model.optimizer and model.optimizer.built else None
    slots = 2 * weights if kept is None else sum(prod(variable.shape) for variable in kept)
    return Work(
        operations=operations, elements=elements, backward=np.array(_backward(graph)), weights=weights, slots=slots
    )


def _parts(call: Call, inputs: list[Shape], outputs: list[Shape]) -> Iterator[tuple[str, int, int]]:
    """Kind, operations and elements of each kind of work that a call is."""
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


def _backward(graph: LayerGraph) -> list[float]:
    """A gradient for the inputs, where anything before is trained, and one for the call's own weights.

    Each takes about what the forward pass takes. Calls before the first that is trained have no backward pass.
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
