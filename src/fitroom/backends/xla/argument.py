"""What a compiled step is given: the arrays that are on the device before it starts."""

from dataclasses import dataclass

from fitroom.memory.timeline import Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """One array that the step is given and that stays on the device."""

    size_bytes: int
    kind: Kind
    layer: str | None
