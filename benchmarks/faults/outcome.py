"""What came of provoking faults of one kind: how many were tried, survived and lost."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Outcome:
    """Counts of one kind of fault."""

    kind: str
    backend: str | None = None
    tries: int = 0
    survived: int = 0
    lost: list[str] = field(default_factory=list)
    """A line for each that was lost: what was done, and what came of it."""

    hangs: int = 0
    code_run: int = 0
    figures: dict[str, Any] = field(default_factory=dict)
    """What else was counted."""

    def add(self, what: str, problem: str | None, *, count: int = 1) -> None:
        """So many tries more, none where no fault came about; `problem` is None where they were survived."""
        if problem is None:
            self.tries += count
            self.survived += count
            return
        self.tries += max(1, count)
        self.lost.append(f"{what}: {problem}")
        self.hangs += "hangs" in problem
        self.code_run += "ran code" in problem

    def to_dict(self) -> dict[str, Any]:
        """As a line of results has it."""
        counts = {"tries": self.tries, "survived": self.survived, "lost": len(self.lost)}
        return (
            {"kind": self.kind, "backend": self.backend}
            | counts
            | {"hangs": self.hangs, "code_run": self.code_run}
            | self.figures
            | {"lost_cases": self.lost[:20]}
        )
