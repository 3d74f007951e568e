"""A scripted step in place of a traced one."""

from dataclasses import replace

from fitroom.memory.step import StepRequest, TracedStep
from fitroom.memory.timeline import Buffer, Kind, Moment, Timeline

GROWS_WITH_THE_BATCH: frozenset[Kind] = frozenset({"activations", "input", "workspace"})

_MIB = 2**20

SMALL_STEP = Timeline(
    buffers=(
        Buffer(size_bytes=8 * _MIB, kind="weights", layer="dense", first=0, last=2),
        Buffer(size_bytes=16 * _MIB, kind="optimizer", layer="dense", first=0, last=2),
        Buffer(size_bytes=1 * _MIB, kind="input", layer=None, first=0, last=2),
        Buffer(size_bytes=4 * _MIB, kind="activations", layer="dense", first=0, last=1),
        Buffer(size_bytes=8 * _MIB, kind="gradients", layer="dense", first=1, last=2),
    ),
    moments=(
        Moment(name="dense/forward", layer="dense", phase="forward"),
        Moment(name="dense/backward", layer="dense", phase="backward"),
        Moment(name="update", layer=None, phase="update"),
    ),
)
"""A step of one layer at batch size 1, with its peak in the backward pass."""


def trace_step(timeline: Timeline, request: StepRequest, *, capacity_bytes: int) -> TracedStep:
    """The scripted timeline of one sample, at the request's micro-batch.

    Activations, input and workspace grow with it, the rest stays. Nothing else of the request changes the sizes,
    and nothing fragments: what is required is the peak.
    """
    num_samples = request.recipe.samples_at_once(request.batch_size)
    scaled = replace(
        timeline,
        buffers=tuple(
            replace(buffer, size_bytes=buffer.size_bytes * num_samples)
            if buffer.kind in GROWS_WITH_THE_BATCH
            else buffer
            for buffer in timeline.buffers
        ),
    )
    return TracedStep(
        timeline=scaled,
        required_bytes=scaled.peak_bytes,
        limit_bytes=capacity_bytes if request.limit_bytes is None else request.limit_bytes,
        method="traced",
        typical_error=None,
        precision=request.recipe.precision or "float32",
        versions={},
        notes=("This is the fake backend: the sizes are scripted.",),
    )
