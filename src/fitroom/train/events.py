"""What happens in training that a user should know, said once and kept."""

import logging
from collections.abc import Callable
from typing import Any

_log = logging.getLogger("fitroom")


class Events:
    """Says what happened on stderr (through the logger "fitroom") and keeps it for History and the run folder."""

    def __init__(self, write: Callable[[dict[str, Any]], None] | None = None) -> None:
        self.happened: list[dict[str, Any]] = []
        self.write = write
        self._said_once: set[str] = set()

    def tell(self, kind: str, message: str, **facts: Any) -> dict[str, Any]:
        """One thing that happened, as it is kept."""
        # A warning, since Python shows those to people who never heard of logging.
        _log.warning("fitroom: %s", message)
        event = {"kind": kind, "message": message, **facts}
        self.happened.append(event)
        if self.write is not None:
            self.write(event)
        return event

    def tell_once(self, kind: str, message: str, **facts: Any) -> None:
        """The same, the first time only."""
        if kind not in self._said_once:
            self._said_once.add(kind)
            self.tell(kind, message, **facts)
