"""What the scope of a JAX operation tells: which Keras layer it belongs to, and which phase of the step.

JAX writes the scopes of the traced function into every operation, and Keras opens a scope for each layer:
`jit(train_step)/transpose(jvp(block2))/conv/dot_general` is the backward pass of the layer `block2/conv`.
"""

import re

from fitroom.estimating.timeline import Kind, Phase

KIND_OF_PHASE: dict[Phase | None, Kind] = {
    "forward": "activations",
    "backward": "gradients",
    "update": "optimizer",
    None: "other",
}
"""What memory is for that an operation of a phase takes."""

_BRACKETS = re.compile(r"\bjit\([^()]*\)|\w+\(|\)")


def layer_in(scope: str, layer_names: frozenset[str]) -> str | None:
    """The path of the layer, or None where the operation belongs to none."""
    # The last part is the operation itself, which may be called like a layer: "add", "reshape".
    parts = without_brackets(scope).split("/")[:-1]
    return "/".join(part for part in parts if part in layer_names) or None


def phase_in(scope: str, *, training: bool) -> Phase | None:
    """The phase of the step, or None where the scope is empty."""
    if not scope:
        return None
    if not training:
        return "forward"
    if is_backward(scope):
        return "backward"
    return "forward" if "jvp(" in scope else "update"


def is_backward(scope: str) -> bool:
    """Whether the operation is part of the backward pass."""
    return "transpose(" in scope


def without_brackets(scope: str) -> str:
    """The scopes alone, without the transformations around them."""
    return _BRACKETS.sub("", scope)
