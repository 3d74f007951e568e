"""A watch on trainings: a Keras callback that is a context manager too."""

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import keras  # noqa: TID253 - whoever imports this trains

from fitroom.backends.contract import Backend
from fitroom.backends.meter import LimitWarning
from fitroom.errors import FitroomError
from fitroom.events import EventKind, Events
from fitroom.files.json_lines import finite
from fitroom.inputs.waiting import TimedBatches
from fitroom.memory.estimate import Estimate
from fitroom.watching.callback_lists import adding_callback
from fitroom.watching.input_clock import Totals, wait_share
from fitroom.watching.observer import Observer
from fitroom.watching.options import LOG_NAMES, WatchOptions
from fitroom.watching.outputs import Outputs
from fitroom.watching.running_call import RunningCall
from fitroom.watching.sampler import Sampler
from fitroom.watching.summary import Reading, WatchSummary, mean_of, summarize
from fitroom.watching.trace import make_trace


class Watch(keras.callbacks.Callback):  # type: ignore[misc]
    """What `fitroom.watch` returns. It may be used several times; readings and summary are of all of them.

    A reading is a dict, and a line of `jsonl`::

        time, seconds         Unix seconds, and seconds since watching began
        epoch, batch, update  the epoch from 0 (null outside `fit`), its batches that have begun, all batches so far
        in_use_bytes, peak_bytes, reserved_bytes, limit_bytes    of the fullest device; the peak is since the reading
                              before (JAX: since the process began); null where the framework does not count
        host_bytes            of this process in the host's memory
        utilization           the mean of the GPUs, from 0 to 1; null without an NVIDIA driver
        input_wait            the share of training time since the reading before that was spent waiting for input
        phase_peak_bytes      the peak in forward pass, backward pass and update so far, where they are measured
        devices               the same by device
    """

    async_safe = True
    """Keras may call `on_train_batch_end` in another thread, when the results of the batch are there. A callback that
    is not safe for that would have Keras wait for the device after every batch."""

    def __init__(self, backend: Backend, options: WatchOptions) -> None:
        super().__init__()
        self.readings: list[Reading] = []
        """Everything that was read, in order."""
        self._backend, self._options = backend, options
        self._outputs = Outputs(options)
        self._observer = Observer(backend, limit_bytes=options.limit_bytes)
        self._warnings = {name: LimitWarning(options.warn_at) for name in self._observer.meters}
        self._events = Events()
        self._estimate = options.estimate
        self._notes: list[str] = []
        self._lock = threading.RLock()
        self._sampler: Sampler | None = None
        self._call: RunningCall | None = None
        self._block = contextlib.ExitStack()
        self._is_in_block = False
        self._zero: float | None = None
        """When it was first begun, by `time.perf_counter`; `_began` is when it was last, None where it is not."""
        self._began: float | None = None
        self._own_seconds = self._seconds = 0.0
        self._epoch: int | None = None
        self._batch = 0
        """How many batches of the epoch have begun, those that a resumed run skipped included."""
        self._skipped: int | None = None
        self._updates_before = 0
        """Updates of earlier epochs."""
        self._epoch_readings = 0
        self._epoch_totals: Totals = (None, 0.0)

    # As a context manager

    def __enter__(self) -> "Watch":
        self._begin()
        self._is_in_block = True
        self._block.enter_context(adding_callback(self))
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._block.close()
        self._is_in_block = False
        self._end(has_failed=kind is not None)

    def batches(self, data: Iterable[Any]) -> Iterator[Any]:
        """Iterate over the batches of a training loop of your own, so that batches and waiting for input are counted.

        >>> for x, y in watched.batches(dataset):  # doctest: +SKIP
        ...     model.train_on_batch(x, y)
        """
        self._observer.begin_training()
        self._begin_epoch(None)
        try:
            for number, batch in enumerate(TimedBatches(data)):
                self._begin_batch(number)
                yield batch
                self._observer.clock.end_batch()
        finally:
            self._observer.clock.pause()

    def summary(self) -> WatchSummary:
        """The figures of everything that was watched so far. `print` shows them as text."""
        with self._lock:
            running = 0.0 if self._began is None else time.perf_counter() - self._began
            own_seconds = self._own_seconds + (self._sampler.own_seconds if self._sampler else 0.0)
            return summarize(
                self._observer,
                self.readings,
                seconds=self._seconds + running,
                own_seconds=own_seconds,
                updates=self._updates(),
                estimate=self._estimate,
                notes=self._notes,
            )

    # As a callback

    def get_state(self) -> dict[str, Any]:
        """Nothing of a watch belongs into a checkpoint of `fitroom.fit`."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """A resumed run is watched from where it resumes."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Begin to watch, unless that was begun by `with`."""
        if self._sampler is None:
            self._call = RunningCall("on_train_begin")
            self._begin()
        self._observer.begin_training()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Count the batches of an epoch."""
        self._begin_epoch(epoch)
        self._observer.clock.resume()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Count a batch."""
        self._begin_batch(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Note that the results of a batch are there. With `steps_per_execution`, those of several."""
        self._batch = max(self._batch, batch + 1)
        self._observer.clock.end_batch()

    def on_test_begin(self, logs: Any = None) -> None:
        """Validation is no training time."""
        self._observer.clock.pause()

    def on_test_end(self, logs: Any = None) -> None:
        """Training time goes on, where an epoch is under way."""
        self._observer.clock.resume()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Put the figures of the epoch into the logs, which the callbacks after this one see."""
        self._observer.clock.pause()
        self._take()
        if logs is not None and (self._options.logs_in_block or not self._is_in_block):
            found = _merge(self.readings[self._epoch_readings :])
            found["input_wait"] = wait_share(self._epoch_totals, self._observer.clock.totals())
            for name in self._options.logs:
                if (value := found.get(LOG_NAMES[name])) is not None:
                    logs[name] = value

    def on_train_end(self, logs: Any = None) -> None:
        """Stop to watch, unless `with` does that, and write what was asked for."""
        self._observer.clock.pause()
        if not self._is_in_block:
            self._end()

    def _begin(self) -> None:
        with self._lock:
            if self._sampler is not None:
                return
            self._began = time.perf_counter()
            self._zero = self._zero or self._began
            self._observer.open()
            self._outputs.begin()
            self._sampler = Sampler(self._take_in_thread, self._options.interval)
            atexit.register(self._end)
        self._take()
        self._sampler.start()

    def _begin_epoch(self, epoch: int | None) -> None:
        self._updates_before = self._updates()
        self._epoch, self._batch, self._skipped = epoch, 0, None
        self._epoch_readings, self._epoch_totals = len(self.readings), self._observer.clock.totals()

    def _begin_batch(self, batch: int) -> None:
        self._observer.begin_batch()
        if self._skipped is None:
            self._skipped = batch
        self._batch = batch + 1

    def _updates(self) -> int:
        return self._updates_before + self._batch - (self._skipped or 0)

    def _take_in_thread(self) -> None:
        if self._call is not None and not self._call.is_running():  # `fit` raised, and Keras tells no callback
            self._end(has_failed=True)
        else:
            self._take()

    def _take(self) -> None:
        """Take a reading, and warn where memory is nearly full."""
        with self._lock:
            if self._began is None or self._zero is None:
                return
            read = self._observer.read()
            reading = finite(
                {
                    "time": round(time.time(), 3),
                    "seconds": round(time.perf_counter() - self._zero, 3),
                    "epoch": self._epoch,
                    "batch": self._batch,
                    "update": self._updates(),
                    **read,
                }
            )
            self.readings.append(reading)
            self._outputs.write(reading)
        for name, use in reading["devices"].items():
            if said := self._warnings[name].check(self._observer.new_peak_bytes(name, use), use["limit_bytes"]):
                self._events.tell(
                    EventKind.MEMORY_NEARLY_FULL,
                    f"{said[:-1]} on {name}. `fitroom.fit` in place of `model.fit` survives where it runs out.",
                    **use,
                )

    def _end(self, *, has_failed: bool = False) -> None:
        """Stop to watch, write the files of the end, and print the summary."""
        with self._lock:
            sampler, self._sampler = self._sampler, None
        if sampler is None:
            return
        atexit.unregister(self._end)
        sampler.stop()
        self._take()
        with self._lock:
            self._call = None
            self._observer.close()
            self._own_seconds += sampler.own_seconds
            self._seconds += time.perf_counter() - (self._began or 0.0)
            self._began = None
        if self._options.makes_estimate and self._estimate is None and not has_failed:
            self._estimate = self._make_estimate()
        summary = self.summary()
        trace = partial(make_trace, self._observer, self.readings, self._estimate, zero=self._zero or 0.0)
        for problem in self._outputs.end(self.readings, summary, trace):
            print(f"fitroom: {problem}", file=sys.stderr)
        if self._options.prints:
            print(summary, file=sys.stderr, flush=True)

    def _make_estimate(self) -> Estimate | None:
        """Estimate a step of the model that was trained. Where that cannot be done, a note says why."""
        if self._model is None or self._observer.batch_size is None:
            self._notes.append("No step was estimated: the model or its batch size did not show.")
            return None
        from fitroom.estimating.estimate import estimate

        try:
            return estimate(self.model, self._observer.batch_size)
        except (FitroomError, ValueError, RuntimeError) as error:
            self._notes.append(f"No step was estimated: {str(error).splitlines()[0]}")
            return None


def _merge(readings: list[Reading]) -> Reading:
    """Readings as one: the highest peak, the mean utilisation, and the rest of the last."""
    merged = dict(readings[-1])
    for name in ("peak_bytes", "host_bytes"):
        merged[name] = max((one[name] for one in readings if one[name] is not None), default=None)
    merged["utilization"] = mean_of([one["utilization"] for one in readings])
    return merged
