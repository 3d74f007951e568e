"""What a watch is asked for, checked before training begins and not after hours of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.backends.contract import Backend
from fitroom.display import check_plot
from fitroom.errors import BackendError, InputError, UnknownNameError
from fitroom.memory.estimate import Estimate
from fitroom.units import parse_bytes

LOG_NAMES = {
    "memory_peak_bytes": "peak_bytes",
    "memory_in_use_bytes": "in_use_bytes",
    "memory_limit_bytes": "limit_bytes",
    "host_memory_bytes": "host_bytes",
    "gpu_utilization": "utilization",
    "input_wait": "input_wait",
}
"""What can be put into Keras's logs, and its name in a reading."""

DEFAULT_LOGS = ("memory_peak_bytes", "input_wait")


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The arguments of `fitroom.watch`, as they are used."""

    logs: tuple[str, ...]
    logs_in_block: bool
    """Whether logs are added to in a `with` block, too: the code in it knows nothing of a watch."""

    jsonl: Path | None
    tensorboard: Path | None
    plot: Path | None
    trace: Path | None
    snapshot: Path | None
    estimate: Estimate | None
    makes_estimate: bool
    """Whether one is made at the end, unless one was given."""

    limit_bytes: int | None
    warn_at: float
    interval: float
    prints: bool


def read_options(
    backend: Backend,
    *,
    logs: Any,
    jsonl: Any,
    tensorboard: Any,
    plot: Any,
    trace: Any,
    snapshot: Any,
    estimate: Any,
    limit: Any,
    warn_at: Any,
    interval: Any,
    verbose: Any,
) -> WatchOptions:
    """Check the arguments of `fitroom.watch`. Raises InputError for what cannot work."""
    if not isinstance(estimate, Estimate | bool | None):
        raise InputError(
            f"`estimate` must be what `fitroom.estimate` returned, or True or False. Received: {estimate!r}.",
            hint="fitroom.watch(estimate=fitroom.estimate(model, batch_size))",
        )
    if snapshot is not None and (backend.name != "torch" or backend.devices()[0].kind != "gpu"):
        raise BackendError(
            f"`snapshot` is PyTorch's own record of a CUDA card's memory. Received: {str(snapshot)!r} on "
            f"{backend.name}, {backend.devices()[0].name}.",
            hint="leave it out; `trace` and `plot` work everywhere",
        )
    return WatchOptions(
        logs=_read_logs(True if logs is None else logs),
        logs_in_block=logs is not None,
        jsonl=_read_path("jsonl", jsonl),
        tensorboard=None if tensorboard is None else Path(tensorboard),
        plot=None if plot is None else check_plot(Path(plot)),
        trace=_read_path("trace", trace),
        snapshot=_read_path("snapshot", snapshot),
        estimate=estimate if isinstance(estimate, Estimate) else None,
        makes_estimate=trace is not None if estimate is None else estimate is True,
        limit_bytes=None if limit is None else parse_bytes(limit),
        warn_at=_read_number("warn_at", warn_at, highest=1.0),
        interval=_read_number("interval", interval),
        prints=bool(verbose),
    )


def _read_logs(logs: Any) -> tuple[str, ...]:
    if isinstance(logs, bool):
        return DEFAULT_LOGS if logs else ()
    names = (logs,) if isinstance(logs, str) else tuple(logs)
    for name in names:
        if name not in LOG_NAMES:
            raise UnknownNameError("name in `logs`", str(name), LOG_NAMES, more=f"known are: {', '.join(LOG_NAMES)}")
    return names


def _read_path(name: str, path: Any) -> Path | None:
    if path is None:
        return None
    found = Path(path)
    if not found.parent.is_dir() or found.is_dir():
        raise InputError(
            f"`{name}` must be a file in a folder that is there. Received: {str(path)!r}.",
            hint=f"make the folder {str(found.parent)!r} first" if not found.parent.is_dir() else "add a file's name",
        )
    return found


def _read_number(name: str, value: Any, *, highest: float | None = None) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value <= 0 or (highest is not None and value > highest):
        up_to = "" if highest is None else f" and up to {highest:g}"
        raise InputError(f"`{name}` must be a number over 0{up_to}. Received: {value!r}.")
    return float(value)
