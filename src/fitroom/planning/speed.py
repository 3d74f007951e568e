"""How fast a recipe is, and how that is known."""

from dataclasses import dataclass
from typing import Any, Literal

SpeedMethod = Literal["roofline", "measured"]
"""roofline: from what the card's datasheet says and measured efficiencies. measured: a few steps on the card."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Of one optimizer step."""

    seconds_per_step: float
    samples_per_second: float
    method: SpeedMethod

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "seconds_per_step": round(self.seconds_per_step, 6),
            "samples_per_second": round(self.samples_per_second, 2),
            "method": self.method,
        }
