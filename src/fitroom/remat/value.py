"""What to compute again in the backward pass instead of keeping it, as a user says it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fitroom.errors import InputError
from fitroom.units import format_bytes, parse_bytes

REMAT_NAMES = ("none", "blocks")
"""What `Recipe(remat=...)` may be besides a `Remat`."""


@dataclass(frozen=True, kw_only=True)
class Remat:
    """Which stretches of a model's layers are computed again in the backward pass; give one of the two.

    >>> Remat(budget="6GiB").budget_bytes
    6442450944
    >>> Remat(segments=[("block2_sepconv1", "add"), ("block3_sepconv1_act", "add_1")]).segments[1]
    ('block3_sepconv1_act', 'add_1')
    """

    segments: Sequence[Sequence[str]] | None = None
    """The first and the last layer of each stretch, in the order in which `fitroom segments` lists them."""

    budget: int | str | None = None
    """The allocator's limit to come under: the least is recomputed that gets the step there."""

    def __post_init__(self) -> None:
        if (self.segments is None) == (self.budget is None):
            received = "both" if self.segments is not None else "neither"
            raise InputError(
                f"`Remat` takes either `segments` or `budget`. Received: {received}.",
                hint='fitroom.Remat(budget="6GiB"); remat="blocks" for a choice without a budget',
            )
        if self.budget is not None:
            parse_bytes(self.budget)
        if self.segments is not None:
            object.__setattr__(self, "segments", tuple(_pair(segment) for segment in self.segments))

    @property
    def budget_bytes(self) -> int | None:
        """The budget as a number."""
        return None if self.budget is None else parse_bytes(self.budget)

    def __str__(self) -> str:
        """In a few words.

        >>> str(Remat(segments=[("conv1", "add")]))
        '1 segment'
        """
        if self.segments is None:
            return f"within {format_bytes(self.budget_bytes)}"
        return "1 segment" if len(self.segments) == 1 else f"{len(self.segments)} segments"

    def to_dict(self) -> dict[str, object]:
        """The one that was given."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _pair(segment: Sequence[str]) -> tuple[str, str]:
    names = (segment,) if isinstance(segment, str) else tuple(segment)
    if not 1 <= len(names) <= 2 or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"A segment is the names of its first and its last layer. Received: {segment!r}.",
            hint="`fitroom segments MODEL` lists the layers in their order",
        )
    return names[0], names[-1]
