"""How many trials run at once: as many as their predicted bytes and the host's memory allow."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from fitroom.data.host_memory import available_bytes
from fitroom.errors import InputError
from fitroom.units import parse_bytes

HOST_BYTES = 2 * 1024**3
"""What a process is taken to need of the host, unless the user says: a framework, its libraries and some batches."""

_SECONDS_BETWEEN_LOOKS = 0.2

_SLACK_BYTES, _SLACK_SHARE = 512 * 1024**2, 0.2
"""What a trial may take on a card beside what is predicted. Under the prediction alone three small nets of JAX 0.11 ran
out of memory on an H200 and had to be repeated; why is not recorded, but JAX tries kernels out beside the step."""


@dataclass(eq=False)
class Seat:
    """Memory that is reserved for one trial."""

    device_bytes: int | None
    """None: it is not known, and the trial runs alone."""

    is_alone: bool
    pid: int | None = None
    """Of its process, once it is started."""


class Room:
    """The memory that trials share."""

    def __init__(
        self, *, budget: int | str | None = None, host_bytes: int | str | None = None, at_once: int | None = None
    ) -> None:
        """Find out how much there is.

        Args:
            budget: bytes of the card for all trials together; None: what is free on it now, and without a card the
                host's available memory.
            host_bytes: bytes of the host for each process; None: 2 GiB, without a card beside the predicted ones.
            at_once: the most trials at once. With it, trials without a prediction run side by side, too. None: as many
                as fit, without a card at most one for each core.
        """
        from fitroom.cards.nvml import live_gpus

        if at_once is not None and (isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1):
            raise InputError(f"`at_once` must be a whole number, at least 1. Received: {at_once!r}.")
        gpus = live_gpus()
        self.has_card = bool(gpus)
        self.at_once = at_once
        self.budget_bytes = (
            parse_bytes(budget) if budget is not None else gpus[0].free_bytes if gpus else available_bytes()
        )
        self._host_bytes = parse_bytes(host_bytes) if host_bytes is not None else HOST_BYTES
        self._seats: list[Seat] = []
        self._changed = threading.Condition()

    @property
    def is_shared(self) -> bool:
        """Whether another trial may start while one runs."""
        return self.at_once != 1

    def find_cap(self, device_bytes: int | None) -> int | None:
        """The part of the card that a trial may take beside others; None for no limit."""
        if not device_bytes or not self.is_shared:
            return None
        slack_bytes = max(_SLACK_BYTES, int(_SLACK_SHARE * device_bytes)) if self.has_card else 0
        return min(device_bytes + slack_bytes, self.budget_bytes)

    def fits(self, device_bytes: int | None) -> bool:
        """Whether a trial can ever run here, as predicted."""
        return device_bytes is None or device_bytes <= self.budget_bytes

    def try_take(self, device_bytes: int | None, *, is_alone: bool = False) -> Seat | None:
        """Reserve memory for a trial, or return None where it has to wait for others."""
        with self._changed:
            is_alone = is_alone or (device_bytes is None and self.at_once is None)
            if self._seats and (is_alone or not self._has_room(device_bytes)):
                return None
            seat = Seat(device_bytes=device_bytes, is_alone=is_alone)
            self._seats.append(seat)
            return seat

    def give_back(self, seat: Seat) -> None:
        """Free what was reserved."""
        with self._changed:
            self._seats.remove(seat)
            self._changed.notify_all()

    @contextlib.contextmanager
    def take(self, device_bytes: int | None, *, is_alone: bool = False) -> Iterator[Seat]:
        """Reserve memory for the block; waits until there is some."""
        while (seat := self.try_take(device_bytes, is_alone=is_alone)) is None:
            with self._changed:
                self._changed.wait(_SECONDS_BETWEEN_LOOKS)
        try:
            yield seat
        finally:
            self.give_back(seat)

    def _has_room(self, device_bytes: int | None) -> bool:
        # On a CPU trials share the cores, too.
        most = self.at_once or (None if self.has_card else _count_cores())
        if any(seat.is_alone for seat in self._seats) or (most is not None and len(self._seats) >= most):
            return False
        reserved_bytes = sum(self.find_cap(seat.device_bytes) or 0 for seat in self._seats)
        if reserved_bytes + (self.find_cap(device_bytes) or 0) > self.budget_bytes:
            return False
        not_yet_taken_bytes = sum(max(0, self._needed_bytes(seat) - _resident_bytes(seat.pid)) for seat in self._seats)
        wanted_bytes = self._needed_bytes(Seat(device_bytes=device_bytes, is_alone=False))
        return available_bytes() - not_yet_taken_bytes >= wanted_bytes

    def _needed_bytes(self, seat: Seat) -> int:
        """What a trial takes of the host: without a card, what was predicted lies there too."""
        return self._host_bytes + (0 if self.has_card else seat.device_bytes or 0)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _resident_bytes(pid: int | None) -> int:
    import psutil

    try:
        return int(psutil.Process(pid).memory_info().rss) if pid is not None else 0
    except psutil.Error:
        return 0
