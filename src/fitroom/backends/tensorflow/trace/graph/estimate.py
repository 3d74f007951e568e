"""The memory of a step in graph mode, found without running it."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean

from fitroom.backends.tensorflow.trace.graph.attribution import Attribution
from fitroom.backends.tensorflow.trace.graph.copies import with_copies
from fitroom.backends.tensorflow.trace.graph.grappler import names_of_outputs, optimise_graph
from fitroom.backends.tensorflow.trace.graph.program import Program, program_of
from fitroom.backends.tensorflow.trace.graph.replay import RecordedProcess, ReplayedStep
from fitroom.backends.tensorflow.trace.graph.required import required_bytes
from fitroom.backends.tensorflow.trace.graph.residents import Resident, residents_of
from fitroom.backends.tensorflow.trace.graph.scratch import PLAIN, scratch_plan
from fitroom.backends.tensorflow.trace.graph.values import Held
from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep
from fitroom.cards.catalogue import Card
from fitroom.memory.estimate import Method
from fitroom.memory.step import StepRequest
from fitroom.memory.timeline import Buffer, Kind, Moment, Timeline

TYPICAL_ERROR = 0.0067
"""The median error of the held-out cases in benchmarks/results/predicted.jsonl."""

_PROCESSES = 5
_ROOM_BYTES = 2**50
"""No card has as much: the step is replayed as if nothing could run out."""


@dataclass(frozen=True, kw_only=True)
class GraphEstimate:
    """A step's memory in graph mode."""

    timeline: Timeline
    required_bytes: int
    typical_error: float | None
    notes: tuple[str, ...]
    method: Method = "traced"
    versions: Mapping[str, str] = field(default_factory=dict)


def graph_timeline(step: TensorFlowStep, request: StepRequest) -> GraphEstimate:
    """Optimise the step's graph for the card and replay it on a model of TensorFlow's allocator."""
    residents = residents_of(step)
    program = step_program(step, residents, request.card)
    found = [_usual_process(program, residents, branch=taken) for taken in _branches(program)]
    largest, processes = max(found, key=lambda each: each[0].peak_bytes)
    return GraphEstimate(
        timeline=_timeline(largest, program, step, {each.name: each.variable for each in residents}),
        required_bytes=required_bytes(processes, largest),
        typical_error=TYPICAL_ERROR,
        notes=_notes(program),
    )


def step_program(step: TensorFlowStep, residents: Sequence[Resident], card: Card | None) -> Program:
    """The step's program for the card, with what it leaves on it and what is held there while it runs."""
    program = with_copies(program_of(optimise_graph(step, card)))
    if step.returns_gradients:
        names = names_of_outputs(step)
        program = replace(program, results=frozenset(each.index for each in program.operations if each.name in names))
    if step.holds_old:
        changed = [each.name for each in residents if each.variable.kind != "gradients"]
        program = replace(program, held=frozenset(changed))
    return program


def _usual_process(
    program: Program, residents: Sequence[Resident], *, branch: bool
) -> tuple[ReplayedStep, list[RecordedProcess]]:
    """Of a few processes, which all differ a little, the one whose peak is nearest to their mean; and all of them."""
    processes = [
        RecordedProcess(program, residents, scratch_plan, branch=branch, seed=seed) for seed in range(_PROCESSES)
    ]
    steps = [process.replay(_ROOM_BYTES) for process in processes]
    mean_bytes = mean(each.peak_bytes for each in steps)
    return min(steps, key=lambda each: abs(each.peak_bytes - mean_bytes)), processes


def _branches(program: Program) -> tuple[bool, ...]:
    """Which way to take where only the running step could tell: both, where there is such a place."""
    deciding = {each.inputs[1][0] for each in program.operations if each.op == "Switch"}
    return (True, False) if any(program.operations[index].op != "LoopCond" for index in deciding) else (True,)


def _timeline(
    replayed: ReplayedStep, program: Program, step: TensorFlowStep, variables: dict[str, StepVariable]
) -> Timeline:
    attribution = Attribution(program, variables, step.layer_paths, training=step.training)
    first_of_phase = {attribution.phase(each.index): at for at, each in reversed(list(enumerate(replayed.moments)))}
    asked = sorted({*first_of_phase.values(), *(span.first for span in replayed.spans)})
    # Nothing is said of other moments, at which nothing is asked for: there are many, and none is a peak.
    place = [bisect_right(asked, moment) - 1 for moment in range(len(replayed.moments))]
    moments = tuple(
        Moment(name=each.name, layer=attribution.layer(each.index), phase=attribution.phase(each.index))
        for each in (replayed.moments[moment] for moment in asked)
    )
    buffers = []
    for span in replayed.spans:
        kind, layer = _meaning(span.held, attribution, variables)
        buffers.append(
            Buffer(
                size_bytes=span.held.size_bytes,
                kind=kind,
                layer=layer,
                first=place[span.first],
                last=place[span.last],
            )
        )
    return Timeline(buffers=tuple(buffers), moments=moments)


def _meaning(held: Held, attribution: Attribution, variables: dict[str, StepVariable]) -> tuple[Kind, str | None]:
    """What a chunk is for, and which layer it belongs to."""
    if held.variable is not None:
        return variables[held.variable].kind, variables[held.variable].layer
    assert held.source is not None
    kind = "workspace" if held.is_scratch else attribution.kind(held.source)
    return kind, attribution.layer(held.source)


def _notes(program: Program) -> tuple[str, ...]:
    operations = {operation.op for operation in program.operations}
    notes = []
    if operations & PLAIN.keys():
        notes.append("Approximate: which kernels run a convolution, and their scratch memory, is decided on the card.")
    if program.num_unknown and "LoopCond" not in operations:
        notes.append(f"{program.num_unknown} sizes show only while the step runs; they are not counted.")
    return tuple(notes)
