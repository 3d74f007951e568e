"""Readings of a training: loss, speed and memory about once a second, written to the run folder and shown by views."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras  # noqa: TID253 - whoever imports this trains

from fitroom.backends.contract import Backend
from fitroom.backends.meter import LimitWarning, MemoryMeter
from fitroom.events import EventKind
from fitroom.files.growing_files import GrowingFiles
from fitroom.files.json_lines import append_line, finite
from fitroom.keras_model.optimizers import LearningRate
from fitroom.recipe import Recipe
from fitroom.runs.layout import EVENT_FILES, READINGS_FILE
from fitroom.train.keras_logs import as_floats
from fitroom.train.sizing import Sizing
from fitroom.watching.listener import Listener
from fitroom.watching.timing import SteadyRate, TimeSpent

_SECONDS_BETWEEN = 1.0


class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback for `fitroom.fit` that writes `readings.jsonl` into a folder and calls listeners.

    One reading after the first batch, then one a second, one before validation and one at each epoch's end. Only a
    batch that has a reading is waited for; otherwise the framework may run ahead. A line has:

        time                  Unix seconds
        epoch, batch          the epoch from 0, and how many of its batches are done
        update                how many were done in the whole run
        loss, metrics         of the epoch so far, as Keras gives them; at an epoch's end those of validation too
        learning_rate         null where the optimizer has none
        pictures_per_second   images per second as `SteadyRate` counts; null in the first batches
        in_use_bytes, peak_bytes, reserved_bytes, limit_bytes, host_bytes    as `MemoryUse` says
        micro_batch           the samples of the largest micro-batch; null for whole batches
        spent_seconds         of the run so far on compiling (the first step of each recipe), training and validating

    >>> recorder = Recorder(run_dir, images_per_batch=64, backend=backend, listeners=[view])  # doctest: +SKIP
    >>> fitroom.fit(model, x, y, batch_size=64, run_dir=run_dir, callbacks=[recorder], verbose=0)  # doctest: +SKIP
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        images_per_batch: int,
        backend: Backend,
        limit_bytes: int | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        self.images_per_batch = images_per_batch
        self.listeners = tuple(listeners)
        self.peak_bytes: int | None = None
        """The peak of the memory in use over the whole run; None where the framework does not count it."""
        self._files = GrowingFiles(self.folder, (READINGS_FILE, EVENT_FILES))
        self._meter = MemoryMeter(backend, limit_bytes=limit_bytes)
        self._rate = SteadyRate()
        self._spent = TimeSpent()
        self._learning_rate: LearningRate | None = None
        self._sizing: Sizing | None = None
        self._done: Recipe | None = None
        self._epoch = self._batch = self._updates = 0
        self._has_run = False
        self._limit_warning = LimitWarning()
        self._logs: dict[str, Any] = {}
        self._last_reading: float | None = None
        self._read_at = 0

    def set_model(self, model: Any) -> None:
        """Find the learning rate once, since on JAX each access of `self.model` copies a state. Keras calls this."""
        super().set_model(model)
        self._learning_rate = LearningRate(model.optimizer)

    def set_sizing(self, sizing: Sizing) -> None:
        """Called by `fitroom.fit` with what decides the micro-batch of training."""
        self._sizing = sizing
        self._done = self._last_done()

    def get_state(self) -> dict[str, Any]:
        """The state for a checkpoint. Taking it is no training time."""
        self._rate.discard()
        spent = dict(self._spent.seconds)
        return {
            "updates": self._updates,
            "peak_bytes": self.peak_bytes,
            "files": self._files.lengths(),
            "spent_seconds": spent,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state of a resumed run. Readings after its checkpoint are removed: they are taken again."""
        self._updates, self.peak_bytes = state["updates"], state["peak_bytes"]
        self._files.truncate(state["files"])
        self._spent.restore(state.get("spent_seconds", {}))  # older checkpoints have none

    def on_train_begin(self, logs: Any = None) -> None:
        """Make the folder and start the clock."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
        self._spent.start()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Start to count the batches of an epoch."""
        self._epoch, self._batch = epoch, 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Start to measure the rate."""
        self._rate.begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Count the batch, and take a reading when one is due."""
        logs = logs or {}
        self._batch, self._updates, self._logs = batch + 1, self._updates + 1, logs
        is_compiled = self._count(logs)
        self._spent.lap("compiling" if is_compiled else "training")
        if self._last_reading is None or time.monotonic() - self._last_reading >= _SECONDS_BETWEEN:
            self._read(as_floats(logs))
            self._rate.begin()  # waiting for the next batch is part of training, reading is not

    def on_test_begin(self, logs: Any = None) -> None:
        """Take a reading before validation, whose time and memory are not training's."""
        self._rate.discard()
        self._spent.lap("training")
        if self._logs and self._read_at != self._updates:
            self._read(as_floats(self._logs))

    def on_test_end(self, logs: Any = None) -> None:
        """Add the time of validation."""
        self._spent.lap("validating")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Take a reading, and tell the listeners of the epoch."""
        found = as_floats(logs or {})
        self._rate.discard()
        self._read(found)
        self._tell("epoch_ended", epoch, finite(found))

    def _count(self, logs: dict[str, Any]) -> bool:
        """Count a batch towards the rate, unless a step was compiled for it or it is the last of an epoch, which may be
        smaller. Returns whether a step was compiled for it.
        """
        before, self._done = self._done, self._last_done()
        batches = (self.params or {}).get("steps")
        is_compiled = not self._has_run or self._done != before
        self._has_run = True
        if is_compiled:
            as_floats(logs)  # waits for the device, so that nothing of it falls into the next interval
            self._rate.discard()
            self._rate.begin()
        elif batches is not None and self._batch == batches > 1:
            self._rate.discard()
        else:
            self._rate.add(self.images_per_batch)
            if batches is not None and self._batch in (batches - 1, batches):
                as_floats(logs)
                self._rate.close()
        return is_compiled

    def _read(self, logs: dict[str, Any]) -> None:
        """Take a reading. `logs` are Python numbers already: the device was waited for."""
        self._rate.close()
        reading = {
            "time": round(time.time(), 3),
            "epoch": self._epoch,
            "batch": self._batch,
            "update": self._updates,
            "loss": logs.get("loss"),
            "metrics": {name: value for name, value in logs.items() if name != "loss"},
            "learning_rate": self._learning_rate and self._learning_rate.now(),
            "pictures_per_second": self._rate.per_second,
            **self._meter.read(),
            "micro_batch": self._micro_batch(),
            "spent_seconds": {name: round(seconds, 3) for name, seconds in self._spent.seconds.items()},
        }
        reading = finite(reading)
        append_line(self.folder / READINGS_FILE, reading)
        params = self.params or {}
        totals = {"epochs": params.get("epochs"), "batches": params.get("steps")}
        self._tell("reading", reading | totals | {"pictures_per_batch": self.images_per_batch})
        self.peak_bytes = max(filter(None, (self.peak_bytes, reading["peak_bytes"])), default=None)
        self._warn_once(reading["peak_bytes"], reading["limit_bytes"])
        self._last_reading, self._read_at = time.monotonic(), self._updates

    def _warn_once(self, peak_bytes: int | None, limit_bytes: int | None) -> None:
        if said := self._limit_warning.check(peak_bytes, limit_bytes):
            said += " Where it does run out, the same batch is repeated with smaller micro-batches."
            event = {
                "kind": EventKind.MEMORY_NEARLY_FULL,
                "message": said,
                "epoch": self._epoch,
                "batch": self._batch - 1,
            }
            self._tell("event", event | {"peak_bytes": peak_bytes, "limit_bytes": limit_bytes})

    def _tell(self, what: str, *values: Any) -> None:
        for listener in self.listeners:
            with contextlib.suppress(OSError):  # a closed terminal or a full disk must not stop training
                getattr(listener, what)(*values)

    def _last_done(self) -> Recipe | None:
        return self._sizing.last_done(self.images_per_batch) if self._sizing else None

    def _micro_batch(self) -> int | None:
        samples = self._done.micro_batch if self._done else None
        return samples if samples is not None and samples < self.images_per_batch else None
