"""Long work that is no training, made readable while it runs: plain lines in a log, one live line in a terminal."""

import contextlib
import threading
import time
from typing import IO, Self, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from fitroom.activity import Activities
from fitroom.report.progress.heartbeat import Heartbeat

_FRAMES_A_SECOND = 4


class WorkLines:
    """Writes a line for each step, and while one lasts a line every few seconds: for a stderr that is no terminal."""

    def __init__(self, file: IO[str]) -> None:
        self.activities = Activities(when_begun=lambda text: self._write(f"{text} ..."), announce=self._write)
        self._file = file
        self._lock = threading.Lock()
        self._heartbeat = Heartbeat(self._write_description)

    def __enter__(self) -> Self:
        self._heartbeat.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._heartbeat.end()

    def _write_description(self) -> None:
        self._write(self.activities.describe() or "starting")

    def _write(self, text: str) -> None:
        with self._lock, contextlib.suppress(OSError):  # a reader that went away is no reason to stop
            self._file.write(f"{text}\n")
            self._file.flush()
        self._heartbeat.hear()


class WorkLine:
    """Shows one line that changes, with a clock; lines that stay scroll by above it."""

    def __init__(self, console: Console) -> None:
        self.activities = Activities(when_begun=self._begin, announce=self._announce)
        self._console = console
        self._spinner = Spinner("dots")
        self._live = Live(self, console=console, refresh_per_second=_FRAMES_A_SECOND, transient=True)

    def __enter__(self) -> Self:
        with contextlib.suppress(OSError):
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._live.stop()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        frame = cast(Text, self._spinner.render(time.monotonic()))  # it has no text beside it
        doing = self.activities.describe() or "starting"
        yield Text.assemble(frame, " ", doing, no_wrap=True, overflow="ellipsis")

    def _begin(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._live.refresh()

    def _announce(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that went away is no reason to stop
            self._console.print(text, highlight=False, markup=False)
