"""A trace that Perfetto and chrome://tracing show: what was measured, and one step as it was estimated.

Chrome's trace format: complete slices ("X") with `ts` and `dur` in microseconds, counters ("C"), and metadata ("M")
that names processes and threads. The measurement is process 1. The estimate is process 2; its step lies under a
measured one and is as long, since an estimate knows the order of operations and not their times.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import KINDS
from fitroom.watching.observer import Observer
from fitroom.watching.summary import Reading

Event = dict[str, Any]

MEASURED, PREDICTED = 1, 2
_BATCHES, _PHASES, _LAYERS = 1, 2, 3
_MAX_MOMENTS = 2000
_DEFAULT_STEP_SECONDS = 0.1


def make_trace(
    observer: Observer, readings: Sequence[Reading], estimate: Estimate | None, *, zero: float
) -> dict[str, Any]:
    """Make the trace of a watch that began at `zero`, by `time.perf_counter`. Returns JSON values."""
    steps = list(pairwise(observer.batch_begins))
    events = [
        *_name(MEASURED, f"measured on {observer.backend.name}", {_BATCHES: "batches", _PHASES: "phases of one step"}),
        *_counters(readings),
        *(
            _slice(MEASURED, _BATCHES, f"batch {number}", begin - zero, end - zero, {})
            for number, (begin, end) in enumerate(steps)
        ),
        *(
            _slice(MEASURED, _PHASES, each.phase, each.begin - zero, each.end - zero, {"peak_bytes": each.peak_bytes})
            for each in observer.phases.slices
        ),
    ]
    if estimate is not None:
        # The second step is the first that nothing was compiled for.
        begin, end = steps[min(1, len(steps) - 1)] if steps else (zero, zero + _DEFAULT_STEP_SECONDS)
        events += _predicted(estimate, begin - zero, end - begin)
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"writer": "fitroom"}}


def _counters(readings: Sequence[Reading]) -> Iterator[Event]:
    for reading in readings:
        at = reading["seconds"]
        for device, use in reading["devices"].items():
            sizes = {name: use[f"{name}_bytes"] for name in ("in_use", "peak", "reserved", "limit")}
            yield from _counter(MEASURED, f"{device} memory (bytes)", at, sizes)
            yield from _counter(MEASURED, f"{device} utilization (%)", at, {"busy": _percent(use["utilization"])})
        yield from _counter(MEASURED, "host memory (bytes)", at, {"process": reading["host_bytes"]})
        yield from _counter(MEASURED, "input wait (%)", at, {"share": _percent(reading["input_wait"])})


def _predicted(estimate: Estimate, begin: float, seconds: float) -> Iterator[Event]:
    """One step of the estimate: its memory by kind, its phases, and its layers."""
    timeline = estimate.timeline
    count = len(timeline.moments)
    yield from _name(
        PREDICTED,
        f"predicted: one step on {estimate.gpu} ({estimate.method})",
        {_PHASES: "phases (predicted)", _LAYERS: "layers (predicted)"},
    )
    usage = {kind: timeline.usage_bytes_of(kind) for kind in KINDS}
    # Every place where memory changes is too much for a long step; the peak stays.
    shown = {*range(0, count, max(1, count // _MAX_MOMENTS)), timeline.peak_moment, count - 1}
    for index in sorted(shown):
        sizes: dict[str, Any] = {kind: values[index] for kind, values in usage.items()}
        yield from _counter(PREDICTED, "memory by kind (bytes)", begin + seconds * index / count, sizes)
    for thread, what in ((_PHASES, "phase"), (_LAYERS, "layer")):
        named = groupby(range(count), key=lambda index: getattr(timeline.moments[index], what))
        for name, group in ((name, list(group)) for name, group in named):
            if name is not None:
                first, last = begin + seconds * group[0] / count, begin + seconds * (group[-1] + 1) / count
                yield _slice(PREDICTED, thread, name, first, last, {"operations": len(group)})


def _name(process: int, name: str, threads: dict[int, str]) -> list[Event]:
    metadata = {"ph": "M", "pid": process, "ts": 0}
    return [
        {**metadata, "tid": 0, "name": "process_name", "args": {"name": name}},
        {**metadata, "tid": 0, "name": "process_sort_index", "args": {"sort_index": process}},
        *(
            {**metadata, "tid": thread, "name": "thread_name", "args": {"name": of_thread}}
            for thread, of_thread in threads.items()
        ),
    ]


def _counter(process: int, name: str, at: float, values: dict[str, Any]) -> list[Event]:
    """One counter event; none where nothing is known."""
    known = {series: value for series, value in values.items() if value is not None}
    event = {"ph": "C", "pid": process, "tid": 0, "name": name, "ts": _microseconds(at), "args": known}
    return [event] if known else []


def _slice(process: int, thread: int, name: str, begin: float, end: float, facts: dict[str, Any]) -> Event:
    ts = _microseconds(begin)
    place = {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": "fitroom"}
    return {**place, "ts": ts, "dur": max(0.0, round(_microseconds(end) - ts, 3)), "args": facts}


def _microseconds(seconds: float) -> float:
    return round(max(0.0, seconds) * 1e6, 3)


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)
