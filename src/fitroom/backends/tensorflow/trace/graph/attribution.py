"""What the name of an operation tells: which Keras layer it belongs to, and which phase of the step.

Keras opens a scope for each layer, and TensorFlow numbers scopes of the same name: `model_1/conv_1/Conv2D` is the
layer `conv`, `gradient_tape/model_1/conv_1/Conv2DBackpropFilter` its backward pass. The optimizer has a scope, too.
"""

import re
from collections.abc import Iterable, Mapping

from fitroom.backends.tensorflow.trace.graph.program import Operation, Program
from fitroom.backends.tensorflow.trace.step import StepVariable
from fitroom.backends.tensorflow.train.recompute import is_recomputed
from fitroom.memory.timeline import Kind, Phase

_NUMBER = re.compile(r"_\d+$")
_BACKWARD = "gradient_tape"
_PASSING_ON = ("Switch", "Identity", "Enter")
_KINDS: dict[Phase, Kind] = {"forward": "activations", "backward": "gradients", "update": "optimizer"}


class Attribution:
    """The layers and phases of a program's operations."""

    def __init__(
        self, program: Program, variables: Mapping[str, StepVariable], layer_paths: frozenset[str], *, training: bool
    ) -> None:
        """`variables` are named after their handles."""
        self._program, self._layer_paths = program, layer_paths
        self._layers = [self._named_layer(operation) for operation in program.operations]
        writes = [each for each in program.operations if _writes(each, program) in variables]
        # What a layer writes by itself is named after it: BatchNormalization's statistics.
        updates = [each for each in writes if self._layers[each.index] is None]
        updates = [each for each in updates if variables[_writes(each, program)].kind != "other"]
        self._phases = self._find_phases(updates, training=training)
        for operation in writes:
            self._give_layer(operation, variables[_writes(operation, program)].layer)
        self._give_layers_to_sums()

    def layer(self, index: int) -> str | None:
        """The path of the layer, or None where the operation belongs to none."""
        return self._layers[index]

    def phase(self, index: int) -> Phase:
        """The phase of the step."""
        return self._phases[index]

    def kind(self, index: int) -> Kind:
        """What an output of the operation is for."""
        operation = self._program.operations[index]
        special: dict[str, Kind] = {"Placeholder": "input", "Const": "other"}
        if operation.op not in special and is_recomputed(operation.name):
            return "activations"
        return special.get(operation.op) or _KINDS[self._phases[index]]

    def _named_layer(self, operation: Operation) -> str | None:
        path = ""
        for part in operation.name.split("/")[:-1]:
            # Keras opens each scope twice, and only what is in the second has operations: it has a number of its own.
            for name in (_NUMBER.sub("", part), part):
                longer = f"{path}/{name}" if path else name
                # What is not within the layer is an operation that is called like another one: "add_1".
                if longer in self._layer_paths:
                    path = longer
                    break
        return path or None

    def _find_phases(self, updates: Iterable[Operation], *, training: bool) -> list[Phase]:
        """Backward is what is named so, and what follows from it without being the optimizer's."""
        scopes = {operation.name.rpartition("/")[0] for operation in updates} - {""}
        phases: list[Phase] = []
        if not training:
            return ["forward"] * len(self._layers)
        for operation in self._program.operations:
            parents = {operation.name[: at.start()] for at in re.finditer("/", operation.name)}
            if _BACKWARD in operation.name or is_recomputed(operation.name):
                phases.append("backward")
            elif parents & scopes:
                phases.append("update")
            else:
                before = [phases[source] for source, _ in operation.inputs if source < len(phases)]
                follows = self._layers[operation.index] is None and "backward" in before
                phases.append("backward" if follows else "forward")
        return phases

    def _give_layer(self, write: Operation, layer: str | None) -> None:
        """Operations of the update have no layer's name: the variable that they end up in tells it."""
        waiting = [write.index]
        while layer and waiting:
            index = waiting.pop()
            if self._layers[index] is None and (self._phases[index] == "update" or index == write.index):
                self._layers[index] = layer
                waiting += [source for source, _ in self._program.operations[index].inputs]

    def _give_layers_to_sums(self) -> None:
        """Gradients that meet are added up outside of any scope: the sum goes to the layer of its last part."""
        for operation in self._program.operations:
            if self._layers[operation.index] is None and self._phases[operation.index] == "backward":
                found = [self._layers[source] for source, _ in operation.inputs]
                self._layers[operation.index] = next((layer for layer in reversed(found) if layer), None)


def _writes(operation: Operation, program: Program) -> str:
    """The handle that the operation assigns to, or nothing."""
    if not operation.op.startswith("Assign") or not operation.inputs:
        return ""
    handle = program.operations[operation.inputs[0][0]]
    while handle.op in _PASSING_ON:
        handle = program.operations[handle.inputs[0][0]]
    return handle.name
