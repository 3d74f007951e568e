"""The memory of a Keras step on PyTorch, found without running it."""

import importlib.metadata
from contextlib import nullcontext
from typing import Any

from fitroom.backends.prepared import prepared
from fitroom.backends.torch.platform import cuda
from fitroom.backends.torch.step import RecordedSteps, predict_steps, training_steps
from fitroom.errors import BackendError
from fitroom.estimating.allocators.replay import replay, smallest_limit_bytes
from fitroom.estimating.overhead import visible_bytes
from fitroom.estimating.step import StepRequest, TracedStep
from fitroom.estimating.timeline import Buffer, Timeline

TYPICAL_ERROR = None
"""The median error of benchmarks/results."""


def trace_step(model: Any, request: StepRequest) -> TracedStep:
    """The step that Keras would run, followed on fake tensors through a model of the caching allocator."""
    limit_bytes = request.limit_bytes or visible_bytes(request.card.memory_bytes)
    with prepared(model, request, lend_values=lambda variables: nullcontext()) as ready:
        _check_eager(ready.model, request)
        platform = cuda(request.card)
        steps = training_steps(ready, platform) if request.training else predict_steps(ready, platform)
    requests = steps.log.requests()
    unlimited = replay(requests)
    timeline = timeline_of(steps, unlimited.block_bytes)
    return TracedStep(
        timeline=timeline,
        required_bytes=smallest_limit_bytes(requests, timeline.peak_bytes, unlimited.reserved_bytes),
        limit_bytes=limit_bytes,
        method="traced",
        typical_error=TYPICAL_ERROR,
        precision=ready.precision,
        versions={name: importlib.metadata.version(name) for name in ("keras", "torch")},
        notes=ready.notes,
    )


def timeline_of(steps: RecordedSteps, block_bytes: list[int]) -> Timeline:
    """The last step: what it makes, and what it finds there."""
    start, end = steps.last_step, steps.log.now
    buffers = [
        Buffer(
            size_bytes=size_bytes,
            kind=buffer.kind,
            layer=buffer.layer,
            first=max(buffer.first, start) - start,
            last=(end if buffer.last is None else buffer.last) - start,
        )
        for buffer, size_bytes in zip(steps.log.buffers, block_bytes, strict=True)
        if buffer.last is None or buffer.last >= start
    ]
    return Timeline(buffers=tuple(buffers), moments=tuple(steps.log.moments[start:]))


def _check_eager(model: Any, request: StepRequest) -> None:
    compiled = model.compiled and bool(model.jit_compile) and not model.run_eagerly
    if request.recipe.jit or (request.recipe.jit is None and compiled):
        raise BackendError(
            "The memory of a step under `torch.compile` is not predicted. Received: a step that is to be jitted.",
            hint="leave jit out (--no-jit, or `model.compile(..., jit_compile=False)`), as Keras does by default",
        )
