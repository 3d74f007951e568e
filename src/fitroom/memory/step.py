"""What an estimate asks of a backend, and what the backend answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fitroom.batch import micro_batch_sizes
from fitroom.cards.catalogue import Card
from fitroom.memory.estimate import Method
from fitroom.memory.timeline import Timeline
from fitroom.recipe import Recipe
from fitroom.units import format_bytes

NO_LIMIT_BYTES = 2**44
"""A limit that no step reaches. Under a limit XLA recomputes by itself to come below it, which is slower and not always
below it on the card. So plans estimate steps without a limit."""


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """One step to trace: what is trained how, on which card, under which allocator limit."""

    batch_size: int
    card: Card
    recipe: Recipe = field(default_factory=Recipe)

    limit_bytes: int | None = None
    """The allocator's limit; None for what the framework takes by default on the card."""

    optimizer: Any = None
    """A Keras optimizer or its name; None for the model's own, or Adam where it has none."""

    loss: Any = None
    """A Keras loss or its name; None for the model's own, or one that suits its outputs."""

    training: bool = True
    """False for the step of `predict`."""

    devices: int = 1
    """How many devices share the batch evenly in one program, as on JAX. The memory is that of one of them."""

    shard_weights: bool = False
    """Whether the devices also divide weights and optimizer among them."""

    measure: bool = False
    """Whether to run the step on the live device instead of predicting it."""

    @property
    def is_step_of_fitroom(self) -> bool:
        """Whether it is the training step of `fitroom.fit`, and not Keras's own."""
        return self.training and self.recipe.step_for(self.batch_size) == "fitroom"

    @property
    def micro_batch_sizes(self) -> list[int]:
        """The sizes of the micro-batches; empty where the batch stays whole."""
        if not self.training or self.recipe.micro_batch is None or not self.recipe.is_split(self.batch_size):
            return []
        return micro_batch_sizes(self.batch_size, self.recipe.micro_batch)


@dataclass(frozen=True, kw_only=True)
class TracedStep:
    """The memory of one step, as a backend predicted or measured it."""

    timeline: Timeline
    required_bytes: int
    limit_bytes: int
    """The allocator limit it holds for."""

    method: Method
    typical_error: float | None
    precision: str
    """The dtype policy the step runs in."""

    versions: Mapping[str, str]

    depends_on_limit: bool = False
    """Whether a smaller limit makes another step, as with XLA, which recomputes to come under one."""

    notes: tuple[str, ...] = ()

    predicted_bytes: int | None = None
    """The peak that was predicted for a step that was measured."""

    predicted_with: Method | None = None
    """The method of that prediction."""

    def with_margin(self, added_bytes: int, notes: tuple[str, ...]) -> "TracedStep":
        """The same with more room, and why."""
        return replace(self, required_bytes=self.required_bytes + added_bytes, notes=(*self.notes, *notes))

    def as_measured(self, measured_bytes: int) -> "TracedStep":
        """The same with the peak that was measured, and a note on how far the prediction was off."""
        predicted_bytes = self.timeline.peak_bytes
        return replace(
            self,
            timeline=self.timeline.with_peak(measured_bytes),
            required_bytes=max(self.required_bytes + measured_bytes - predicted_bytes, measured_bytes),
            method="measured",
            typical_error=0.0,
            notes=(*self.notes, difference_note(predicted_bytes, measured_bytes)),
            predicted_bytes=predicted_bytes,
            predicted_with=self.method,
        )


@dataclass(frozen=True, kw_only=True)
class PendingStep:
    """A step that this process has traced, and that another one compiles meanwhile."""

    result: Callable[[], TracedStep]
    """Waits for the compiler and returns what it found; called once."""

    cancel: Callable[[], None]
    """Ends the compiler, where nobody needs the result any more."""


def difference_note(predicted_bytes: int, measured_bytes: int) -> str:
    """How far a prediction is from what was measured, in words."""
    difference = 100 * (predicted_bytes - measured_bytes) / measured_bytes
    return f"Predicted without running it: {format_bytes(predicted_bytes)}, {difference:+.2f} % of what was measured."
