"""What long work is doing at the moment: told by whoever does it, in any layer, and shown by a command.

Where nobody watches, as in a script, telling costs nothing and shows nothing.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Activity:
    """One thing that takes a while."""

    text: str
    """Such as "tracing the step"."""

    expected_seconds: float | None = None
    """How long it will take, as far as is known."""

    began: float = field(default_factory=time.monotonic)


class Activities:
    """What is under way in one command, from the whole to its smallest part, for a view that another thread draws."""

    def __init__(self, announce: Callable[[str], None] = lambda text: None) -> None:
        self.announce = announce
        self._under_way: tuple[Activity, ...] = ()

    @property
    def under_way(self) -> tuple[Activity, ...]:
        """What is being done, the whole first."""
        return self._under_way

    def begin(self, one: Activity) -> None:
        """Add a part of what is being done."""
        self._under_way = (*self._under_way, one)

    def end(self, one: Activity) -> None:
        """Remove a part and what was begun within it."""
        if one in self._under_way:
            self._under_way = self._under_way[: self._under_way.index(one)]

    def change_whole(self, one: Activity) -> None:
        """Go on to the next of the things that the work consists of."""
        self._under_way = (one,)


_watching: ContextVar[Activities | None] = ContextVar("activities", default=None)


@contextmanager
def watching(activities: Activities) -> Iterator[None]:
    """Have what is told within the block added to `activities`.

    >>> told = Activities()
    >>> with watching(told), activity("building the model"):
    ...     [each.text for each in told.under_way]
    ['building the model']
    """
    token = _watching.set(activities)
    try:
        yield
    finally:
        _watching.reset(token)


@contextmanager
def activity(text: str, *, expected_seconds: float | None = None) -> Iterator[None]:
    """Tell that something is being done within the block."""
    watched = _watching.get()
    if watched is None:
        yield
        return
    one = Activity(text=text, expected_seconds=expected_seconds)
    watched.begin(one)
    try:
        yield
    finally:
        watched.end(one)


def begin_part(text: str, *, expected_seconds: float | None = None) -> bool:
    """Tell that the next part of long work begins; it lasts until the next is told. Returns whether anybody watches."""
    if watched := _watching.get():
        watched.change_whole(Activity(text=text, expected_seconds=expected_seconds))
    return watched is not None


def announce(text: str) -> bool:
    """Show a line that stays. Returns whether anybody watches."""
    if watched := _watching.get():
        watched.announce(text)
    return watched is not None
