"""The memory of a batch in parts: of a part, and of the update that follows the last."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from fitroom.backends.tensorflow.trace.graph.estimate import GraphFound, graph_timeline
from fitroom.backends.tensorflow.trace.micro_batch_step import CutStep
from fitroom.backends.tensorflow.trace.step import TensorFlowStep
from fitroom.memory.allocators.best_fit import round_up
from fitroom.memory.step import StepRequest
from fitroom.memory.timeline import PHASES, Buffer, Moment, Phase, Timeline

if TYPE_CHECKING:
    from fitroom.backends.tensorflow.trace.jitted.estimate import JittedFound

_OF_A_PART: dict[Phase, Phase] = {"forward": "forward", "backward": "backward", "update": "backward"}
_OF_AN_UPDATE: dict[Phase, Phase] = dict.fromkeys(PHASES, "update")

_ROOM_TO_MOVE = 1.1
"""For new values beside old ones, which then come to lie elsewhere in each update."""


def graph_timeline_of_parts(step: CutStep, request: StepRequest) -> GraphFound:
    """In graph mode."""
    part, update = graph_timeline(step.part, request), graph_timeline(step.update, request)
    return replace(
        part,
        timeline=_in_phases(part.timeline, _OF_A_PART).followed_by(_in_phases(update.timeline, _OF_AN_UPDATE)),
        required_bytes=max(part.required_bytes, update.required_bytes),
    )


def jitted_timeline_of_parts(step: CutStep, request: StepRequest, limit_bytes: int) -> "JittedFound":
    """Jitted. XLA fuses an update into kernels that need no memory of their own: it is not compiled for this."""
    from fitroom.backends.tensorflow.trace.jitted.estimate import jitted_timeline

    part, update = jitted_timeline(step.part, request, limit_bytes), _fused_update(step.update)
    return replace(
        part,
        timeline=_in_phases(part.timeline, _OF_A_PART).followed_by(update),
        required_bytes=max(part.required_bytes, int(_ROOM_TO_MOVE * update.peak_bytes)),
    )


def _in_phases(timeline: Timeline, phases: Mapping[Phase, Phase]) -> Timeline:
    """The same with phases under other names: operations are named for a whole step, which none of the two is."""
    moments = (replace(moment, phase=moment.phase and phases[moment.phase]) for moment in timeline.moments)
    return Timeline(buffers=timeline.buffers, moments=tuple(moments))


def _fused_update(update: TensorFlowStep) -> Timeline:
    """All variables, and the old values of those that are changed: all but the sums of gradients."""
    held = [each for each in update.variables for _ in range(1 if each.kind == "gradients" else 2)]
    buffers = [
        Buffer(size_bytes=round_up(each.size_bytes), kind=each.kind, layer=each.layer, first=0, last=0) for each in held
    ]
    return Timeline(buffers=tuple(buffers), moments=(Moment(name="update", layer=None, phase="update"),))
