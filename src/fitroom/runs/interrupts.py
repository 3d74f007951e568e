"""Ctrl-C and SIGTERM as a request: finish the batch, save, exit."""

import os
import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Within the block the first signal only sets `signal_number`, which the loop checks after each batch.

    A Ctrl-C after that raises KeyboardInterrupt immediately. Outside of the main thread, where Python delivers no
    signals, it does nothing; and a signal that the process ignores (`nohup`) stays ignored.

        with Interrupts() as interrupted:
            for batch in batches:
                train(batch)
                if interrupted.signal_number is not None:
                    break
    """

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._pid = os.getpid()

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler not in (None, signal.SIG_IGN):  # None: set by C code, and could not be restored
                    self._before[number] = handler
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:  # not one that was set since
                signal.signal(number, handler)
        self._before.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            _handle_in_worker(number)
        elif self.signal_number is None:
            self.signal_number = number
            # Not print: the signal may have come in the middle of one.
            os.write(2, b"\nfitroom: stopping after this batch, to save it; Ctrl-C again stops at once.\n")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt


def _handle_in_worker(number: int) -> None:
    """Handle a signal in a forked data worker: a terminal's Ctrl-C reaches it too, but the batch still needs it."""
    if number == signal.SIGTERM:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
