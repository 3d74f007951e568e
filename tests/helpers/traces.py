"""Traces in Chrome's format, checked as Perfetto's importer of JSON reads them."""

from collections import Counter
from typing import Any


def check_trace(trace: dict[str, Any]) -> dict[str, Counter[str]]:
    """Check every event, and return how many events each track of each process has, by their names.

    What the importer drops or refuses fails here: a phase it does not know, a time that is no number, a slice without
    a duration, slices of one thread that overlap without nesting, a counter whose values are no numbers, and a process
    or thread without a name.
    """
    events = trace["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    tracks: dict[str, Counter[str]] = {name: Counter() for name in processes.values()}
    slices: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        assert event["ph"] in ("M", "C", "X"), event
        assert isinstance(event["ts"], int | float), event
        assert event["ts"] >= 0, event
        assert isinstance(event["pid"], int), event
        assert isinstance(event["tid"], int), event
        process = tracks[processes[event["pid"]]]
        if event["ph"] == "C":
            assert event["args"], event
            assert all(type(value) in (int, float) for value in event["args"].values()), event
            process[event["name"]] += 1
        elif event["ph"] == "X":
            assert event["dur"] >= 0, event
            place = (event["pid"], event["tid"])
            process[threads[place]] += 1
            slices.setdefault(place, []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in slices.values():
        for (_, end), (begin, _) in zip(sorted(spans), sorted(spans)[1:], strict=False):
            assert begin >= end - 0.01, "slices of one thread overlap"
    return tracks
