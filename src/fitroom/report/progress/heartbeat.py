"""A thread that speaks up where a command would be mute."""

import threading
import time
from collections.abc import Callable

SECONDS_BETWEEN = 3.0
"""How long a log is silent at most, as far as Python gets to run: a framework that is being imported may hold it up."""


class Heartbeat:
    """A thread that calls `beat` whenever nothing was heard for a while."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._heard = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fitroom heartbeat", daemon=True)

    def begin(self) -> None:
        """Start to listen."""
        self._thread.start()

    def end(self) -> None:
        """Stop; nothing is said after that."""
        self._over.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def hear(self) -> None:
        """Note that something was said just now."""
        self._heard = time.monotonic()

    def _run(self) -> None:
        while not self._over.wait(max(0.05, self._heard + SECONDS_BETWEEN - time.monotonic())):
            if time.monotonic() - self._heard >= SECONDS_BETWEEN:
                self.hear()
                self._beat()
