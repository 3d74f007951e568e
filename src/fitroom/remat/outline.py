"""A model's graph cut into stretches, with what each of them keeps, saves and computes again: for people to read."""

from dataclasses import asdict, dataclass
from typing import Any

from fitroom.remat.choice import Choice
from fitroom.remat.cover import Cover, stretch_costs


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Consecutive calls of layers; sizes and operations are of all samples."""

    first: str
    last: str
    num_calls: int
    recomputed: bool
    """Whether it is computed again in the backward pass; if not, all that it needs is kept."""

    leaving: tuple[str, ...]
    """The layers whose outputs cross the cut at its end."""

    leaving_bytes: int
    saved_bytes: int
    """What is not kept of it since it is recomputed."""

    backward_bytes: int
    """What is there at once at its backward pass: what is kept of all before it, all that it needs, gradients."""

    operations: int
    """How many are done a second time."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """All stretches of a model, for so many samples at once."""

    model: str
    num_samples: int
    precision: str
    num_calls: int
    num_cuts: int
    """At how many places the search may cut."""

    stretches: tuple[Stretch, ...]
    peak_bytes: int
    """Of activations and their gradients."""

    plain_peak_bytes: int
    """The same where nothing is recomputed."""

    smallest_peak_bytes: int
    """The least that any choice of segments can do with."""

    operations: int
    """How many are done a second time."""

    forward_operations: int

    def to_dict(self) -> dict[str, Any]:
        """For JSON; `segments` is what `fitroom.Remat` takes."""
        segments = [[each.first, each.last] for each in self.stretches if each.recomputed]
        return {**asdict(self), "segments": segments}


def outline_of(choice: Choice, cover: Cover, *, model: str, precision: str, num_samples: int) -> Outline:
    """What a cover makes of a model."""
    chain, graph = choice.chain, choice.graph
    names = [call.name for call in graph.calls]
    stretches = []
    for cost in stretch_costs(chain, cover.segments):
        start, stop = cost.stretch.start, cost.stretch.stop
        leaving = graph.leaving(start, stop) if stop < chain.num_calls else ()
        stretches.append(
            Stretch(
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
    return Outline(
        model=model,
        num_samples=num_samples,
        precision=precision,
        num_calls=chain.num_calls,
        num_cuts=len(choice.search.boundaries) - 2,
        stretches=tuple(stretches),
        peak_bytes=cover.peak_bytes * num_samples,
        plain_peak_bytes=chain.plain_peak_bytes * num_samples,
        smallest_peak_bytes=choice.search.smallest_peak_bytes * num_samples,
        operations=cover.operations * num_samples,
        forward_operations=int(chain.operations.sum()) * num_samples,
    )
