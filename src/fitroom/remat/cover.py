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


def cover_of(chain: Chain, segments: Sequence[Segment]) -> Cover:
    """The cover that recomputes these segments and keeps what is between them."""
    kept_bytes = peak_bytes = operations = 0
    recomputed = frozenset(segments)
    for stretch in with_gaps(segments, chain.num_calls):
        start, stop = stretch.start, stretch.stop
        before = int(chain.needed_before[start])
        peak_bytes = max(peak_bytes, kept_bytes - before + int(chain.at_backward[start:stop].max()))
        crossing, needed_crossing = chain.crossing(stop)
        kept_bytes += int(crossing[start])
        if stretch in recomputed:
            operations += int(chain.operations[start:stop][chain.recomputed_before(stop)[start:]].sum())
        else:
            kept_bytes += int(chain.needed_before[stop]) - before - int(needed_crossing[start])
    return Cover(segments=tuple(sorted(recomputed)), peak_bytes=peak_bytes, operations=operations)


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
