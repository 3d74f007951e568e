"""A cover: a chain of calls with some stretches recomputed and the rest kept, and what that costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fitroom.remat.chain import Chain
from fitroom.remat.segment import Segment


@dataclass(frozen=True, kw_only=True)
class Cover:
    """Sizes and operations are of one sample."""

    segments: tuple[Segment, ...]
    """Those that are recomputed."""

    peak_bytes: int
    """The most that activations and their gradients take at once."""

    operations: int
    """How many operations are done a second time."""


@dataclass(frozen=True, kw_only=True)
class StretchCost:
    """What one stretch of a cover takes, for one sample."""

    stretch: Segment
    recomputed: bool
    leaving_bytes: int
    """What is made in it and used after it."""

    inner_bytes: int
    """What its backward pass needs besides: kept from the forward pass on, or made again just before."""

    backward_bytes: int
    """What is there at once at its backward pass: what is kept of all before it, all that it needs, gradients."""

    operations: int
    """How many are done a second time."""


def cover_of(chain: Chain, segments: Sequence[Segment]) -> Cover:
    """The cover that recomputes these segments and keeps what is between them."""
    costs = list(stretch_costs(chain, segments))
    return Cover(
        segments=tuple(sorted(segments)),
        peak_bytes=max(cost.backward_bytes for cost in costs),
        operations=sum(cost.operations for cost in costs),
    )


def stretch_costs(chain: Chain, segments: Sequence[Segment]) -> Iterator[StretchCost]:
    """The segments and what lies between them, in their order."""
    kept_bytes = 0
    for stretch in with_gaps(segments, chain.num_calls):
        start, stop = stretch.start, stretch.stop
        recomputed = stretch in segments
        crossing, needed_crossing = (int(found[start]) for found in chain.crossing(stop))
        again = chain.operations[start:stop][chain.recomputed_before(stop)[start:]].sum() if recomputed else 0
        cost = StretchCost(
            stretch=stretch,
            recomputed=recomputed,
            leaving_bytes=crossing,
            inner_bytes=int(chain.needed_before[stop] - chain.needed_before[start]) - needed_crossing,
            backward_bytes=kept_bytes + int(chain.at_backward[start:stop].max() - chain.needed_before[start]),
            operations=int(again),
        )
        kept_bytes += crossing if recomputed else crossing + cost.inner_bytes
        yield cost


def with_gaps(segments: Sequence[Segment], num_calls: int) -> Iterator[Segment]:
    """The segments and what lies between them, in their order."""
    reached = 0
    for segment in sorted(segments):
        if segment.start > reached:
            yield Segment(start=reached, stop=segment.start)
        yield segment
        reached = segment.stop
    if reached < num_calls:
        yield Segment(start=reached, stop=num_calls)
