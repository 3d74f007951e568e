"""When a checkpoint is due, and the thread that writes it."""

import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from fitroom.runs.checkpoint import Checkpoint, write

EVERY_SECONDS = 60.0
MOST_SHARE = 0.02
"""The largest share of the time that checkpoints within an epoch may hold up training."""


class Cadence:
    """Says after each batch whether to write a checkpoint.

    Every so many batches, where a number was asked for. Otherwise every `every_seconds`, and less often where holding
    up training for one takes more than 2 % of that: a checkpoint of 3 s is due every 150 s. An epoch's end is always
    due.

    >>> clock = iter(range(0, 1000, 10)).__next__
    >>> cadence = Cadence(clock=clock)
    >>> [cadence.is_due() for _ in range(7)]
    [False, False, False, False, False, True, True]
    >>> cadence.note_written(held_up_seconds=0.1)
    >>> cadence.is_due(), cadence.is_due(at_epoch_end=True)
    (False, True)
    """

    def __init__(
        self,
        *,
        every_batches: int | None = None,
        every_seconds: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_batches = every_batches
        self._asked_seconds = every_seconds
        self._every_seconds = every_seconds
        self._clock = clock
        self._num_batches = 0
        self._last = clock()

    def is_due(self, *, at_epoch_end: bool = False) -> bool:
        """Whether to write a checkpoint now. Call it once a batch, and once at an epoch's end."""
        self._num_batches += not at_epoch_end
        if at_epoch_end:
            return True
        if self._every_batches is not None:
            return self._num_batches >= self._every_batches
        return self._clock() - self._last >= self._every_seconds

    def note_written(self, *, held_up_seconds: float) -> None:
        """Note that a checkpoint was taken, which held up training for so long."""
        self._num_batches = 0
        self._last = self._clock()
        self._every_seconds = max(self._asked_seconds, held_up_seconds / MOST_SHARE)


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)


class CheckpointWriter:
    """Writes checkpoints in a thread of its own: one being written and one waiting, at most.

    One that cannot be written (a full disk) is warned of once, and training continues; the next one is tried again.
    """

    def __init__(self, folder: Path, *, warn: Callable[[str], None] = _warn) -> None:
        self.folder = folder
        self._warn = warn
        self._changed = threading.Condition()
        self._waiting: Checkpoint | None = None
        self._is_writing = False
        self._is_closed = False
        self._error: BaseException | None = None
        self._has_warned = False
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written or waits for it."""
        with self._changed:
            return self._is_writing or self._waiting is not None

    def submit(self, checkpoint: Checkpoint) -> None:
        """Queue a checkpoint; its arrays are not copied. It replaces one that still waits."""
        self._report_errors()
        with self._changed:
            self._waiting = checkpoint
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="fitroom-checkpoints", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self) -> bool:
        """Wait until all is written. Returns whether the last queued checkpoint is on the disk."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_writing and self._waiting is None)
        return self._report_errors()

    def close(self) -> bool:
        """Flush, and end the thread. Returns what `flush` does."""
        is_written = self.flush()
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._is_closed = False
        return is_written

    def _report_errors(self) -> bool:
        """Warn in the caller's thread, where filters and notebooks see it. Returns whether all went well."""
        with self._changed:
            error = self._error
        if error is None:
            self._has_warned = False
            return True
        if not isinstance(error, OSError):  # not the disk's fault: this checkpoint can never be written
            self._error = None
            raise error
        if not self._has_warned:
            self._has_warned = True
            self._warn(
                f"A checkpoint could not be written to {self.folder}: {error.strerror or error}. Training continues, "
                "and the checkpoint before it is kept; make room, or a killed run resumes from there."
            )
        return False

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting is not None or self._is_closed)
                if self._waiting is None:
                    return
                checkpoint, self._waiting, self._is_writing = self._waiting, None, True
            error: BaseException | None = None
            try:
                write(self.folder, checkpoint)
            except BaseException as raised:
                error = raised
            del checkpoint  # the next one may need its memory
            with self._changed:
                self._error, self._is_writing = error, False
                self._changed.notify_all()
