"""A thread that reads at intervals, and less often where reading takes too long."""

import threading
import time
from collections.abc import Callable

_MAX_SHARE = 0.003
"""Of the time, at most, that the thread may take of a core."""

_FIRST_PAUSE_SECONDS = 0.05
"""The first readings come quickly: a short training should have some too."""

_GROWTH = 1.5
_READINGS_PER_DOUBLING = 3600
"""After so many readings they come half as often, so that a training of days is a few thousand readings."""


class Sampler:
    """Calls a function about every `interval` seconds in a thread of its own, from `start` to `stop`."""

    def __init__(self, take: Callable[[], None], interval: float) -> None:
        self.own_seconds = 0.0
        """The processor time that the calls took."""
        self._take, self._interval = take, interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fitroom watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the call that is under way. May be called by the function itself."""
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        pause, calls = min(_FIRST_PAUSE_SECONDS, self._interval), 0
        while not self._stopping.wait(pause):
            before = time.thread_time()
            self._take()
            seconds = time.thread_time() - before
            self.own_seconds += seconds
            calls += 1
            longest = self._interval * 2 ** (calls // _READINGS_PER_DOUBLING)
            pause = max(min(longest, pause * _GROWTH), seconds / _MAX_SHARE)
