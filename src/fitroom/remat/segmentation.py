"""A choice of segments: which runs of calls are recomputed in the backward pass, and what that costs.

A segment is a run of consecutive calls of a `LayerGraph`. A segmentation recomputes some segments and keeps the
activations of the calls between them. All sizes and operations are of one sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fitroom.remat.chain import Chain


@dataclass(frozen=True, kw_only=True, order=True)
class Segment:
    """The calls from `start` to before `stop`, in the order of a `LayerGraph`."""

    start: int
    stop: int


@dataclass(frozen=True, kw_only=True)
class Segmentation:
    """A choice of segments to recompute, and what it costs for one sample."""

    segments: tuple[Segment, ...]
    """Those that are recomputed, in order."""

    peak_bytes: int
    """The most that activations and their gradients take at once."""

    operations: int
    """How many operations are recomputed."""


@dataclass(frozen=True, kw_only=True)
class SegmentCost:
    """What one segment costs for one sample, recomputed or kept."""

    segment: Segment
    recomputed: bool
    leaving_bytes: int
    """The tensors that are made in it and used after it."""

    inner_bytes: int
    """What its backward pass needs besides: kept from the forward pass on, or recomputed just before."""

    backward_bytes: int
    """In use at its backward pass: what is kept of all calls before it, all that it needs, and gradients."""

    operations: int
    """How many are recomputed."""


def make_segmentation(chain: Chain, segments: Sequence[Segment]) -> Segmentation:
    """Make the segmentation that recomputes these segments and keeps what is between them."""
    costs = list(list_segment_costs(chain, segments))
    return Segmentation(
        segments=tuple(sorted(segments)),
        peak_bytes=max(cost.backward_bytes for cost in costs),
        operations=sum(cost.operations for cost in costs),
    )


def list_segment_costs(chain: Chain, segments: Sequence[Segment]) -> Iterator[SegmentCost]:
    """The cost of each segment, and of each run of kept calls between them, in their order."""
    kept_bytes = 0
    for segment in fill_gaps(segments, chain.num_calls):
        start, stop = segment.start, segment.stop
        recomputed = segment in segments
        crossing, needed_crossing = (int(found[start]) for found in chain.crossing(stop))
        recomputed_operations = (
            chain.operations[start:stop][chain.recomputed_before(stop)[start:]].sum() if recomputed else 0
        )
        cost = SegmentCost(
            segment=segment,
            recomputed=recomputed,
            leaving_bytes=crossing,
            inner_bytes=int(chain.needed_before[stop] - chain.needed_before[start]) - needed_crossing,
            backward_bytes=kept_bytes + int(chain.at_backward[start:stop].max() - chain.needed_before[start]),
            operations=int(recomputed_operations),
        )
        kept_bytes += crossing if recomputed else crossing + cost.inner_bytes
        yield cost


def fill_gaps(segments: Sequence[Segment], num_calls: int) -> Iterator[Segment]:
    """The segments, and as further ones the runs of calls between them, in their order."""
    reached = 0
    for segment in sorted(segments):
        if segment.start > reached:
            yield Segment(start=reached, stop=segment.start)
        yield segment
        reached = segment.stop
    if reached < num_calls:
        yield Segment(start=reached, stop=num_calls)
