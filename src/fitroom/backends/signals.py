"""Signals deferred to the end of a block, so that Ctrl-C and SIGTERM cannot interrupt an update halfway."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_DEFERRED = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Run the handlers of SIGINT and SIGTERM at the end of the block instead of within it.

    Python runs handlers in the main thread only, so in other threads there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, Any]] = []
    own = {number: signal.getsignal(number) for number in _DEFERRED}
    handlers = {number: handler for number, handler in own.items() if callable(handler)}
    for deferred in handlers:
        signal.signal(deferred, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        for deferred, handler in handlers.items():
            signal.signal(deferred, handler)
        for number, frame in received:
            handlers[signal.Signals(number)](number, frame)
