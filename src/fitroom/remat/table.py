"""A table of a model's segments, with what each of them keeps, saves and recomputes: for people to read."""

from dataclasses import asdict, dataclass
from typing import Any

from fitroom.remat.chooser import SegmentChooser
from fitroom.remat.segmentation import Segmentation, list_segment_costs


@dataclass(frozen=True, kw_only=True)
class SegmentRow:
    """One segment, recomputed or kept; sizes and operations are of all samples."""

    first: str
    last: str
    num_calls: int
    recomputed: bool
    """Whether it is recomputed in the backward pass; if not, all that its backward pass needs is kept."""

    leaving: tuple[str, ...]
    """The layers whose outputs cross the cut at its end."""

    leaving_bytes: int
    saved_bytes: int
    """What need not be kept, since it is recomputed."""

    backward_bytes: int
    """In use at its backward pass: what is kept of all calls before it, all that it needs, and gradients."""

    operations: int
    """How many are recomputed."""


@dataclass(frozen=True, kw_only=True)
class SegmentTable:
    """All segments of a model, for a micro-batch of `num_samples`."""

    model: str
    num_samples: int
    precision: str
    num_calls: int
    num_cuts: int
    """At how many places the search may cut."""

    rows: tuple[SegmentRow, ...]
    """One row for each segment, recomputed or kept."""

    peak_bytes: int
    """Of activations and their gradients."""

    plain_peak_bytes: int
    """The same where nothing is recomputed."""

    smallest_peak_bytes: int
    """The smallest peak of any choice of segments."""

    operations: int
    """How many are recomputed."""

    forward_operations: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `segments` is what `fitroom.Remat` takes, and `stretches` the rows: a name that scripts rely on."""
        fields = {"stretches" if name == "rows" else name: value for name, value in asdict(self).items()}
        return {**fields, "segments": [[row.first, row.last] for row in self.rows if row.recomputed]}


def make_segment_table(
    chooser: SegmentChooser, segmentation: Segmentation, *, model: str, precision: str, num_samples: int
) -> SegmentTable:
    """Make the table of one segmentation of a model."""
    chain, graph = chooser.chain, chooser.graph
    names = [call.name for call in graph.calls]
    rows = []
    for cost in list_segment_costs(chain, segmentation.segments):
        start, stop = cost.segment.start, cost.segment.stop
        leaving = graph.leaving(start, stop) if stop < chain.num_calls else ()
        rows.append(
            SegmentRow(
                first=names[start],
                last=names[stop - 1],
                num_calls=stop - start,
                recomputed=cost.recomputed,
                leaving=tuple(dict.fromkeys(names[graph.made_by[place]] for place in leaving)),
                leaving_bytes=cost.leaving_bytes * num_samples,
                saved_bytes=cost.inner_bytes * num_samples if cost.recomputed else 0,
                backward_bytes=cost.backward_bytes * num_samples,
                operations=cost.operations * num_samples,
            )
        )
    return SegmentTable(
        model=model,
        num_samples=num_samples,
        precision=precision,
        num_calls=chain.num_calls,
        num_cuts=len(chooser.search.boundaries) - 2,
        rows=tuple(rows),
        peak_bytes=segmentation.peak_bytes * num_samples,
        plain_peak_bytes=chain.plain_peak_bytes * num_samples,
        smallest_peak_bytes=chooser.search.smallest_peak_bytes * num_samples,
        operations=segmentation.operations * num_samples,
        forward_operations=int(chain.operations.sum()) * num_samples,
    )
