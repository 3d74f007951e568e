"""Attribution of JAX operations to Keras layers and phases of the step, by the scopes around them.

JAX writes the scopes of the traced function into every operation, and Keras opens a scope for each layer:
`jit(train_step)/transpose(jvp(block2))/conv/dot_general` is the backward pass of the layer `block2/conv`.
"""

import re
from dataclasses import dataclass

from fitroom.backends.jax.train.micro_batches import ACCUMULATION, MICRO_BATCH
from fitroom.memory.timeline import Phase

_RECOMPUTED = "rematted_computation"
"""JAX's own scope around what `jax.checkpoint` recomputes."""

_BRACKETS = re.compile(r"\bjit\([^()]*\)|\w+\(|\)")


@dataclass(frozen=True, kw_only=True)
class JaxScopeReader:
    """Reads layer and phase from the scopes of the operations of one step."""

    layer_names: frozenset[str]
    training: bool

    def layer(self, scope: str) -> str | None:
        """The path of the layer, or None where the operation belongs to none."""
        return layer_in(scope, self.layer_names)

    def phase(self, scope: str) -> Phase | None:
        """The phase of the step, or None where the scope is empty."""
        return phase_in(scope, training=self.training)

    def recomputes(self, scope: str) -> bool:
        """Whether the operation recomputes some of the forward pass, in the backward pass."""
        return is_recomputed(scope)

    def tells(self, scope: str) -> bool:
        """Whether a name says more than that it is part of the step."""
        return len(without_brackets(scope).replace("call_exported", "").strip("/").split("/")) > 1


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
    if is_backward(scope) or ACCUMULATION in scope.split("/"):
        return "backward"
    return "forward" if "jvp(" in scope or MICRO_BATCH in scope.split("/") else "update"


def is_backward(scope: str) -> bool:
    """Whether the operation is part of the backward pass."""
    return "transpose(" in scope


def is_recomputed(scope: str) -> bool:
    """Whether the operation recomputes some of the forward pass, in the backward pass."""
    return _RECOMPUTED in scope.split("/")


def without_brackets(scope: str) -> str:
    """The scopes alone, without the transformations around them."""
    return _BRACKETS.sub("", scope)
