"""The peak of each phase of a step: forward pass, backward pass, update. Measured on PyTorch."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from fitroom.backends.contract import Backend
from fitroom.memory.timeline import PHASES, Phase

_MAX_SHARE = 0.003
"""Of the time, at most, that reading the counters within steps may take."""

_ENTERED: dict[str, Phase] = {"backward begins": "backward", "update begins": "update"}


@dataclass(frozen=True, kw_only=True)
class PhaseSlice:
    """One phase of a step that was measured."""

    phase: Phase
    begin: float
    end: float
    """In seconds by `time.perf_counter`."""

    peak_bytes: int


class PhaseMeter:
    """Reads the peak at the boundaries of phases, in some of the steps: so few that it costs next to nothing.

    What is neither backward pass nor update counts as forward pass. A measured step begins where an update ended and
    ends with the next one.
    """

    def __init__(self, take_peak: Callable[[], int | None], clock: Callable[[], float] = time.perf_counter) -> None:
        """`take_peak` reads the peak since it was last called, and resets it."""
        self.slices: list[PhaseSlice] = []
        """The phases of the last step that was measured."""
        self.peak_bytes: dict[Phase, int] = {}
        """The highest peak of each phase that was measured."""
        self._take_peak, self._clock = take_peak, clock
        self._step: list[PhaseSlice] | None = None
        self._phase: Phase = "forward"
        self._since = 0.0
        self._next_step = clock()
        self._thread: int | None = None

    def on_mark(self, mark: str) -> None:
        """A phase begins or ends. Updates of another thread than the first one's are not looked at."""
        self._thread = self._thread or threading.get_ident()
        if self._thread != threading.get_ident():
            return
        if self._step is not None:
            self._close_slice(_ENTERED.get(mark, "forward"))
        if mark == "update ends":
            self._end_step()

    def _close_slice(self, entered: Phase) -> None:
        began = self._clock()
        peak_bytes = self._take_peak()
        if peak_bytes is not None and self._step is not None:
            self._step.append(PhaseSlice(phase=self._phase, begin=self._since, end=began, peak_bytes=peak_bytes))
        self._phase, self._since = entered, self._clock()
        self._next_step += (self._since - began) / _MAX_SHARE

    def _end_step(self) -> None:
        if self._step:
            for phase in PHASES:
                peaks = [each.peak_bytes for each in self._step if each.phase == phase]
                if peaks:
                    self.peak_bytes[phase] = max(*peaks, self.peak_bytes.get(phase, 0))
            self.slices = self._step
        now = self._clock()
        self._step = None
        if now >= self._next_step:
            self._step, self._phase, self._next_step = [], "forward", now
            self._take_peak()
            self._since = self._clock()


def measure_phases(backend: Backend, meter: "PhaseMeter") -> AbstractContextManager[Any]:
    """Have the meter told of phases within the block, where the backend's steps show them from outside."""
    if backend.name != "torch":
        return nullcontext()
    from fitroom.backends.torch.phases import marking_phases

    return marking_phases(meter.on_mark)
