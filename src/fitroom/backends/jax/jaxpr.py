"""The memory of a step from its jaxpr alone, without a compiler.

For machines that lack XLA's GPU compiler, and for steps that are not compiled at all.
"""

from fitroom.backends.jax.attribution import aligned
from fitroom.backends.jax.fusion import Kernels, fused_kernels, unfused_kernels
from fitroom.backends.jax.program import Program, program_of
from fitroom.backends.jax.schedule import held_lifetimes, lifetimes, thrifty_order
from fitroom.backends.jax.scope import KIND_OF_PHASE, layer_in, phase_in
from fitroom.backends.jax.step import Argument, JaxStep
from fitroom.estimating.timeline import Buffer, Kind, Moment, Timeline


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
    """The same of a flat program."""
    if not fused:
        return _timeline(unfused_kernels(program), program, arguments, layer_names, fused=False)
    found = fused_kernels(program)
    thrifty = Kernels(thrifty_order(found), found.sizes_bytes)
    # XLA, too, tries several orders and takes the one with the lowest peak.
    candidates = [_timeline(kernels, program, arguments, layer_names, fused=True) for kernels in (found, thrifty)]
    return min(candidates, key=lambda timeline: timeline.peak_bytes)


def _timeline(
    found: Kernels, program: Program, arguments: tuple[Argument, ...], layer_names: frozenset[str], *, fused: bool
) -> Timeline:
    kernels, sizes_bytes = found.kernels, found.sizes_bytes
    training = any(argument.kind == "optimizer" for argument in arguments)
    weights = {v for v, a in zip(program.arguments, arguments, strict=True) if a.kind == "weights"}
    moments = [
        Moment(
            name=kernel.operation.name,
            layer=layer_in(kernel.operation.scope, layer_names),
            phase=phase_in(kernel.operation.scope, training=training),
        )
        for kernel in kernels
    ] or [Moment(name="nothing", layer=None, phase=None)]
    end = len(moments) - 1
    buffers = [
        Buffer(size_bytes=aligned(a.size_bytes), kind=a.kind, layer=a.layer, first=0, last=end) for a in arguments
    ]
    buffers += [
        Buffer(size_bytes=aligned(sizes_bytes[v]), kind="other", layer=None, first=0, last=end)
        for v in program.constants
    ]
    results = set(program.results)
    donated = results if fused else set()
    for moment, kernel in enumerate(kernels):
        if kernel.operation.bodies:
            size_bytes = max(_inner_peak_bytes(body, fused=fused) for body in kernel.operation.bodies)
            buffers.append(
                Buffer(
                    size_bytes=size_bytes, kind="workspace", layer=moments[moment].layer, first=moment, last=moment
                )
            )
    phases = [moment.phase for moment in moments]
    lived = lifetimes(kernels, sizes_bytes) if fused else held_lifetimes(kernels, sizes_bytes, phases)
    for value, (first, last) in lived.items():
        if value in donated:
            continue
        moment = moments[first]
        reads = kernels[first].reads
        kind: Kind = "weights" if reads and reads <= weights else KIND_OF_PHASE[moment.phase]
        buffers.append(
            Buffer(
                size_bytes=aligned(sizes_bytes[value]),
                kind=kind,
                layer=moment.layer,
                first=first,
                last=end if value in results else last,
            )
        )
    return Timeline(buffers=tuple(buffers), moments=tuple(moments))


def _inner_peak_bytes(body: Program, *, fused: bool) -> int:
    """What one round of a loop takes beyond what it is given and hands on."""
    arguments = tuple(Argument(size_bytes=0, kind="other", layer=None) for _ in body.arguments)
    return timeline_of_program(body, arguments, frozenset(), fused=fused).peak_bytes
