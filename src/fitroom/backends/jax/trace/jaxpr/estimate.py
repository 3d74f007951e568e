"""The memory of a step from its jaxpr alone, without a compiler.

For machines that lack XLA's GPU compiler, and for steps that are not compiled at all.
"""

from dataclasses import dataclass, replace

from fitroom.backends.jax.trace.attribution import is_recomputed, layer_in, phase_in
from fitroom.backends.jax.trace.jaxpr.fusion import Kernel, Kernels, fused_kernels, unfused_kernels
from fitroom.backends.jax.trace.jaxpr.primitives import LOOP_CARRY
from fitroom.backends.jax.trace.jaxpr.program import Program, program_of
from fitroom.backends.jax.trace.jaxpr.schedule import held_lifetimes, least_memory_order, lifetimes
from fitroom.backends.jax.trace.step import JaxStep
from fitroom.backends.xla.attribution import KIND_OF_PHASE, Argument
from fitroom.backends.xla.timeline import align_bytes
from fitroom.memory.timeline import Buffer, Kind, Moment, Timeline

TYPICAL_ERROR = 0.0456
"""Median relative error of a fused step's peak: the held-out half in benchmarks/results/jax_traced.json."""

UNSEEN_PERCENT = 5
"""What XLA's block of temporaries holds beyond the values known here: gaps, scratch, copies in another layout.

Without it, most estimates of the models that the rules were made with came out a few percent too low.
"""


def timeline_of_jaxpr(step: JaxStep, *, fused: bool) -> Timeline:
    """The step's memory over its kernels.

    `fused`: as XLA would compile the step for a GPU, its state updated in place. Otherwise operation by operation, each
    with an output of its own, and the new state beside the old.
    """
    program = program_of(step.jitted.trace(*step.specs).jaxpr, merged=fused)
    return timeline_of_program(program, step.arguments, step.layer_names, fused=fused)


def timeline_of_program(
    program: Program, arguments: tuple[Argument, ...], layer_names: frozenset[str], *, fused: bool
) -> Timeline:
    """The memory of a flat program, whose last results are its new state, over its kernels."""
    if not fused:
        view = _View(program, arguments, layer_names, in_place=frozenset())
        return view.timeline(unfused_kernels(program), held=True)
    num_state = sum(argument.kind != "input" for argument in arguments)
    new_state = program.results[len(program.results) - num_state :]
    return _fused_timeline(_View(program, arguments, layer_names, in_place=frozenset(new_state)))


def _fused_timeline(view: "_View") -> Timeline:
    found = fused_kernels(view.program)
    reordered = Kernels(least_memory_order(found), found.sizes_bytes)
    # XLA, too, tries several orders and takes the one with the lowest peak.
    timeline = min((view.timeline(kernels) for kernels in (found, reordered)), key=lambda timeline: timeline.peak_bytes)
    temporary_bytes = timeline.peak_bytes - sum(align_bytes(argument.size_bytes) for argument in view.arguments)
    unseen_bytes = align_bytes(temporary_bytes * UNSEEN_PERCENT // 100)
    unseen = Buffer(size_bytes=unseen_bytes, kind="other", layer=None, first=0, last=len(timeline.moments) - 1)
    return replace(timeline, buffers=(*timeline.buffers, unseen))


@dataclass(frozen=True, slots=True)
class _View:
    """A program, and what is known of it from outside."""

    program: Program
    arguments: tuple[Argument, ...]
    layer_names: frozenset[str]
    in_place: frozenset[int | None]
    """Results that are written where an argument was."""

    def timeline(self, found: Kernels, *, held: bool = False) -> Timeline:
        moments = tuple(self._moment(kernel) for kernel in found.kernels) or (_NOTHING,)
        lived = lifetimes(found)
        if held:
            lived = held_lifetimes(found.kernels, lived, moments)
        end = len(moments) - 1
        weights = {v for v, a in zip(self.program.arguments, self.arguments, strict=True) if a.kind == "weights"}
        results = set(self.program.results)
        buffers = self._standing(end)
        for number, kernel in enumerate(found.kernels):
            layer, phase = moments[number].layer, moments[number].phase
            of_weights = kernel.reads and kernel.reads <= weights
            kind: Kind = "weights" if of_weights and phase == "forward" else KIND_OF_PHASE[phase]
            if is_recomputed(kernel.operation.scope):
                kind = "activations"
            # In whatever order its kernels run, what a loop carries is there before it.
            first = 0 if kernel.operation.name == LOOP_CARRY else number
            for value in kernel.writes:
                if value not in self.in_place:
                    size_bytes, last = (
                        align_bytes(found.sizes_bytes[value]),
                        end if value in results else lived[value][1],
                    )
                    buffers.append(Buffer(size_bytes=size_bytes, kind=kind, layer=layer, first=first, last=last))
            if kernel.operation.bodies:
                size_bytes = max(map(_round_bytes, kernel.operation.bodies))
                buffers.append(Buffer(size_bytes=size_bytes, kind="workspace", layer=layer, first=number, last=number))
        return Timeline(buffers=tuple(buffers), moments=moments)

    def _moment(self, kernel: Kernel) -> Moment:
        scope = kernel.operation.scope
        training = any(argument.kind == "optimizer" for argument in self.arguments)
        return Moment(
            name=kernel.operation.name,
            layer=layer_in(scope, self.layer_names),
            phase=phase_in(scope, training=training),
        )

    def _standing(self, end: int) -> list[Buffer]:
        """What is there all along: arguments and constants."""
        constants = [self.program.sizes_bytes[value] for value in self.program.constants]
        standing = [*self.arguments, *(Argument(size_bytes=size, kind="other", layer=None) for size in constants)]
        return [
            Buffer(size_bytes=align_bytes(a.size_bytes), kind=a.kind, layer=a.layer, first=0, last=end)
            for a in standing
        ]


_NOTHING = Moment(name="nothing", layer=None, phase=None)


def _round_bytes(body: Program) -> int:
    """What one round of a loop takes beyond what it is given and hands on. A loop is always compiled."""
    arguments = tuple(Argument(size_bytes=0, kind="other", layer=None) for _ in body.arguments)
    view = _View(body, arguments, frozenset(), in_place=frozenset(body.results))
    return _fused_timeline(view).peak_bytes
