"""What the names of operations tell. Each framework writes them in its own way, and reads them in its own way."""

from typing import Protocol

from fitroom.memory.timeline import Kind, Phase

KIND_OF_PHASE: dict[Phase | None, Kind] = {
    "forward": "activations",
    "backward": "gradients",
    "update": "optimizer",
    None: "other",
}
"""What memory is for that an operation of a phase takes."""


class Scopes(Protocol):
    """Reads the scope of an operation: the names around it in the traced function, and its own."""

    @property
    def training(self) -> bool:
        """Whether the step trains: only then is there a backward pass."""

    def layer(self, scope: str) -> str | None:
        """The path of the Keras layer, or None where the operation belongs to none."""

    def phase(self, scope: str) -> Phase | None:
        """The phase of the step, or None where the scope is empty."""

    def recomputes(self, scope: str) -> bool:
        """Whether the operation runs a part of the forward pass again, in the backward pass."""

    def tells(self, scope: str) -> bool:
        """Whether a name says more than that it is part of the step."""
