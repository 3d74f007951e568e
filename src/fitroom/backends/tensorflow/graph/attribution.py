"""What the name of an operation tells: which Keras layer it belongs to, and which phase of the step.

Keras opens a scope for each layer, and TensorFlow numbers scopes of the same name: `model_1/conv_1/Conv2D` is the
layer `conv`, `gradient_tape/model_1/conv_1/Conv2DBackpropFilter` its backward pass.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fitroom.backends.tensorflow.graph.program import Operation, Program
from fitroom.estimating.timeline import Kind, Phase

_NUMBER = re.compile(r"_\d+$")
_BACKWARD = "gradient_tape"
_LOSS_SCOPES = ("compile_loss", "loss")
_REWRITTEN = re.compile(r"^(?:ConstantFolding|ArithmeticOptimizer|LayoutOptimizer|Func)/")


@dataclass
class Attribution:
    """The layers and phases of a program's operations."""

    program: Program
    layer_names: frozenset[str]
    training: bool
    owners: Mapping[str, str | None]
    """The layer of each variable, by the name of its handle."""

    _layers: dict[int, str | None] = field(default_factory=dict)
    _phases: dict[int, Phase] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first_backward = None
        for operation in self.program.operations:
            self._layers[operation.index] = self._layer(operation)
            first_backward = first_backward or (_BACKWARD in operation.name and operation.index)
        for operation in self.program.operations:
            self._phases[operation.index] = self._phase(operation)
        self._ask_variables()

    def layer(self, index: int) -> str | None:
        """The path of the layer, or None where the operation belongs to none."""
        return self._layers[index]

    def phase(self, index: int) -> Phase:
        """The phase of the step."""
        return self._phases[index]

    def kind(self, index: int) -> Kind:
        """What an output of the operation is for."""
        if self.program.operations[index].op == "Placeholder":
            return "input"
        if self.program.operations[index].op == "Const":
            return "other"
        kinds: dict[Phase, Kind] = {"forward": "activations", "backward": "gradients", "update": "optimizer"}
        return kinds[self._phases[index]]

    def _layer(self, operation: Operation) -> str | None:
        parts = []
        for part in operation.name.split("/")[:-1]:
            name = part if part in self.layer_names else _NUMBER.sub("", part)
            if name in self.layer_names:
                parts.append(name)
        return "/".join(dict.fromkeys(parts)) or None

    def _phase(self, operation: Operation) -> Phase:
        if not self.training:
            return "forward"
        if _BACKWARD in operation.name:
            return "backward"
        top = _NUMBER.sub("", _REWRITTEN.sub("", operation.name).partition("/")[0])
        in_model = self._layers[operation.index] is not None or top in _LOSS_SCOPES
        return "forward" if in_model else "update"

    def _ask_variables(self) -> None:
        """Operations of the update are named after the optimizer: the variable that they end up in tells the layer."""
        operations = self.program.operations
        for operation in operations:
            if not operation.op.endswith("VariableOp") or operation.op == "ReadVariableOp":
                continue
            handle = operations[operation.inputs[0][0]]
            layer = self.owners.get(handle.name)
            waiting = [operation.index]
            while layer and waiting:
                index = waiting.pop()
                if self._layers[index] is not None or self._phases[index] != "update":
                    continue
                self._layers[index] = layer
                waiting += [source for source, _ in operations[index].inputs]
