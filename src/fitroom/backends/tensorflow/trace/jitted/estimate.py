"""The memory of TensorFlow's jitted step, without a GPU."""

import importlib.metadata
from dataclasses import dataclass, field

from fitroom.backends.tensorflow.trace.jitted.compiler import compile_timeline
from fitroom.backends.tensorflow.trace.jitted.hlo import trace_for_xla
from fitroom.backends.tensorflow.trace.jitted.library import choose_compiler, tensorflow_version
from fitroom.backends.tensorflow.trace.jitted.placement import block_bytes, train
from fitroom.backends.tensorflow.trace.jitted.required import required_bytes
from fitroom.backends.tensorflow.trace.step import TensorFlowStep
from fitroom.memory.allocators.best_fit import BestFitAllocator, round_up
from fitroom.memory.estimate import Method
from fitroom.memory.step import StepRequest
from fitroom.memory.timeline import Buffer, Timeline

NEAR_COMPILER_ERROR = 0.0040
"""The median error of benchmarks/results/predicted.jsonl: a compiler near TensorFlow's own XLA."""

OTHER_COMPILER_ERROR = 0.0208
"""The median error of benchmarks/results/predicted_tf_0.10.2.jsonl: a compiler of another version."""


@dataclass(frozen=True, kw_only=True)
class JittedEstimate:
    """A jitted step's memory and how it was found."""

    timeline: Timeline
    required_bytes: int
    method: Method = "compiled"
    typical_error: float | None
    versions: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def jitted_timeline(step: TensorFlowStep, request: StepRequest, limit_bytes: int) -> JittedEstimate:
    """The step as XLA lays it out for the card of the request."""
    compiler = choose_compiler()
    timeline = compile_timeline(trace_for_xla(step), request.card, compiler.library)
    block = block_bytes(step, timeline.peak_bytes)
    if step.prefetches_next:
        timeline = _with_next(timeline, step.batch_bytes)
    roomy = BestFitAllocator(limit_bytes=max(limit_bytes, 4 * timeline.peak_bytes))
    timeline = timeline.with_peak(max(timeline.peak_bytes, train(step, block, roomy)))
    return JittedEstimate(
        timeline=timeline,
        required_bytes=required_bytes(step, block, timeline.peak_bytes, _sizes(request)),
        typical_error=NEAR_COMPILER_ERROR if compiler.near else OTHER_COMPILER_ERROR,
        versions={
            "keras": importlib.metadata.version("keras"),
            "tensorflow": tensorflow_version(),
            "compiler": str(compiler.library),
        },
        notes=(*compiler.notes, *_recomputing_note(timeline)),
    )


def _sizes(request: StepRequest) -> float:
    """How many sizes of batches a step is compiled for: where a batch is cut, also for what is left over."""
    at_once = request.recipe.samples_at_once(request.batch_size)
    return 1 + (request.batch_size % at_once) / at_once


def _with_next(timeline: Timeline, next_bytes: int) -> Timeline:
    """The same with the next batch on its way to the card."""
    end = len(timeline.moments) - 1
    prefetched = Buffer(size_bytes=round_up(next_bytes), kind="input", layer=None, first=0, last=end)
    return Timeline(buffers=(*timeline.buffers, prefetched), moments=timeline.moments)


def _recomputing_note(timeline: Timeline) -> tuple[str, ...]:
    recomputed = sum(".remat" in moment.name for moment in timeline.moments)
    if not recomputed:
        return ()
    return (f"To stay under 80 % of the card XLA recomputes ({recomputed} operations): less memory, slower.",)
