"""Small estimates made by hand, with sizes that are easy to follow."""

from collections.abc import Mapping
from dataclasses import replace

from fitroom.memory.estimate import Estimate
from fitroom.memory.timeline import Buffer, Kind, Moment, Phase, Timeline
from fitroom.recipe import Recipe

MIB = 2**20
GIB = 2**30

PHASES_OF_SIX: tuple[Phase | None, ...] = ("forward", "forward", "backward", "backward", "update", None)
LAYERS_OF_SIX = ("stem", "head", "head", "stem", "stem", None)


def buffer(size_bytes: int, kind: Kind, layer: str | None, first: int, last: int) -> Buffer:
    return Buffer(size_bytes=size_bytes, kind=kind, layer=layer, first=first, last=last)


def small_timeline() -> Timeline:
    """Six operations; the peak of 5 GiB is at the third, of the layer `head`, in the backward pass."""
    moments = tuple(
        Moment(name=f"op.{index}", layer=layer, phase=phase)
        for index, (layer, phase) in enumerate(zip(LAYERS_OF_SIX, PHASES_OF_SIX, strict=True))
    )
    buffers = (
        buffer(512 * MIB, "weights", "stem", 0, 5),
        buffer(512 * MIB, "optimizer", "stem", 0, 5),
        buffer(256 * MIB, "input", None, 0, 3),
        buffer(2 * GIB, "activations", "stem", 0, 3),
        buffer(1280 * MIB, "activations", "head", 1, 2),
        buffer(448 * MIB, "gradients", "head", 2, 4),
        buffer(64 * MIB, "workspace", None, 2, 2),
    )
    return Timeline(buffers=buffers, moments=moments)


def estimate_of(timeline: Timeline) -> Estimate:
    """An estimate with the given timeline, 25 % above its peak in `required_bytes`."""
    return Estimate(
        peak_bytes=timeline.peak_bytes,
        required_bytes=timeline.peak_bytes * 5 // 4,
        device_bytes=timeline.peak_bytes * 5 // 4 + 512 * MIB,
        timeline=timeline,
        method="compiled",
        typical_error=0.0003,
        model="TinyNet",
        backend="jax",
        gpu="NVIDIA L4",
        limit_bytes=16 * GIB,
        batch_size=8,
        precision="float32",
        recipe=Recipe(),
        seconds=2.345,
        versions={"jax": "0.9.0", "keras": "3.12.0"},
        notes=("The loss was chosen for the model: it has none of its own.",),
    )


def small_estimate() -> Estimate:
    return estimate_of(small_timeline())


def estimate_of_layers(sizes_bytes: Mapping[str, int]) -> Estimate:
    """One operation that holds the given bytes of each layer, and whose phase and layer are unknown."""
    timeline = Timeline(
        buffers=tuple(buffer(size, "activations", layer, 0, 0) for layer, size in sizes_bytes.items()),
        moments=(Moment(name="fusion.1", layer=None, phase=None),),
    )
    return replace(estimate_of(timeline), notes=(), versions={}, typical_error=None)


def long_timeline(num_moments: int) -> Timeline:
    """A saw of many small teeth and one single moment, at two thirds, that is the peak."""
    peak = num_moments * 2 // 3
    teeth = [buffer((1 + at % 7) * MIB, "activations", f"layer_{at % 50}", at, at) for at in range(num_moments)]
    moments = tuple(
        Moment(name=f"op.{at}", layer=f"layer_{at % 50}", phase=("forward", "backward")[at > num_moments // 2])
        for at in range(num_moments)
    )
    return Timeline(buffers=(*teeth, buffer(64 * MIB, "workspace", None, peak, peak)), moments=moments)
