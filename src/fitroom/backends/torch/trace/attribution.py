"""Attribution of PyTorch operations to Keras layers and phases of the step, while the step runs."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from fitroom.memory.timeline import Kind, Phase

_NO_NUMBER = 2**63
"""Numbers from here on are not those of operations: nodes that hand gradients to weights have the largest there is."""


def operations_between(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What a functional model computes outside of layers, as `x + y` does, with paths like those of layers."""
    for operation in getattr(model, "operations", ()):
        if not isinstance(operation, keras.Layer):
            yield prefix + operation.name, operation
        elif getattr(operation, "operations", None):
            yield from operations_between(operation, prefix + operation.name + "/")


class LayerTracker:
    """Tracks calls of layers, and the autograd nodes that they leave behind for the backward pass."""

    def __init__(self, paths: dict[int, str], owners: dict[int, str]) -> None:
        self._paths = paths
        """Layers by id."""
        self._owners = owners
        """The layers that own the values of variables, by the value's id."""
        self._stack: list[str | None] = []
        self._starts: list[int] = []
        self._layers: list[str | None] = []
        self._after_backward = False
        self._node_number: int | None = None
        self._node_layer: str | None = None
        self.node_began = 0
        """The first moment of the autograd node at work."""

    @contextmanager
    def track(self, model: Any) -> Iterator[None]:
        """Track, during the block, every call of a layer, and every operation between layers of a functional model."""
        handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        operations = {operation: path for path, operation in operations_between(model)}  # once, where models share it
        for operation, path in operations.items():
            operation.call = self._tracked(path, operation.call)
        try:
            yield
        finally:
            for operation in operations:
                del operation.call
            for handle in handles:
                handle.remove()

    def begin_step(self) -> None:
        """Start a step: what comes is forward until something is differentiated."""
        self._after_backward = False

    @property
    def in_layer(self) -> bool:
        """Whether a layer is being called, in the forward pass or again in the backward pass."""
        return bool(self._stack)

    def phase(self) -> Phase:
        """The phase under way."""
        if torch._C._current_graph_task_id() != -1:
            self._after_backward = True
            return "backward"
        return "update" if self._after_backward and not self._stack else "forward"

    def layer(self, phase: Phase, moment: int) -> str | None:
        """The layer at work at a moment: in the backward pass the one whose operation is being differentiated."""
        if phase != "backward":
            self._node_number = None
        if phase != "backward" or self.in_layer:
            return self._stack[-1] if self._stack else None
        node = torch._C._current_autograd_node()
        if node is None:  # between two nodes
            return self._node_layer
        number = node._sequence_nr()
        if number >= _NO_NUMBER:
            return self._owners.get(id(node.variable))
        if number != self._node_number:
            self._node_number, self.node_began = number, moment
            place = bisect_right(self._starts, number) - 1
            self._node_layer = self._layers[place] if place >= 0 else None
        return self._node_layer

    def kind(self, phase: Phase | None) -> Kind:
        """The kind of memory made in a phase. A layer at work makes activations, in the backward pass too."""
        kinds: dict[Phase | None, Kind] = {"forward": "activations", "backward": "gradients", "update": "optimizer"}
        return "activations" if self.in_layer else kinds.get(phase, "other")

    def _tracked(self, path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def tracked(*args: Any, **kwargs: Any) -> Any:
            self._push(path)
            try:
                return call(*args, **kwargs)
            finally:
                self._leave()

        return tracked

    def _enter(self, module: Any, args: Any) -> None:
        path = self._paths.get(id(module))
        if path is None and isinstance(module, keras.Layer) and not getattr(module, "layers", None):
            path = "/".join(filter(None, [self._stack[-1] if self._stack else None, module.name]))
        self._push(path or (self._stack[-1] if self._stack else None))

    def _push(self, path: str | None) -> None:
        self._stack.append(path)
        self._note()

    def _leave(self, *_: Any) -> None:
        self._stack.pop()
        self._note()

    def _note(self) -> None:
        self._starts.append(torch.autograd._get_sequence_nr())
        self._layers.append(self._stack[-1] if self._stack else None)
