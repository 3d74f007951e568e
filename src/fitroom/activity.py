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
    """Such as "estimate 2 of about 4"."""

    expected_seconds: float | None = None
    """How long it will take, as far as is known."""

    began: float = field(default_factory=time.monotonic)

    def describe(self, part: "Activity | None", now: float) -> str:
        """What it is, what part of it is under way, and for how long.

        >>> Activity(text="estimate 2 of 3", expected_seconds=12, began=0).describe(Activity(text="compiling"), 5.2)
        'estimate 2 of 3: compiling, 5 of about 12 s'
        """
        doing = f"{self.text}: {part.text}" if part else self.text
        expected = f" of about {self.expected_seconds:.0f}" if self.expected_seconds else ""
        return f"{doing}, {now - self.began:.0f}{expected} s"


def _ignore(text: str) -> None:
    """Show a text nowhere."""


class Activities:
    """What is under way in one command, from the whole to its smallest part, for a view that another thread draws."""

    def __init__(
        self, *, when_begun: Callable[[str], None] = _ignore, announce: Callable[[str], None] = _ignore
    ) -> None:
        """`when_begun` is called with a text when the next step of the work begins, `announce` with lines that stay."""
        self.when_begun, self.announce = when_begun, announce
        self._under_way: tuple[Activity, ...] = ()

    @property
    def under_way(self) -> tuple[Activity, ...]:
        """What is being done, the whole first."""
        return self._under_way

    def begin_step(self, text: str, detail: str = "", *, expected_seconds: float | None = None) -> None:
        """Go on to the next of the steps that the work consists of."""
        self._under_way = (Activity(text=text, expected_seconds=expected_seconds),)
        self.when_begun(f"{text}: {detail}" if detail else text)

    def describe(self) -> str | None:
        """What is being done, and for how long; None for nothing."""
        step, *parts = self._under_way or (None,)
        return step.describe(parts[-1] if parts else None, time.monotonic()) if step else None

    @contextmanager
    def within(self, part: Activity) -> Iterator[None]:
        """Have a part of what is being done under way within the block."""
        before = self._under_way
        self._under_way = (*before, part)
        try:
            yield
        finally:
            self._under_way = before


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
def activity(text: str) -> Iterator[None]:
    """Tell that something is being done within the block, as a part of the step that is under way."""
    watched = _watching.get()
    if watched is None:
        yield
        return
    with watched.within(Activity(text=text)):
        yield


def begin_step(text: str, detail: str = "", *, expected_seconds: float | None = None) -> bool:
    """Tell that the next step of long work begins; it lasts until the next is told. Returns whether anybody watches."""
    if watched := _watching.get():
        watched.begin_step(text, detail, expected_seconds=expected_seconds)
    return watched is not None


def announce(text: str) -> bool:
    """Show a line that stays. Returns whether anybody watches."""
    if watched := _watching.get():
        watched.announce(text)
    return watched is not None
