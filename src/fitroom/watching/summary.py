"""What a watch found, in a few figures."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from fitroom.backends.contract import Device
from fitroom.checks.input_advice import advise_input
from fitroom.display import TextDisplay
from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import PHASES, Phase
from fitroom.watching.input_clock import wait_share

if TYPE_CHECKING:
    from fitroom.watching.observer import Observer

Reading = dict[str, Any]
"""What was read at one moment; `Watch` documents its names."""


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """What one device was used for."""

    name: str
    description: str | None
    in_use_bytes: int | None
    """At the end."""

    peak_bytes: int | None
    limit_bytes: int | None
    utilization: float | None
    """The mean share of the time in which a kernel was running, as the driver tells."""


@dataclass(frozen=True, kw_only=True)
class WatchSummary(TextDisplay):
    """The figures of everything that was watched. None is unknown."""

    backend: str
    seconds: float
    updates: int
    """Batches that were trained on."""

    devices: tuple[DeviceUse, ...]
    peak_is_of_process: bool
    """Whether the peaks are since the process began: JAX cannot reset them."""

    host_bytes: int | None
    """The most memory of the host that the process had at a reading."""

    input_wait: float | None
    """The share of training time in which training waited for its next batch."""

    phase_peak_bytes: Mapping[Phase, int | None]
    """The peak in forward pass, backward pass and update; empty where it is not known."""

    phases_are: Literal["measured", "predicted"] | None
    own_seconds: float
    """Of a processor core, that watching took."""

    num_readings: int
    input_settings: tuple[str, ...] = ()
    """Where the input is slow: what to write for this kind of data, the most promising first."""

    notes: tuple[str, ...] = ()

    @property
    def peak_bytes(self) -> int | None:
        """The highest peak of all devices."""
        return max((each.peak_bytes for each in self.devices if each.peak_bytes is not None), default=None)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self) | {"peak_bytes": self.peak_bytes}


def summarize(
    observer: "Observer",
    readings: Sequence[Reading],
    *,
    seconds: float,
    own_seconds: float,
    updates: int,
    estimate: Estimate | None,
    notes: Sequence[str] = (),
) -> WatchSummary:
    """Summarize all readings of a watch."""
    measured = observer.phases.peak_bytes
    phases: dict[Phase, int | None] = {}
    if measured:
        phases = {phase: measured.get(phase) for phase in PHASES}
    elif estimate is not None:
        phases = dict(estimate.by_phase)
    return WatchSummary(
        backend=observer.backend.name,
        seconds=seconds,
        updates=updates,
        devices=tuple(_summarize_device(device, readings) for device in observer.devices),
        peak_is_of_process=not observer.backend.can_reset_peak,
        host_bytes=max((one["host_bytes"] for one in readings if one["host_bytes"] is not None), default=None),
        input_wait=wait_share((0.0, 0.0), observer.clock.totals()),
        phase_peak_bytes=phases,
        phases_are="measured" if measured else "predicted" if estimate is not None else None,
        own_seconds=own_seconds,
        num_readings=len(readings),
        input_settings=_find_settings(observer),
        notes=tuple(notes),
    )


def _find_settings(observer: "Observer") -> tuple[str, ...]:
    """The settings that would make a slow input faster; empty where it keeps up, or where its kind is not known."""
    waited, trained = observer.clock.totals()
    if observer.source is None or waited is None:
        return ()
    advice = advise_input(observer.source, waited, max(trained - waited, 0.0))
    return tuple(setting.code for setting in advice.settings)


def mean_of(values: list[float | None]) -> float | None:
    """The mean of the values that are known.

    >>> mean_of([0.5, None, 1.0]), mean_of([None])
    (0.75, None)
    """
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _summarize_device(device: Device, readings: Sequence[Reading]) -> DeviceUse:
    uses = [reading["devices"][device.name] for reading in readings]
    known = [use for use in uses if use["in_use_bytes"] is not None]
    return DeviceUse(
        name=device.name,
        description=device.description,
        in_use_bytes=known[-1]["in_use_bytes"] if known else None,
        peak_bytes=max((use["peak_bytes"] for use in uses if use["peak_bytes"] is not None), default=None),
        limit_bytes=uses[-1]["limit_bytes"] if uses else None,
        utilization=mean_of([use["utilization"] for use in uses]),
    )
