"""The segments that a `Remat` means for a model."""

from functools import cached_property
from typing import Any

from fitroom.errors import InputError, ModelError, UnknownNameError
from fitroom.recipe import Remat
from fitroom.remat.chain import Chain, chain_of
from fitroom.remat.cover import Cover, cover_of
from fitroom.remat.graph import LayerGraph, functional_of, layer_graph
from fitroom.remat.search import Search
from fitroom.remat.segment import Segment
from fitroom.units import format_bytes

BLOCKS_ABOVE_SMALLEST = 1.25
"""What "blocks" stands for: the least effort within so many times the smallest possible peak of activations. The last
bytes are dear: of Xception's forward pass, 56 % are computed again in place of 85 %."""


class Choice:
    """Chooses segments of one graph, and says what they cost."""

    def __init__(self, graph: LayerGraph) -> None:
        self.graph = graph

    @classmethod
    def of_model(cls, model: Any) -> "Choice":
        """For a Functional or Sequential model."""
        if functional_of(model) is None:
            raise ModelError(
                f"The layers of {model.name!r} form no graph that can be cut: its `call` is Python code of its own.",
                hint='remat="blocks" recomputes each layer it holds; a budget needs a Functional or Sequential model',
            )
        return cls(layer_graph(model))

    @cached_property
    def chain(self) -> Chain:
        """The graph with its costs."""
        return chain_of(self.graph)

    @cached_property
    def search(self) -> Search:
        """All covers of the graph."""
        return Search(self.chain)

    def cover(self, remat: str | Remat, num_samples: int = 1, resident_bytes: int = 0) -> Cover:
        """The segments for so many samples at once, beside bytes that are there in any case: weights, the batch."""
        if remat == "none":
            return cover_of(self.chain, ())
        if isinstance(remat, Remat) and remat.segments is not None:
            return cover_of(self.chain, named_segments(self.graph, remat))
        smallest_bytes = self.search.smallest_peak_bytes
        if isinstance(remat, Remat):
            budget_bytes = remat.budget_bytes or 0
            found = self.search.cheapest((budget_bytes - resident_bytes) // num_samples)
            if found is None:
                raise InputError(
                    f"No choice of segments brings a step with {num_samples} samples at once under "
                    f"{format_bytes(budget_bytes)}. The smallest possible is about "
                    f"{format_bytes(smallest_bytes * num_samples + resident_bytes)}, of which "
                    f"{format_bytes(resident_bytes)} are weights, gradients, optimizer and batch.",
                    hint="a larger budget, or a smaller micro_batch",
                )
            return cover_of(self.chain, found)
        found = self.search.cheapest(int(smallest_bytes * BLOCKS_ABOVE_SMALLEST))
        assert found is not None, "the smallest peak is that of a cover"
        return cover_of(self.chain, found)

    def named(self, cover: Cover) -> Remat:
        """The segments of a cover by their names."""
        calls = self.graph.calls
        return Remat(segments=[(calls[each.start].name, calls[each.stop - 1].name) for each in cover.segments])


def named_segments(graph: LayerGraph, remat: Remat) -> tuple[Segment, ...]:
    """Those that were named by their first and last layers."""
    numbers = {call.name: number for number, call in enumerate(graph.calls)}
    segments: list[Segment] = []
    for first, last in remat.segments or ():
        for name in (first, last):
            if name not in numbers:
                raise UnknownNameError("layer", name, numbers, more="`fitroom segments MODEL` lists the layers")
        segment = Segment(start=numbers[first], stop=numbers[last] + 1)
        before = segments[-1].stop if segments else 0
        if segment.stop <= segment.start or segment.start < before:
            raise InputError(
                f"The segment from {first!r} to {last!r} goes backwards or overlaps the one before it.",
                hint="segments follow one another in the order in which `fitroom segments MODEL` lists the layers",
            )
        segments.append(segment)
    return tuple(segments)
