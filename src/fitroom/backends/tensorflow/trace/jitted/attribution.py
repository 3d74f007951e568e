"""What the name of a TensorFlow operation tells: which Keras layer it belongs to, and which phase of the step.

Keras opens a scope for each layer, and TensorFlow numbers scopes that are opened again. Each call of a layer opens
two, one to build and one to call, so a layer's operations are found under its name with a number:
`gradient_tape/xception_1/block2_conv_1/Relu/ReluGrad` is the backward pass of the layer `block2_conv`.
"""

import re
from functools import cached_property
from typing import Any

from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep
from fitroom.backends.tensorflow.train.recompute import is_recomputed
from fitroom.memory.timeline import Phase

_TAPE = "gradient_tape"
_NUMBERED = re.compile(r"(.+)_\d+")
_SILENT = ("XLA_Args", "XLA_Retvals")
_MAX_DEPTH = 4


class TensorFlowScopes:
    """Reads the names of the operations of one step."""

    def __init__(self, step: TensorFlowStep) -> None:
        self._step = step
        self._layers: dict[str, str | None] = {}

    @property
    def training(self) -> bool:
        """Whether the step trains."""
        return self._step.training

    def layer(self, scope: str) -> str | None:
        """The path of the layer, or None where the operation belongs to none."""
        if scope not in self._layers:
            self._layers[scope] = self._layer(scope) or self._layer_of_gradient(scope)
        return self._layers[scope]

    def phase(self, scope: str) -> Phase | None:
        """The phase of the step, or None where the scope is empty."""
        if not scope:
            return None
        if not self.training:
            return "forward"
        if scope.startswith(_TAPE) or is_recomputed(scope):
            return "backward"
        return self._phases.get(scope, "forward" if self._layer(scope) else None)

    def recomputes(self, scope: str) -> bool:
        """Whether the operation runs a part of the forward pass again, in the backward pass."""
        return is_recomputed(scope)

    def tells(self, scope: str) -> bool:
        """Whether a name says more than that it is part of the step."""
        return bool(scope) and scope not in _SILENT

    def _layer(self, scope: str) -> str | None:
        path: list[str] = []
        for part in scope.split("/")[:-1]:
            if name := self._layer_name(part):
                path.append(name)
                if "/".join(path) not in self._containers:
                    break  # what follows are operations, which may be called like a layer: "add_1"
            elif path:
                break
        return "/".join(path) or None

    def _layer_of_gradient(self, scope: str, depth: int = 0) -> str | None:
        """The sum of gradients, or what an update makes of one, belongs to the layer that it came from."""
        if self.phase(scope) not in ("backward", "update") or scope not in self._operations or depth > _MAX_DEPTH:
            return None
        for tensor in self._operations[scope].inputs:
            name = tensor.op.name
            variable = self._variables.get(name)
            layer = variable.layer if variable else self._layer(name) or self._layer_of_gradient(name, depth + 1)
            if layer:
                return layer
        return None

    def _layer_name(self, part: str) -> str | None:
        """`conv_1` is the layer `conv` called, even where there is a layer `conv_1`: that one is `conv_1_2`."""
        names = self._step.layer_names
        numbered = _NUMBERED.fullmatch(part)
        if numbered and numbered[1] in names:
            return numbered[1]
        return part if part in names else None

    @cached_property
    def _containers(self) -> frozenset[str]:
        """The paths of layers that hold other layers."""
        owners = [found.layer.split("/") for found in self._step.variables if found.layer]
        return frozenset("/".join(parts[:depth]) for parts in owners for depth in range(1, len(parts)))

    @cached_property
    def _operations(self) -> dict[str, Any]:
        return {operation.name: operation for operation in self._step.concrete.graph.get_operations()}

    @cached_property
    def _variables(self) -> dict[str, StepVariable | None]:
        return self._step.captures()

    @cached_property
    def _phases(self) -> dict[str, Phase]:
        """The phase of each operation by its place: the tape is asked after the forward pass and before the update."""
        names = list(self._operations)
        on_tape = [place for place, name in enumerate(names) if name.startswith(_TAPE)]
        first, last = (on_tape[0], on_tape[-1]) if on_tape else (len(names), len(names))
        return {
            name: "forward" if place < first else "backward" if place < last else "update"
            for place, name in enumerate(names)
        }
