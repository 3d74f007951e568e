"""Event files for TensorBoard, from any backend and without TensorFlow."""

import errno
import io
import os
import socket
import time
from pathlib import Path
from typing import Any, BinaryIO

from fitroom.errors import MissingExtraError

_MEMORY = ("in_use_bytes", "peak_bytes", "reserved_bytes", "limit_bytes", "host_bytes")
_SPEED = ("pictures_per_second", "utilization", "input_wait")


class TensorBoardLog:
    """A listener that writes event files: `tensorboard --logdir runs/a/tensorboard` shows them.

    Named as by Keras's own callback, so that both sit side by side: two runs, "train" and "validation", with
    `epoch_loss`, `epoch_accuracy`, `epoch_learning_rate` by epoch; and by update, from readings, `batch_loss`,
    `batch_accuracy`, `batch_learning_rate`, `pictures_per_second` and `memory/peak_bytes` and the like.
    """

    def __init__(self, folder: str | Path) -> None:
        """Raises MissingExtraError without the package `tensorboard`."""
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer import record_writer
        except ImportError:
            raise MissingExtraError("A log for TensorBoard", package="tensorboard", extra="tensorboard") from None
        self.folder = Path(folder)
        # Not its EventFileWriter, which imports TensorFlow where that is installed.
        self._event, self._summary, self._records = event_pb2.Event, summary_pb2.Summary, record_writer.RecordWriter
        self._files: dict[str, BinaryIO] = {}
        self._last_reading: dict[str, Any] = {}

    def began(self, job: dict[str, Any]) -> None:
        """Do nothing: files are made with the first number."""

    def reading(self, reading: dict[str, Any]) -> None:
        """Write the numbers of a reading by update: of a run, or of a watch, which has no loss and several devices."""
        metrics = reading.get("metrics", {})
        rated = {name: value for name, value in metrics.items() if not name.startswith("val_")}
        rated |= {name: reading.get(name) for name in ("loss", "learning_rate")}
        devices = reading.get("devices", {}) if len(reading.get("devices", {})) > 1 else {}
        self._write(
            "train",
            reading["update"],
            {f"batch_{name}": value for name, value in rated.items()}
            | {name: reading.get(name) for name in _SPEED}
            | {f"memory/{name}": reading[name] for name in _MEMORY}
            | {f"memory/{device}/{name}": value for device, use in devices.items() for name, value in use.items()},
        )
        self._last_reading = reading

    def epoch_ended(self, epoch: int, logs: dict[str, Any]) -> None:
        """Write the numbers of an epoch, those of validation apart."""
        rate = {"learning_rate": self._last_reading.get("learning_rate")}
        trained = {name: value for name, value in logs.items() if not name.startswith("val_")}
        validated = {name.removeprefix("val_"): value for name, value in logs.items() if name.startswith("val_")}
        self._write("train", epoch, {f"epoch_{name}": value for name, value in (rate | trained).items()})
        self._write("validation", epoch, {f"epoch_{name}": value for name, value in validated.items()})

    def event(self, event: dict[str, Any]) -> None:
        """Do nothing."""

    def said(self, text: str) -> None:
        """Do nothing."""

    def ended(self, summary: dict[str, Any]) -> None:
        """Close the files."""
        self.close()

    def close(self) -> None:
        """Close the files. Numbers that come later go to new ones."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _write(self, run: str, step: int, scalars: dict[str, Any]) -> None:
        """Append one event with all numbers that are known."""
        values = [
            self._summary.Value(tag=name, simple_value=value)
            for name, value in scalars.items()
            if isinstance(value, int | float)
        ]
        if values:
            event = self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
            self._append(self._file(run), event)

    def _file(self, run: str) -> BinaryIO:
        """The event file of a run, made now if need be: a resumed training gets a file of its own."""
        if run not in self._files:
            folder = self.folder / run
            folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time():.6f}.{socket.gethostname()}.{os.getpid()}.fitroom"
            # Unbuffered: an event that a full disk refuses is not tried again in the middle of the next.
            self._files[run] = open(folder / name, "xb", buffering=0)  # noqa: SIM115 - closed by `close`
            self._append(self._files[run], self._event(wall_time=time.time(), file_version="brain.Event:2"))
        return self._files[run]

    def _append(self, file: BinaryIO, event: Any) -> None:
        """Append all of the event or nothing of it."""
        record, begin = io.BytesIO(), file.tell()
        self._records(record).write(event.SerializeToString())
        try:
            if file.write(record.getvalue()) < record.tell():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            file.truncate(begin)
            file.seek(begin)
            raise
