"""The readings of a run as a few hundred points, however many there are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

MAX_POINTS = 300


@dataclass(frozen=True, kw_only=True)
class Point:
    """Several neighbouring readings as one: their largest memory, their mean speed, the last one's other values."""

    time: float
    """In Unix seconds."""

    seconds: float
    """How long the run had trained; the time between a stop and a resume is left out."""

    epoch: int
    batch: int
    update: int
    """How many optimizer steps the run had done."""

    loss: float | None
    learning_rate: float | None
    pictures_per_second: float | None
    in_use_bytes: int | None
    peak_bytes: int | None
    host_bytes: int | None
    limit_bytes: int | None
    micro_batch: int | None
    spent_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds that the run has spent so far, by activity: compiling, training, validating."""

    num_readings: int = 1


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What was read during a run."""

    points: tuple[Point, ...]

    @property
    def peak_bytes(self) -> int | None:
        """The most that the framework had in use, as far as it counts."""
        return _find_most(size for point in self.points for size in (point.peak_bytes, point.in_use_bytes))

    @property
    def host_bytes(self) -> int | None:
        """The most memory of the host that the process had."""
        return _find_most(point.host_bytes for point in self.points)

    @property
    def limit_bytes(self) -> int | None:
        """The allocator's limit."""
        return _find_most(point.limit_bytes for point in self.points)

    @property
    def micro_batches(self) -> tuple[int, ...]:
        """Every micro-batch that was in force, in order."""
        return tuple(dict.fromkeys(point.micro_batch for point in self.points if point.micro_batch is not None))

    @property
    def pictures_per_second(self) -> float | None:
        """The mean speed over the whole run."""
        return _average_speed(self.points)

    @property
    def seconds(self) -> float:
        """How long the run had trained at the last reading."""
        return self.points[-1].seconds if self.points else 0.0

    @property
    def spent_seconds(self) -> Mapping[str, float]:
        """What the time went into, as far as it was counted."""
        return self.points[-1].spent_seconds if self.points else {}

    def seconds_at(self, time: float) -> float:
        """How long it had trained at a time, in Unix seconds."""
        return max((point.seconds for point in self.points if point.time <= time), default=0.0)


def thin_readings(readings: Iterable[Mapping[str, Any]], *, resumed: Sequence[float] = ()) -> Readings:
    """Thin readings of any number to at most `MAX_POINTS` points, without holding them all in memory.

    `resumed` are the times, in Unix seconds, at which the run resumed after a stop.
    """
    points: list[Point] = []
    width, seconds, before = 1, 0.0, None
    for reading in readings:
        now = parse_finite(reading.get("time"))
        if now is None:
            continue
        if before is not None and not any(before < time <= now for time in resumed):
            seconds += max(now - before, 0.0)
        before = now
        point = _make_point(reading, now, seconds)
        if points and points[-1].num_readings < width:
            points[-1] = _merge(points[-1], point)
        elif len(points) < 2 * MAX_POINTS:
            points.append(point)
        else:
            points = _halve(points)
            width *= 2
            points.append(point)
    shown = points if len(points) <= MAX_POINTS else _halve(points)
    return Readings(points=tuple(shown))


def _halve(points: list[Point]) -> list[Point]:
    pairs = zip(points[::2], points[1::2], strict=False)
    return [_merge(*pair) for pair in pairs] + points[len(points) & ~1 :]


def _merge(first: Point, second: Point) -> Point:
    return replace(
        second,
        pictures_per_second=_average_speed((first, second)),
        in_use_bytes=_find_most((first.in_use_bytes, second.in_use_bytes)),
        peak_bytes=_find_most((first.peak_bytes, second.peak_bytes)),
        host_bytes=_find_most((first.host_bytes, second.host_bytes)),
        num_readings=first.num_readings + second.num_readings,
    )


def _make_point(reading: Mapping[str, Any], time: float, seconds: float) -> Point:
    return Point(
        time=time,
        seconds=seconds,
        epoch=_parse_whole(reading.get("epoch")) or 0,
        batch=_parse_whole(reading.get("batch")) or 0,
        update=_parse_whole(reading.get("update")) or 0,
        spent_seconds=_parse_spent(reading.get("spent_seconds")),
        loss=parse_finite(reading.get("loss")),
        learning_rate=parse_finite(reading.get("learning_rate")),
        pictures_per_second=parse_finite(reading.get("pictures_per_second")),
        in_use_bytes=_parse_whole(reading.get("in_use_bytes")),
        peak_bytes=_parse_whole(reading.get("peak_bytes")),
        host_bytes=_parse_whole(reading.get("host_bytes")),
        limit_bytes=_parse_whole(reading.get("limit_bytes")),
        micro_batch=_parse_whole(reading.get("micro_batch")),
    )


def _average_speed(points: Iterable[Point]) -> float | None:
    timed = [(p.pictures_per_second, p.num_readings) for p in points if p.pictures_per_second is not None]
    return sum(speed * count for speed, count in timed) / sum(count for _, count in timed) if timed else None


def _find_most(sizes: Iterable[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)


def parse_finite(value: Any) -> float | None:
    """Return a number, or None for what is no number or not finite."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) else None


def _parse_whole(value: Any) -> int | None:
    number = parse_finite(value)
    return None if number is None else int(number)


def _parse_spent(value: Any) -> dict[str, float]:
    known = {str(name): parse_finite(seconds) for name, seconds in value.items()} if isinstance(value, dict) else {}
    return {name: seconds for name, seconds in known.items() if seconds is not None}
