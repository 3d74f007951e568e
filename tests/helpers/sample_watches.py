"""Readings and summaries of a watch, made by hand."""

from dataclasses import replace
from typing import Any

from fitroom.watching.summary import DeviceUse, WatchSummary

GIB = 2**30


def make_reading(seconds: float, **values: Any) -> dict[str, Any]:
    """Two cards of which 3 of 4 GiB were in use at once; `values` replace what is of the whole reading."""
    use = {"in_use_bytes": GIB, "peak_bytes": 3 * GIB, "reserved_bytes": None, "limit_bytes": 4 * GIB}
    device = use | {"utilization": 0.5}
    shares = {"host_bytes": GIB, "utilization": 0.5, "input_wait": None, "phase_peak_bytes": None}
    place = {"time": 0.0, "seconds": seconds, "epoch": 0, "batch": 1, "update": 1}
    return place | use | shares | {"devices": {"gpu:0": device, "gpu:1": device}} | values


def make_uncounted(seconds: float) -> dict[str, Any]:
    """A reading on a CPU whose memory the framework does not count."""
    use = dict.fromkeys(("in_use_bytes", "peak_bytes", "reserved_bytes", "limit_bytes", "utilization"))
    return make_reading(seconds) | use | {"devices": {"cpu:0": use}}


def make_summary(**values: Any) -> WatchSummary:
    """A training on JAX with a card, whose input is slow."""
    use = DeviceUse(
        name="gpu:0",
        description="NVIDIA H200",
        in_use_bytes=2 * GIB,
        peak_bytes=10 * GIB,
        limit_bytes=100 * GIB,
        utilization=0.97,
    )
    summary = WatchSummary(
        backend="jax",
        seconds=100.0,
        updates=1000,
        devices=(use,),
        peak_is_of_process=True,
        host_bytes=3 * GIB,
        input_wait=0.25,
        phase_peak_bytes={"forward": 9 * GIB, "backward": 10 * GIB, "update": None},
        phases_are="predicted",
        own_seconds=0.1,
        num_readings=90,
        notes=("A note.",),
    )
    return replace(summary, **values)
