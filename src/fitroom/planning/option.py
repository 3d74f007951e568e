"""The alternatives of a plan: a recipe with its memory, its speed, and what it changes about the result."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fitroom.recipe import Recipe

SpeedMethod = Literal["roofline", "measured"]
"""roofline: predicted from the card's datasheet and measured efficiencies. measured: a few steps on the card."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The speed of one optimizer step, and how it is known."""

    seconds_per_step: float
    samples_per_second: float
    method: SpeedMethod

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "seconds_per_step": round(self.seconds_per_step, 6),
            "samples_per_second": round(self.samples_per_second, 2),
            "method": self.method,
        }


@dataclass(frozen=True, kw_only=True)
class Change:
    """One knob that differs from what the user has."""

    knob: str
    """The name of the field of `Recipe`."""

    before: str
    after: str
    effect: str
    """What it changes about the result, one of the values of `fitroom.recipe.Effect`."""

    def to_dict(self) -> dict[str, str]:
        """Return plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Option:
    """A recipe with its memory, its speed, and what it changes."""

    recipe: Recipe
    """Knobs that stay as the model has them are None."""

    micro_batch: int
    """The largest micro-batch; the whole batch where it is not split."""

    peak_bytes: int
    required_bytes: int
    fits: bool
    """Whether `required_bytes` and the plan's reserve are within the budget."""

    confirmed: bool
    """Whether its memory was estimated at its real size; otherwise it is interpolated from other sizes."""

    speed: Speed | None
    """None where the model's layers form no graph, so their operations cannot be counted."""

    changes: tuple[Change, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "recipe": self.recipe.to_dict(),
            "micro_batch": self.micro_batch,
            "peak_bytes": self.peak_bytes,
            "required_bytes": self.required_bytes,
            "fits": self.fits,
            "confirmed": self.confirmed,
            "speed": self.speed.to_dict() if self.speed else None,
            "changes": [change.to_dict() for change in self.changes],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Option":
        """Read what `to_dict` returned."""
        return cls(
            **dict(data)
            | {
                "recipe": Recipe(**data["recipe"]),
                "speed": Speed(**data["speed"]) if data["speed"] else None,
                "changes": tuple(Change(**change) for change in data["changes"]),
            }
        )
