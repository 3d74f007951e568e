"""A stretch of code that Ctrl-C and SIGTERM do not cut in two."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

_HELD_BACK = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Hold signals back to the end of the block; their handlers run then. Other threads get no signals anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, Any]] = []
    own = {number: signal.getsignal(number) for number in _HELD_BACK}
    handlers = {number: handler for number, handler in own.items() if callable(handler)}
    for held_back in handlers:
        signal.signal(held_back, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        for held_back, handler in handlers.items():
            signal.signal(held_back, handler)
        for number, frame in came:
            handlers[signal.Signals(number)](number, frame)
