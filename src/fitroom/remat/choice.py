"""The segments that a `Remat` means for a model."""

from fitroom.errors import InputError, UnknownNameError
from fitroom.remat.graph import LayerGraph
from fitroom.remat.segment import Segment
from fitroom.remat.value import Remat


def chosen_segments(graph: LayerGraph, remat: str | Remat, num_samples: int) -> tuple[Segment, ...]:
    """The stretches to compute again, with so many samples on the device at once."""
    if isinstance(remat, Remat) and remat.segments is not None:
        return named_segments(graph, remat)
    raise NotImplementedError


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
