"""A segment: calls of layers that run as a whole, and again in the backward pass."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, order=True)
class Segment:
    """The calls from `start` to before `stop` in the order of a `LayerGraph`."""

    start: int
    stop: int
