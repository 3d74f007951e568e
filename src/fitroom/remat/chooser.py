"""The segments that a `Remat` means for a model: chosen by name, as blocks, or for a budget."""

from functools import cached_property
from typing import Any

from fitroom.errors import InputError, ModelError, UnknownNameError
from fitroom.recipe import Remat
from fitroom.remat.chain import Chain, chain_of
from fitroom.remat.graph import LayerGraph, functional_of, layer_graph
from fitroom.remat.search import Search
from fitroom.remat.segmentation import Segment, Segmentation, make_segmentation
from fitroom.units import format_bytes

BLOCKS_ABOVE_SMALLEST = 1.25
"""What "blocks" means: the least effort within so many times the smallest possible peak of activations. The last
bytes cost most: of Xception's forward pass 56 % are recomputed, instead of 85 % for the smallest peak."""


class SegmentChooser:
    """Chooses segments of one graph."""

    def __init__(self, graph: LayerGraph) -> None:
        self.graph = graph

    @classmethod
    def of_model(cls, model: Any) -> "SegmentChooser":
        """Make one for a Functional or Sequential model; raises ModelError for another."""
        if functional_of(model) is None:
            raise ModelError(
                f"The layers of {model.name!r} form no graph that can be cut: its `call` is Python code of its own.",
                hint='remat="blocks" recomputes each layer it holds; a budget needs a Functional or Sequential model',
            )
        return cls(layer_graph(model))

    @cached_property
    def chain(self) -> Chain:
        """The costs of the graph's calls."""
        return chain_of(self.graph)

    @cached_property
    def search(self) -> Search:
        """The search over segmentations of the graph."""
        return Search(self.chain)

    def choose(self, remat: str | Remat, num_samples: int = 1, resident_bytes: int = 0) -> Segmentation:
        """Choose segments for a micro-batch of `num_samples`.

        `resident_bytes` are in use in any case: weights, gradients, optimizer, batch. A budget must hold them too.
        """
        if remat == "none":
            return make_segmentation(self.chain, ())
        if isinstance(remat, Remat) and remat.segments is not None:
            return make_segmentation(self.chain, find_segments(self.graph, remat))
        smallest_bytes = self.search.smallest_peak_bytes
        if isinstance(remat, Remat):
            budget_bytes = remat.budget_bytes or 0
            found = self.search.cheapest((budget_bytes - resident_bytes) // num_samples)
            if found is None:
                raise InputError(
                    f"No choice of segments brings a step with micro-batch {num_samples} under "
                    f"{format_bytes(budget_bytes)}. The smallest possible is about "
                    f"{format_bytes(smallest_bytes * num_samples + resident_bytes)}, of which "
                    f"{format_bytes(resident_bytes)} are weights, gradients, optimizer and batch.",
                    hint="a larger limit, or a smaller micro-batch",
                )
            return make_segmentation(self.chain, found)
        found = self.search.cheapest(int(smallest_bytes * BLOCKS_ABOVE_SMALLEST))
        assert found is not None, "the smallest peak is that of a segmentation"
        return make_segmentation(self.chain, found)

    def to_remat(self, segmentation: Segmentation) -> Remat:
        """Its segments by the names of their first and last layers."""
        calls = self.graph.calls
        return Remat(segments=[(calls[each.start].name, calls[each.stop - 1].name) for each in segmentation.segments])


def find_segments(graph: LayerGraph, remat: Remat) -> tuple[Segment, ...]:
    """Find the segments that a `Remat` names by their first and last layers."""
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


def describe_remat(model: Any, remat: str | Remat | None) -> tuple[str, ...]:
    """A sentence on what a recipe recomputes; empty where it recomputes nothing. `remat` is no budget, but segments."""
    if remat in (None, "none"):
        return ()
    if functional_of(model) is None:
        return ("Each layer of the model that is made of layers is recomputed in the backward pass.",)
    chooser = SegmentChooser.of_model(model)
    segmentation = chooser.choose(remat or "none")
    if not segmentation.segments:
        why = "for this model that would hardly save anything" if remat == "blocks" else "nothing has to be"
        return (f"No layers are recomputed in the backward pass: {why}.",)
    share = 100 * segmentation.operations / int(chooser.chain.operations.sum())
    segments = (
        "One segment of its layers is"
        if len(segmentation.segments) == 1
        else f"{len(segmentation.segments)} segments of its layers are"
    )
    return (f"{segments} recomputed in the backward pass, {share:.0f} % of the forward pass's operations.",)
