"""A training in a terminal: events scroll by, and a few lines below them show its progress."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from fitroom.activity import Activities
from fitroom.backends.meter import NEARLY_FULL
from fitroom.report.progress import words
from fitroom.report.progress.state import Progress
from fitroom.report.shared.sheet import Sheet
from fitroom.runs.job import Job
from fitroom.units import format_bytes, used_of

_WIDE = 64
"""From this width on, figures have room for their details."""

_GAP = "   "
_WIDEST_BAR = 48
_NARROWEST_BAR = 6
_GAUGE_GAP = 2


@dataclass(frozen=True, kw_only=True)
class _Gauge:
    """A bar with a label and a figure. An unknown `share` is None and draws an empty bar."""

    label: str
    share: float | None
    figure: str
    style: str = "cyan"


class LiveView:
    """Shows a training while it is entered; a line for each epoch and for each event stays."""

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or Console(stderr=True)
        self._clock = clock
        self._began = clock()
        self._progress = Progress()
        self._validation: dict[str, Any] = {}
        self.activities = Activities(announce=self._print)
        # Twice a second: a running clock shows that a long compilation has not hung.
        self._live = Live(
            self,
            console=self.console,
            refresh_per_second=2,
            transient=True,
            vertical_overflow="crop",
            auto_refresh=True,
        )

    def __enter__(self) -> Self:
        self._began = self._clock()
        with _ignore_lost_terminal():
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        with _ignore_lost_terminal():
            self._live.stop()

    def began(self, job: dict[str, Any]) -> None:
        """Show what is trained, on a line that stays."""
        known = Job.from_dict(job)
        self._progress.epochs = known.epochs
        self._print(words.format_headline(known), "bold")

    def reading(self, reading: dict[str, Any]) -> None:
        """Update the lines below."""
        self._progress.read(reading)

    def epoch_ended(self, epoch: int, logs: dict[str, Any]) -> None:
        """Show the end of an epoch, on a line that stays."""
        self._progress.epoch_ended()
        self._validation = {name: value for name, value in logs.items() if name.startswith("val_")}
        metrics = {name: value for name, value in logs.items() if name != "loss"}
        parts = [self._format_epoch(epoch), *_join_pairs(words.format_metrics(logs.get("loss"), metrics))]
        if self._progress.epoch_seconds is not None:
            parts.append(words.format_time(self._progress.epoch_seconds))
        for line in _fill_lines(parts, self._sheet):
            self._print(line.plain)

    def event(self, event: dict[str, Any]) -> None:
        """Show an event, on a line that stays."""
        self._print(words.format_event(event), "yellow")

    def said(self, text: str) -> None:
        """Show a text, on lines that stay."""
        self._print(text)

    def ended(self, summary: dict[str, Any]) -> None:
        """Stop the live lines and show how the training ended."""
        self.__exit__()
        for line in words.format_summary(summary):
            self._print(line)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet, reading = Sheet.of(options), self._progress.last
        yield Text()
        if reading is None:
            starting = f"starting, {words.format_time(self._clock() - self._began)}"
            yield sheet.make_text(self.activities.describe() or starting, "dim")
            return
        yield from _draw_gauges(list(self._make_gauges(reading, is_wide=sheet.width >= _WIDE)), sheet)
        yield Text()
        trained = {name: value for name, value in reading["metrics"].items() if not name.startswith("val_")}
        metrics = words.format_metrics(reading["loss"], trained | self._validation)
        yield from _fill_lines(_join_pairs(metrics), sheet)
        yield from _fill_lines(list(self._list_facts(reading)), sheet, "dim")

    def _make_gauges(self, reading: dict[str, Any], *, is_wide: bool) -> Iterator[_Gauge]:
        progress = self._progress
        total = f" of {reading['batches']}" if reading["batches"] else ""
        done = f"{reading['batch']}{total} batches" if is_wide else ""
        yield _Gauge(
            label=self._format_epoch(reading["epoch"]),
            share=progress.epoch_share,
            figure=_join_parts(
                done, "validating" if progress.is_validating else _format_left(progress.epoch_seconds_left)
            ),
        )
        share = progress.share
        percent = "" if share is None or not is_wide else f"{100 * share:.0f} %"
        yield _Gauge(label="all epochs", share=share, figure=_join_parts(percent, _format_left(progress.seconds_left)))
        used, limit = words.get_memory_bytes(reading), reading["limit_bytes"]
        if used is not None and limit:
            share = used / limit
            full = "nearly full" if share >= NEARLY_FULL else ""
            percent = f"{100 * share:.0f} %" if is_wide else ""
            yield _Gauge(
                label="memory",
                share=share,
                figure=_join_parts(used_of(used, limit), percent, full),
                style="bold yellow" if full else "green",
            )

    def _list_facts(self, reading: dict[str, Any]) -> Iterator[str]:
        if reading["pictures_per_second"]:
            yield words.format_speed(reading["pictures_per_second"])
        if reading["learning_rate"] is not None:
            yield f"learning rate {reading['learning_rate']:.3g}"
        if reading["micro_batch"]:
            yield f"micro-batch {reading['micro_batch']} of {reading['pictures_per_batch']}"
        used = words.get_memory_bytes(reading)
        if used is not None and not reading["limit_bytes"]:
            yield f"memory {format_bytes(used)}"
        if reading["host_bytes"] is not None:
            yield f"host {format_bytes(reading['host_bytes'])}"

    def _format_epoch(self, epoch: int) -> str:
        epochs = self._progress.last and self._progress.last["epochs"]
        return f"epoch {epoch + 1}/{epochs}" if epochs else f"epoch {epoch + 1}"

    @property
    def _sheet(self) -> Sheet:
        return Sheet(self.console.width, self.console.encoding)

    def _print(self, text: str, style: str = "") -> None:
        with _ignore_lost_terminal():
            self.console.print(self._sheet.make_text(text, style))


def _ignore_lost_terminal() -> contextlib.AbstractContextManager[None]:
    """Ignore errors of a terminal that is gone: no reason to stop training."""
    return contextlib.suppress(OSError)


def _format_left(seconds: float | None) -> str:
    return "" if seconds is None else f"{words.format_time(seconds)} left" if seconds else "done"


def _join_parts(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _join_pairs(pairs: Sequence[words.Pair]) -> list[str]:
    return [f"{name} {figure}" for name, figure in pairs]


def _fill_lines(parts: Sequence[str], sheet: Sheet, style: str = "") -> Iterator[Text]:
    """Put parts side by side, each whole, on as many lines as they take."""
    line = ""
    for part in parts:
        if line and len(line) + len(_GAP) + len(part) > sheet.width:
            yield sheet.make_text(line, style)
            line = part
        else:
            line = f"{line}{_GAP}{part}" if line else part
    if line:
        yield sheet.make_text(line, style)


def _draw_gauges(gauges: Sequence[_Gauge], sheet: Sheet) -> list[Text]:
    """Draw gauges below one another; without bars where there is no room for them."""
    label_width = max((len(gauge.label) for gauge in gauges), default=0)
    figure_width = max((len(gauge.figure) for gauge in gauges), default=0)
    room = sheet.width - label_width - figure_width - 2 * _GAUGE_GAP
    bar_width = min(room, _WIDEST_BAR) if room >= _NARROWEST_BAR else 0
    lines = []
    for gauge in gauges:
        line = Text(no_wrap=True, overflow="crop")
        line.append(gauge.label.ljust(label_width + _GAUGE_GAP))
        if bar_width:
            line.append_text(_draw_bar(gauge, bar_width, sheet)).append(" " * _GAUGE_GAP)
        lines.append(line.append(gauge.figure))
    return lines


def _draw_bar(gauge: _Gauge, width: int, sheet: Sheet) -> Text:
    full = int(min(max(gauge.share or 0.0, 0.0), 1.0) * width)
    mark, track = ("#", ".") if sheet.ascii_only else ("━", "─")
    return Text.assemble((mark * full, gauge.style), (track * (width - full), "dim"))
