"""Events of a training that a user should know: shown or handed to listeners, and recorded."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

Event = dict[str, Any]
"""Its "kind", a "message" for people, where it happened ("epoch" and "batch" from 0), and facts of its kind."""

OnEvent = Callable[[Event], None]

_log = logging.getLogger("fitroom")
_listeners: ContextVar[tuple[OnEvent, ...]] = ContextVar("fitroom listeners", default=())


@contextlib.contextmanager
def listening(on_event: OnEvent) -> Iterator[None]:
    """Have `on_event` called with each event of the trainings begun within the block, in place of the logger's line.

    Listeners of enclosing blocks are called too. An event may come from the thread that writes checkpoints.

    >>> with listening(lambda event: print(event["kind"])):
    ...     Events().tell("resumed", "resuming at batch 3")["message"]
    resumed
    'resuming at batch 3'
    """
    token = _listeners.set((*_listeners.get(), on_event))
    try:
        yield
    finally:
        _listeners.reset(token)


class Events:
    """Passes events to the listeners, or to stderr through the logger "fitroom", and keeps them for `History` and the
    run folder."""

    def __init__(self, write: Callable[[Event], None] | None = None) -> None:
        self.happened: list[Event] = []
        self.write = write
        self.where: dict[str, int] = {}
        """The epoch and the batch under way."""
        # Taken here, since the thread that writes checkpoints tells of them too.
        self._listeners = _listeners.get()
        self._said_once: set[str] = set()

    def tell(self, kind: str, message: str, **facts: Any) -> Event:
        """Publish one event, and return it as it is recorded."""
        event = {"kind": kind, "message": message, **self.where, **facts}
        if not self._listeners:
            # A warning, since Python shows those to people who never heard of logging.
            _log.warning("fitroom: %s", message)
        for on_event in self._listeners:
            with contextlib.suppress(OSError):  # a terminal that went away is no reason to stop
                on_event(event)
        self.happened.append(event)
        if self.write is not None:
            self.write(event)
        return event

    def tell_once(self, kind: str, message: str, **facts: Any) -> None:
        """Publish an event of a kind the first time only."""
        if kind not in self._said_once:
            self._said_once.add(kind)
            self.tell(kind, message, **facts)
