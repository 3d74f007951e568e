"""What happens in training that a user should know, said once and kept."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

Event = dict[str, Any]
"""Its "kind", a "message" for people, where it happened ("epoch" and "batch" from 0), and facts of its kind."""

Hear = Callable[[Event], None]

_log = logging.getLogger("fitroom")
_listeners: ContextVar[tuple[Hear, ...]] = ContextVar("fitroom listeners", default=())


@contextlib.contextmanager
def listening(hear: Hear) -> Iterator[None]:
    """Have `hear` called with each event of the trainings begun within, in place of the logger's line.

    Who listens further out hears them too. An event may come from another thread: that of the checkpoints.

    >>> with listening(lambda event: print(event["kind"])):
    ...     Events().tell("resumed", "going on at batch 3")["message"]
    resumed
    'going on at batch 3'
    """
    token = _listeners.set((*_listeners.get(), hear))
    try:
        yield
    finally:
        _listeners.reset(token)


class Events:
    """Says what happened, to those who listen or on stderr (through the logger "fitroom"), and keeps it for History and
    the run folder."""

    def __init__(self, write: Callable[[Event], None] | None = None) -> None:
        self.happened: list[Event] = []
        self.write = write
        self.where: dict[str, int] = {}
        """The epoch and the batch under way."""
        # Taken here, since the thread that writes checkpoints tells of them too.
        self._listeners = _listeners.get()
        self._said_once: set[str] = set()

    def tell(self, kind: str, message: str, **facts: Any) -> Event:
        """One thing that happened, as it is kept."""
        event = {"kind": kind, "message": message, **self.where, **facts}
        if not self._listeners:
            # A warning, since Python shows those to people who never heard of logging.
            _log.warning("fitroom: %s", message)
        for hear in self._listeners:
            with contextlib.suppress(OSError):  # a terminal that went away is no reason to stop
                hear(event)
        self.happened.append(event)
        if self.write is not None:
            self.write(event)
        return event

    def tell_once(self, kind: str, message: str, **facts: Any) -> None:
        """The same, the first time only."""
        if kind not in self._said_once:
            self._said_once.add(kind)
            self.tell(kind, message, **facts)
