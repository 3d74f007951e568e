"""What is in memory at each moment of a training step.

A backend traces a step into a timeline; peaks and their split by kind, layer and phase are read off it here,
the same way for every backend.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, get_args

Kind = Literal["weights", "gradients", "optimizer", "activations", "workspace", "input", "other"]
Phase = Literal["forward", "backward", "update"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PHASES: tuple[Phase, ...] = get_args(Phase)

NO_LAYER = "(no layer)"
INPUT_LAYER = "(input batch)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Buffer:
    """A piece of memory and the moments at which it is held, both ends included."""

    size_bytes: int
    kind: Kind
    layer: str | None
    """The path of the Keras layer it belongs to, or None where it belongs to none."""
    first: int
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """One operation of the step, in the order in which they run."""

    name: str
    layer: str | None
    phase: Phase | None
    """None where the compiler does not tell."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The buffers of one training step over its moments."""

    buffers: tuple[Buffer, ...]
    moments: tuple[Moment, ...]

    @cached_property
    def usage_bytes(self) -> tuple[int, ...]:
        """Bytes in use at each moment."""
        return self._usage(self.buffers)

    def usage_bytes_of(self, kind: Kind) -> tuple[int, ...]:
        """Bytes of one kind in use at each moment."""
        return self._usage(tuple(buffer for buffer in self.buffers if buffer.kind == kind))

    @cached_property
    def peak_moment(self) -> int:
        """The first moment at which the most bytes are in use."""
        return max(range(len(self.moments)), key=self.usage_bytes.__getitem__)

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use at once."""
        return self.usage_bytes[self.peak_moment]

    @property
    def peak_layer(self) -> str | None:
        """The layer whose operation runs at the peak."""
        return self.moments[self.peak_moment].layer

    def with_peak(self, peak_bytes: int) -> "Timeline":
        """The same with a peak that was measured; what the buffers do not explain is of kind "other"."""
        unexplained = Buffer(
            size_bytes=peak_bytes - self.peak_bytes, kind="other", layer=None, first=0, last=len(self.moments) - 1
        )
        return Timeline(buffers=(*self.buffers, unexplained), moments=self.moments)

    def followed_by(self, other: "Timeline") -> "Timeline":
        """Join two timelines, one after the other, as if they were one step. Buffers that live in both are in each."""
        later = len(self.moments)
        shifted = (replace(buffer, first=buffer.first + later, last=buffer.last + later) for buffer in other.buffers)
        return Timeline(buffers=(*self.buffers, *shifted), moments=(*self.moments, *other.moments))

    def condense(self) -> "Timeline":
        """Reduce it to one moment a phase, with the same peaks, `by_kind`, `by_layer` and `by_phase`.

        Of the phases without the peak only the sizes remain.
        """
        phase = self.moments[self.peak_moment].phase
        split: Counter[tuple[Kind, str | None]] = Counter()
        for buffer in self._live_at(self.peak_moment):
            split[buffer.kind, buffer.layer] += buffer.size_bytes
        others = [(other, size) for other, size in self.by_phase().items() if other != phase and size is not None]
        buffers = [
            Buffer(size_bytes=size, kind=kind, layer=layer, first=0, last=0) for (kind, layer), size in split.items()
        ]
        buffers += [
            Buffer(size_bytes=size, kind="other", layer=None, first=at, last=at)
            for at, (_, size) in enumerate(others, start=1)
        ]
        return Timeline(
            buffers=tuple(buffers),
            moments=(
                self.moments[self.peak_moment],
                *(Moment(name=other, layer=None, phase=other) for other, _ in others),
            ),
        )

    def by_kind(self) -> dict[Kind, int]:
        """The peak split by kind; every kind is named and the sum is `peak_bytes`."""
        split = Counter(dict.fromkeys(KINDS, 0))
        for buffer in self._live_at(self.peak_moment):
            split[buffer.kind] += buffer.size_bytes
        return dict(split)

    def by_layer(self) -> dict[str, int]:
        """The peak split by layer, largest first; the sum is `peak_bytes`."""
        split: Counter[str] = Counter()
        for buffer in self._live_at(self.peak_moment):
            nameless = INPUT_LAYER if buffer.kind == "input" else NO_LAYER
            split[buffer.layer or nameless] += buffer.size_bytes
        return dict(split.most_common())

    def by_phase(self) -> dict[Phase, int | None]:
        """The peak within each phase; None where the compiler does not tell."""
        peaks: dict[Phase, int | None] = dict.fromkeys(PHASES)
        for moment, usage_bytes in zip(self.moments, self.usage_bytes, strict=True):
            if moment.phase is not None:
                peaks[moment.phase] = max(peaks[moment.phase] or 0, usage_bytes)
        return peaks

    def _live_at(self, moment: int) -> list[Buffer]:
        return [buffer for buffer in self.buffers if buffer.first <= moment <= buffer.last]

    def _usage(self, buffers: tuple[Buffer, ...]) -> tuple[int, ...]:
        changes = [0] * (len(self.moments) + 1)
        for buffer in buffers:
            changes[buffer.first] += buffer.size_bytes
            changes[buffer.last + 1] -= buffer.size_bytes
        return tuple(accumulate(changes[:-1]))

    def to_dict(self) -> dict[str, Any]:
        """As plain lists, for JSON."""
        return {
            "buffers": [[b.size_bytes, b.kind, b.layer, b.first, b.last] for b in self.buffers],
            "moments": [[m.name, m.layer, m.phase] for m in self.moments],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Timeline":
        """The timeline that `to_dict` wrote."""
        return cls(
            buffers=tuple(
                Buffer(size_bytes=size, kind=kind, layer=layer, first=first, last=last)
                for size, kind, layer, first, last in data["buffers"]
            ),
            moments=tuple(Moment(name=name, layer=layer, phase=phase) for name, layer, phase in data["moments"]),
        )
