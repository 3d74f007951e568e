"""An explanation: what a crash log says, why, and what to try next."""

from dataclasses import asdict, dataclass
from typing import Any

from fitroom.display import RichDisplay
from fitroom.explaining.advice import Setting
from fitroom.explaining.cause import Cause
from fitroom.explaining.failure import Failure


@dataclass(frozen=True, kw_only=True)
class Explanation(RichDisplay):
    """What happened, why, and the next settings to try. Nothing is stated that the text does not show."""

    failure: Failure | None
    """The failure that ended the program; None where nothing was recognised."""

    cause: Cause | None
    settings: tuple[Setting, ...] = ()
    """What to try, those that change nothing about the result first."""

    notes: tuple[str, ...] = ()
    """What the reader should know, in whole sentences."""

    required_bytes: int | None = None
    """What the step needs as it was, by an estimate of the user's model; None without one."""

    line_count: int = 0
    """How many lines were read."""

    @property
    def recognised(self) -> bool:
        """Whether a failure of memory was found."""
        return self.failure is not None

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "recognised": self.recognised,
            "failure": self.failure.to_dict() if self.failure else None,
            "cause": asdict(self.cause) if self.cause else None,
            "settings": [asdict(setting) for setting in self.settings],
            "required_bytes": self.required_bytes,
            "notes": list(self.notes),
            "line_count": self.line_count,
        }
