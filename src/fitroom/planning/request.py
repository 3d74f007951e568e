"""What a plan was asked for: the model, the batch, and the knobs that must stay or may change the task."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fitroom.errors import InputError, UnknownNameError
from fitroom.recipe import PRECISIONS

KEEPABLE = ("precision", "kernels", "remat", "micro-batch", "jit")
"""What `keep` may name: these stay as the model has them."""

ALLOWABLE = ("image-size", "optimizer", "frozen-layers")
"""What `allow` may name: these change the task, so a plan leaves them alone unless asked, and changes them as little as
the budget demands."""

AUTO = "auto"
"""In place of a precision: the planner may choose it."""

PREFERENCES = ("whole batches", "speed")

Rebuild = Callable[[int], Any]
"""Returns the model built for another image size."""

Say = Callable[[str], None]
"""Receives a line of text for each slow thing that is begun."""


def parse_knobs(option: str, named: str | Iterable[str], known: tuple[str, ...]) -> frozenset[str]:
    """Return the knobs that `keep` or `allow` names, spelled as the fields of `Recipe`.

    >>> sorted(parse_knobs("keep", "precision,micro-batch", KEEPABLE))
    ['micro_batch', 'precision']
    """
    words = named.split(",") if isinstance(named, str) else list(named)
    found = set()
    for word in words:
        if not isinstance(word, str):
            raise InputError(f"`{option}` takes names of knobs. Received: {word!r}.", hint=f"known are: {known}")
        name = word.strip().lower().replace("_", "-")
        if name not in known:
            raise UnknownNameError(f"knob for `{option}`", word, known, more=f"known are: {', '.join(known)}")
        found.add(name.replace("-", "_"))
    return frozenset(found)


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """A model to train, its batch, and what the planner may change about it."""

    model: Any
    batch_size: int
    precision: str | None = None
    keep: frozenset[str] = frozenset()
    allow: frozenset[str] = frozenset()
    prefer: str = PREFERENCES[0]
    optimizer: Any = None
    loss: Any = None
    input_dtype: str | None = None
    micro_batch: int | None = None
    """The largest micro-batch, where the user has set it."""

    rebuild: Rebuild | None = None
    sharded_over: int = 1
    """How many cards divide weights and optimizer state among them; each trains on a batch of `batch_size`."""

    def __post_init__(self) -> None:
        if self.prefer not in PREFERENCES:
            known = " or ".join(map(repr, PREFERENCES))
            raise InputError(f"`prefer` must be {known}. Received: {self.prefer!r}.")
        if self.precision not in (None, AUTO, *PRECISIONS):
            known = f"known are: {AUTO}, {', '.join(PRECISIONS)}"
            raise UnknownNameError("precision", str(self.precision), (AUTO, *PRECISIONS), more=known)
        if "image_size" in self.allow and self.rebuild is None:
            raise InputError(
                f"The model {self.model.name!r} is built for one image size, so no other can be planned.",
                hint="give `rebuild`, a function that makes the model for a size; or `fitroom plan` with its name",
            )
        if "frozen_layers" in self.allow:
            from fitroom.keras_model.freezing import layers_with_weights  # it brings NumPy; commands import this module

            layers_with_weights(self.model)  # raises where they have no order
