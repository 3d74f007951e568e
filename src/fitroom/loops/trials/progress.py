"""What a loop of trials says while it runs, on stderr: a line for each trial that ends, and what runs: live in a
terminal, in a log when another trial begins and every half minute."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from fitroom.loops.trials.plain import find_differing, format_settings, format_value
from fitroom.loops.trials.table import Trial

_SECONDS_BETWEEN = 0.5
_SECONDS_BETWEEN_LINES = 30
_MOST_NAMED = 3


class TrialsProgress:
    """Shows a loop of trials. Where `show` is false it is silent."""

    def __init__(self, settings: Sequence[Mapping[str, Any]], *, show: bool = True) -> None:
        self._total, self._show = len(settings), show
        self._differing = find_differing(settings)
        self._done = self._failed = 0
        self._began = self._updated = time.monotonic()
        self._named = ""
        self._console: Any = None
        self._status: Any = None

    def __enter__(self) -> Self:
        if self._show:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, soft_wrap=True)
            if self._console.is_terminal:
                self._status = self._console.status("starting")
                self._status.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Show a line."""
        if self._console is not None:
            with contextlib.suppress(OSError):  # a terminal that went away is no reason to stop
                self._console.print(f"fitroom: {text}", markup=False)

    def ended(self, trial: Trial) -> None:
        """Show what came of a trial."""
        self._done += 1
        self._failed += not trial.is_finished
        took = f" in {_format_seconds(trial.seconds)}" if trial.seconds is not None else ""
        said = f"trial {trial.number} of {self._total} ({self._name(trial.settings)}): {trial.state}{took}"
        if trial.is_finished:
            self.say(said + (f"; {format_result(trial.result)}" if trial.result is not None else ""))
        else:
            self.say(f"{said}; {(trial.error or '').strip().partition(chr(10))[0][:200]}")

    def running(self, running: Sequence[Mapping[str, Any]], num_earlier: int) -> None:
        """Show what runs now."""
        seconds_since = time.monotonic() - self._updated
        if self._console is None or (self._status is not None and seconds_since < _SECONDS_BETWEEN):
            return
        named = "; ".join(self._name(one, longest=30) for one in running[:_MOST_NAMED])
        more = f" and {len(running) - _MOST_NAMED} more" if len(running) > _MOST_NAMED else ""
        if self._status is None and named == self._named and seconds_since < _SECONDS_BETWEEN_LINES:
            return
        self._updated, self._named = time.monotonic(), named
        done = num_earlier + self._done
        failed = f", {self._failed} failed" if self._failed else ""
        left = ""
        if self._done:
            seconds = (self._updated - self._began) / self._done * (self._total - done)
            left = f", about {_format_seconds(seconds)} left"
        text = f"{done} of {self._total} trials done{failed}{left}; running: {named}{more}"
        if self._status is None:
            self.say(text)
            return
        from rich.markup import escape

        self._status.update(escape(text))

    def _name(self, settings: Mapping[str, Any], *, longest: int = 80) -> str:
        """What tells a trial from the others."""
        return format_settings({name: settings[name] for name in self._differing if name in settings}, longest=longest)


def format_result(result: Any, *, longest: int = 100) -> str:
    """A result on one line: the last of each list, since that is the last epoch of a history.

    >>> format_result({"loss": [0.9, 0.5], "accuracy": 0.75})
    'loss 0.5, accuracy 0.75'
    """
    if not isinstance(result, dict):
        text = format_value(result)
    else:
        last = {name: value[-1] if isinstance(value, list) and value else value for name, value in result.items()}
        text = ", ".join(f"{name} {format_value(value)}" for name, value in last.items())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _format_seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
