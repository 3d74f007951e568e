"""What `fitroom doctor` found: one finding for each thing that was checked."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fitroom.display import RichDisplay

Status = Literal["pass", "warning", "failure"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check."""

    status: Status
    """"failure": training does not work, or not on the card that is there."""

    name: str
    """What was checked; the same in every version, so that scripts can look for it."""

    found: str
    """A sentence for people."""

    fix: str | None = None
    """A command or a line of code; None where nothing has to be done, or nothing can be."""

    facts: dict[str, Any] = field(default_factory=dict)
    """The figures behind it, as JSON takes them; bytes are named `*_bytes`."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis(RichDisplay):
    """All findings on a machine, in the order of the checks. It can be iterated over and prints itself."""

    backend: str
    """The backend of Keras that was checked."""

    findings: tuple[Finding, ...]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __getitem__(self, name: str) -> Finding:
        """The first finding of that name. Raises KeyError where that was not checked."""
        for finding in self.findings:
            if finding.name == name:
                return finding
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(finding.name == name for finding in self.findings)

    def having(self, status: Status) -> tuple[Finding, ...]:
        """The findings of one status."""
        return tuple(finding for finding in self.findings if finding.status == status)

    @property
    def is_ok(self) -> bool:
        """Whether nothing failed: training runs on the card, or the machine has none."""
        return not self.having("failure")

    @property
    def uses_gpu(self) -> bool:
        """Whether the backend trains on an accelerator here."""
        return "device" in self and self["device"].facts.get("kind") in ("gpu", "other")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "backend": self.backend,
            "ok": self.is_ok,
            "uses_gpu": self.uses_gpu,
            "findings": [asdict(finding) for finding in self.findings],
        }
