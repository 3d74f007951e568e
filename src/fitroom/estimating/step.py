"""What an estimate asks of a backend, and what the backend answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fitroom.estimating.cards import Card
from fitroom.estimating.result import Method
from fitroom.estimating.timeline import Timeline
from fitroom.recipe import Recipe


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

    measure: bool = False
    """Whether to run the step on the live device instead of predicting it."""


@dataclass(frozen=True, kw_only=True)
class TracedStep:
    """The memory of one step as a backend found it."""

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
