"""A training as lines: plain ones for a log, and JSON for programs."""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import IO, Any, Self

from fitroom.activity import Activities, Activity
from fitroom.files.json_lines import finite
from fitroom.report.progress import words
from fitroom.report.progress.heartbeat import Heartbeat
from fitroom.report.progress.state import Progress
from fitroom.runs.job import Job
from fitroom.units import used_of

_SECONDS_BETWEEN = 30.0
_STDOUT = 1


class LineView:
    """Writes a line for each epoch and each event, and every 30 seconds between: for a stderr that is no terminal.

    Before the first reading, while all is prepared and compiled, and after the last, it writes one every few seconds.
    """

    def __init__(self, file: IO[str] | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file or sys.stderr
        self._clock = clock
        self._progress = Progress()
        self._last_line = clock()
        self._lock = threading.Lock()
        self.activities = Activities(when_begun=self.said, announce=self.said)
        self._heartbeat = Heartbeat(self._tell_activity)
        self._of_training: tuple[Activity, ...] | None = None
        """What was under way at the last reading: training, of which readings and epochs tell."""

    def __enter__(self) -> Self:
        self._heartbeat.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self._heartbeat.end()

    def began(self, job: dict[str, Any]) -> None:
        """Show what is trained."""
        known = Job.from_dict(job)
        self._progress.epochs = known.epochs
        self.said(words.format_headline(known))

    def reading(self, reading: dict[str, Any]) -> None:
        """Show a reading if no line was written for a while."""
        self._of_training = self.activities.under_way[:1]
        self._progress.read(reading)
        if self._clock() - self._last_line >= _SECONDS_BETWEEN:
            batches = f"/{reading['batches']}" if reading["batches"] else ""
            place = f"{self._format_epoch(reading['epoch'])}  batch {reading['batch']}{batches}"
            metrics = words.format_metrics(reading["loss"], reading["metrics"])
            self._write_line([place, *_join_pairs(metrics), *self._list_facts(reading)])

    def epoch_ended(self, epoch: int, logs: dict[str, Any]) -> None:
        """Show the end of an epoch."""
        self._progress.epoch_ended()
        seconds, reading = self._progress.epoch_seconds, self._progress.last
        metrics = {name: value for name, value in logs.items() if name != "loss"}
        took = [] if seconds is None else [words.format_time(seconds)]
        facts = [] if reading is None else self._list_facts(reading | {"peak_bytes": self._progress.epoch_most_bytes})
        self._write_line(
            [
                f"{self._format_epoch(epoch)} done",
                *_join_pairs(words.format_metrics(logs.get("loss"), metrics)),
                *took,
                *facts,
            ]
        )

    def event(self, event: dict[str, Any]) -> None:
        """Show an event."""
        self.said(words.format_event(event))

    def said(self, text: str) -> None:
        """Show a text."""
        for line in text.splitlines():
            self._write_line([line])

    def ended(self, summary: dict[str, Any]) -> None:
        """Show how the training ended."""
        for line in words.format_summary(summary):
            self.said(line)

    def _tell_activity(self) -> None:
        if self._of_training is None:
            self._write_line([self.activities.describe() or "starting"])
        elif self.activities.under_way[:1] != self._of_training and (doing := self.activities.describe()):
            self._write_line([doing])

    def _format_epoch(self, epoch: int) -> str:
        epochs = self._progress.last and self._progress.last["epochs"]
        return f"epoch {epoch + 1}/{epochs}" if epochs else f"epoch {epoch + 1}"

    def _list_facts(self, reading: dict[str, Any]) -> list[str]:
        speed, left = reading["pictures_per_second"], self._progress.seconds_left
        used, limit = words.get_memory_bytes(reading), reading["limit_bytes"]
        return [
            *([words.format_speed(speed)] if speed else []),
            *([f"memory {used_of(used, limit)}"] if used is not None and limit else []),
            *([f"{words.format_time(left)} left"] if left else []),
        ]

    def _write_line(self, parts: list[str]) -> None:
        encoding = getattr(self._file, "encoding", None) or "utf-8"
        text = "  ".join(parts).encode(encoding, "backslashreplace").decode(encoding)
        with self._lock, contextlib.suppress(OSError):  # a terminal that went away is no reason to stop
            self._file.write(f"{text}\n")
            self._file.flush()
        self._last_line = self._clock()
        self._heartbeat.hear()


class JsonView:
    """Writes one JSON object a line on stdout, its "event" being one of:

        began     "job": what is trained, as in job.json
        reading   the fields of readings.jsonl, "epochs" and "batches" (how many there are), "pictures_per_batch"
        epoch     "epoch" from 0, "metrics": those of the epoch, validation's with "val_"
        event     "kind", "message", "epoch" and "batch" from 0 where it happened in one, and facts of its kind
        said      "text": a line for people
        ended     "state" and what else is known: "resumed", "seconds" (since it resumed), "epochs", "best_epoch" (from
                  0), "split", "metrics", "peak_bytes", "run_dir", "report"

    What is no finite number is null. Without a file of its own it takes a second handle of stdout, so that stdout
    itself can be turned to stderr, away from what frameworks and the user's code print.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._file = file or os.fdopen(os.dup(_STDOUT), "w", encoding="utf-8")
        self._is_own = file is None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._is_own:
            with contextlib.suppress(OSError):
                self._file.close()

    def began(self, job: dict[str, Any]) -> None:
        """Write what is trained."""
        self._write_line("began", {"job": job})

    def reading(self, reading: dict[str, Any]) -> None:
        """Write a reading."""
        self._write_line("reading", reading)

    def epoch_ended(self, epoch: int, logs: dict[str, Any]) -> None:
        """Write the metrics of an epoch."""
        self._write_line("epoch", {"epoch": epoch, "metrics": logs})

    def event(self, event: dict[str, Any]) -> None:
        """Write an event."""
        self._write_line("event", event)

    def said(self, text: str) -> None:
        """Write a line for people."""
        self._write_line("said", {"text": text})

    def ended(self, summary: dict[str, Any]) -> None:
        """Write how the training ended."""
        self._write_line("ended", summary)

    def _write_line(self, event: str, facts: dict[str, Any]) -> None:
        line = json.dumps(finite({"event": event} | facts), allow_nan=False)
        with self._lock, contextlib.suppress(OSError):  # a reader that went away is no reason to stop
            self._file.write(f"{line}\n")
            self._file.flush()


def _join_pairs(pairs: list[words.Pair]) -> list[str]:
    return [f"{name} {figure}" for name, figure in pairs]
