"""What each operation of one steady step took on the card, as the framework itself tells it.

PyTorch: every dispatched operation with the bytes before, after and at most during it (the difference is its
workspace), and the allocator's own log of the next step. TensorFlow: every allocation and release with the operation
that asked, from its profiler.
"""

import gzip
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.cases import Case


@contextmanager
def recorder(case: Case, step: int, file: Path) -> Iterator[Any]:
    """A Keras callback that records that step of the second epoch; at the end the records are in `file`."""
    recording = {"torch": _torch_recording, "tensorflow": _tensorflow_recording}[case.backend](step)
    yield recording
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(json.dumps(recording.found()).encode()))


def _torch_recording(step: int) -> Any:
    import keras
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    def tensor(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return [str(value.dtype)[6:], list(value.shape), list(value.stride()), str(value.device)[:4]]
        if isinstance(value, (list, tuple)):
            return [tensor(part) for part in value]
        return value if isinstance(value, (int, float, bool, type(None))) else str(value)

    class Operations(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[dict[str, Any]] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            torch.cuda.reset_peak_memory_stats()
            before_bytes = torch.cuda.memory_allocated()
            result = func(*args, **(kwargs or {}))
            self.found.append(
                {
                    "op": str(func),
                    "args": tensor(args),
                    "kwargs": {key: tensor(value) for key, value in (kwargs or {}).items()},
                    "result": tensor(result),
                    "before": before_bytes,
                    "after": torch.cuda.memory_allocated(),
                    "peak": torch.cuda.max_memory_allocated(),
                }
            )
            return result

    class Recording(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.operations = Operations()
            self.epoch = 0
            self.log: list[Any] = []

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == (1, step):
                self.operations.__enter__()
            if (self.epoch, batch) == (1, step + 1):
                torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == (1, step):
                self.operations.__exit__(None, None, None)
            if (self.epoch, batch) == (1, step + 1):
                self.log = torch.cuda.memory._snapshot()["device_traces"][0]
                torch.cuda.memory._record_memory_history(enabled=None)

        def found(self) -> dict[str, Any]:
            events = [[event["action"], event.get("addr"), event.get("size")] for event in self.log]
            return {"operations": self.operations.found, "events": events}

    return Recording()


def _tensorflow_recording(step: int) -> Any:
    import keras
    import tensorflow as tf

    class Recording(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.epoch = 0
            self.folder = tempfile.TemporaryDirectory()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == (1, step):
                options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, device_tracer_level=0)
                tf.profiler.experimental.start(self.folder.name, options)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == (1, step):
                tf.profiler.experimental.stop()

        def found(self) -> dict[str, Any]:
            return {"events": sorted(_memory_events(Path(self.folder.name)), key=lambda event: event["time"])}

    return Recording()


def _memory_events(folder: Path) -> Iterator[dict[str, Any]]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    [file] = folder.glob("**/*.xplane.pb")
    space.ParseFromString(file.read_bytes())
    for plane in space.planes:
        names = {key: entry.name for key, entry in plane.stat_metadata.items()}
        kinds = {key: entry.name for key, entry in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                time = line.timestamp_ns * 1000 + event.offset_ps
                kind = kinds[event.metadata_id]
                if kind in ("MemoryAllocation", "MemoryDeallocation"):
                    yield {"time": time, "event": kind[6:], "thread": line.name} | {
                        names[stat.metadata_id]: _value(stat, names) for stat in event.stats
                    }
                elif ":" in kind and "::" not in kind:  # an operation, as name:type
                    yield {"time": time, "event": "Operation", "op": kind, "thread": line.name}


def _value(stat: Any, names: dict[int, str]) -> Any:
    which = stat.WhichOneof("value")
    return names.get(stat.ref_value) if which == "ref_value" else getattr(stat, which)
