"""Everything that is read of a training: memory of each device and of the host, utilisation, input, phases."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from fitroom.backends.contract import Backend
from fitroom.backends.meter import MemoryMeter, host_bytes
from fitroom.cards.nvml import live_gpus
from fitroom.cards.utilization import UtilizationReader
from fitroom.checks.input_source import InputSource, describe_source
from fitroom.inputs.waiting import TimedBatches, listening_to_waits
from fitroom.keras_model.epoch_inputs import wrapping_inputs
from fitroom.watching.input_clock import InputClock, Totals, wait_share
from fitroom.watching.phases import PhaseMeter, measure_phases
from fitroom.watching.summary import Reading, mean_of

_MAX_BATCHES = 500
"""Of how many batches the beginning is kept, for the trace."""


class Observer:
    """Observes from `open` to `close` what trains in this process."""

    def __init__(self, backend: Backend, *, limit_bytes: int | None = None) -> None:
        every = backend.devices()
        self.backend = backend
        self.devices = [device for device in every if device.kind == every[0].kind]
        limits = _card_limits() if every[0].kind == "gpu" else {}
        self.meters = {
            device.name: MemoryMeter(backend, device=device, limit_bytes=limit_bytes or limits.get(device.name))
            for device in self.devices
        }
        self.clock = InputClock()
        self.batch_size: int | None = None
        """Samples in a batch, as far as the input told."""
        self.source: InputSource | None = None
        """What kind of data Keras's own `fit` was given, and their settings; None where it is not known."""
        self.batch_begins: list[float] = []
        """When the first batches began, by `time.perf_counter`."""
        self.phases = PhaseMeter(partial(_take_peak, MemoryMeter(backend)))
        self._first_peaks: dict[str, int | None] = {}
        """What could not be reset when watching began: on JAX, the peak of the process before."""
        self._thread: int | None = None
        self._utilization: UtilizationReader | None = None
        self._last_totals: Totals = (None, 0.0)
        self._stack = ExitStack()

    def open(self) -> None:
        """Begin to observe. The peaks start anew, where the framework can do that."""
        read = {name: meter.read(wait=False)["peak_bytes"] for name, meter in self.meters.items()}
        self._first_peaks = {} if self.backend.can_reset_peak else read
        self._utilization = UtilizationReader()
        self._stack.callback(self._utilization.close)
        self._stack.enter_context(listening_to_waits(self._on_wait))
        self._stack.enter_context(wrapping_inputs(self._make_wrap()))
        if self._counts_memory():
            self._stack.enter_context(measure_phases(self.backend, self.phases))

    def close(self) -> None:
        """Stop to observe, and leave everything as it was."""
        self.clock.pause()
        self.clock.count_outside = None
        self._stack.close()

    def begin_training(self) -> None:
        """A training begins in this thread."""
        self._thread = threading.get_ident()
        self.clock.restart()

    def begin_batch(self) -> None:
        """A step begins."""
        self.clock.begin_batch()
        if len(self.batch_begins) < _MAX_BATCHES:
            self.batch_begins.append(time.perf_counter())

    def read(self) -> Reading:
        """Read everything, of the time since the reading before, and without waiting for the device."""
        busy = self._utilization.read() if self._utilization else {}
        of_devices: dict[str, dict[str, Any]] = {
            name: {**meter.read(wait=False), "utilization": busy.get(name)} for name, meter in self.meters.items()
        }
        fullest = max(of_devices.values(), key=lambda use: _fullness(use["peak_bytes"], use["limit_bytes"]))
        return {
            **{name: value for name, value in fullest.items() if name.endswith("_bytes")},
            "host_bytes": host_bytes(),
            "utilization": mean_of([use["utilization"] for use in of_devices.values()]),
            "input_wait": self._input_wait(),
            "phase_peak_bytes": dict(self.phases.peak_bytes) or None,
            "devices": {
                name: {key: value for key, value in use.items() if key != "host_bytes"}
                for name, use in of_devices.items()
            },
        }

    def new_peak_bytes(self, device: str, use: Mapping[str, Any]) -> int | None:
        """The peak of a reading, where it is of the time since watching began; else what is in use."""
        is_old = use["peak_bytes"] == self._first_peaks.get(device)
        peak_bytes: int | None = use["in_use_bytes" if is_old else "peak_bytes"]
        return peak_bytes

    def _input_wait(self) -> float | None:
        """The share of training time spent waiting since the last reading."""
        before, self._last_totals = self._last_totals, self.clock.totals()
        return wait_share(before, self._last_totals)

    def _on_wait(self, begin: float, end: float, samples: int | None) -> None:
        if self._thread in (None, threading.get_ident()):
            self.batch_size = max(filter(None, (self.batch_size, samples)), default=None)
            self.clock.add_wait(begin, end)

    def _make_wrap(self) -> Callable[[Any, int | None, Any], Any]:
        """Make the function that has Keras's `fit` tell how long it waits for a batch."""
        count = None
        if self.backend.name == "tensorflow":
            from fitroom.backends.tensorflow.input_latency import InputLatency

            latency = InputLatency()
            self._stack.callback(latency.close)
            count = latency.count

        def wrap(batches: Any, batch_size: int | None, dataset: Any) -> Any:
            self.batch_size = self.batch_size or batch_size
            if dataset is not None:
                self.source = describe_source(dataset)
            if count is None:  # another watch may time them already, and its waits are told to all
                return batches if isinstance(batches, TimedBatches) else TimedBatches(batches)
            counted = count(batches)
            if counted is not batches:
                self.clock.count_outside = latency.total_seconds
            return counted

        return wrap

    def _counts_memory(self) -> bool:
        return self.backend.read_memory(self.devices[0], wait=False).peak_bytes is not None


def _take_peak(meter: MemoryMeter) -> int | None:
    return meter.read(wait=False)["peak_bytes"]


def _fullness(peak_bytes: int | None, limit_bytes: int | None) -> tuple[float, int]:
    return ((peak_bytes or 0) / limit_bytes if limit_bytes else 0.0, peak_bytes or 0)


def _card_limits() -> dict[str, int]:
    """What this process can have of each card: an upper bound where the framework does not tell its limit."""
    return {f"gpu:{index}": gpu.free_bytes for index, gpu in enumerate(live_gpus())}
