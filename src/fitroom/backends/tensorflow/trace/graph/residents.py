"""The variables on the card before the first step, and how they came to lie where they do.

Where they lie decides how well the memory between them serves a step. Weights are made one by one: numbers drawn at
random, scaled and shifted, each in memory of its own, of which the last becomes the variable. The optimizer's slots
are made in one graph, in which all zeros of one shape are the same tensor: each slot but one gets memory of its own
only when the first step changes it, in the midst of the memory of that step.

A process has small things of its own between them, and a few bytes decide whether a large chunk is cut for a request or
given away whole. So variables can be placed with small pieces strewn between them, in another way for each process.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from fitroom.backends.tensorflow.trace.graph.values import Held, Holdings
from fitroom.backends.tensorflow.trace.step import StepVariable, TensorFlowStep

_PIECES = 20
"""Strewn between variables, no more than one for every three of them."""

_PIECE_BITS = (8, 18)
"""From 256 bytes to 256 KiB each, the smaller the more often."""


@dataclass(frozen=True, kw_only=True)
class Resident:
    """A variable on the card."""

    name: str
    """Of its handle in the graph; one of our own where the step does not use it."""

    variable: StepVariable

    is_slot: bool = False
    """Whether it begins as zeros that it shares with others like it. The first update gives it memory of its own; a
    step without an update is one of later batches, when it has that already."""


def residents_of(step: TensorFlowStep) -> tuple[Resident, ...]:
    """All variables of a step in the order in which they are made, and the next batch where it is sent ahead."""
    names = {id(variable): name for name, variable in step.captures().items() if variable is not None}
    variables = tuple(
        Resident(
            name=names.get(id(each), f"unused variable {at}"),
            variable=each,
            is_slot=each.kind == "optimizer" and bool(each.shape) and not step.returns_gradients,
        )
        for at, each in enumerate(step.variables)
    )
    return (*variables, _next_batch(step.batch_bytes)) if step.prefetches_next else variables


def _next_batch(size_bytes: int) -> Resident:
    """What comes to the card while a step runs, as if it were a variable."""
    batch = StepVariable(
        variable=None, shape=(size_bytes,), dtype="uint8", size_bytes=size_bytes, kind="input", layer=None
    )
    return Resident(name="the next batch", variable=batch)


def place_residents(
    residents: Sequence[Resident], holdings: Holdings, strewn: random.Random | None = None
) -> dict[str, Held]:
    """Make the variables; the chunk behind each by its name. With `strewn`, small pieces between them, as it falls."""
    share_of_pieces = min(_PIECES / max(len(residents), 1), 1 / 3)
    zeros: dict[tuple[tuple[int, ...], str], Held] = {}
    found: dict[str, Held] = {}
    for resident in residents:
        variable = resident.variable
        if not variable.size_bytes:
            continue
        if strewn is not None and strewn.random() < share_of_pieces:
            holdings.take(int(2 ** strewn.uniform(*_PIECE_BITS)), None)
        like = (variable.shape, variable.dtype)
        if resident.is_slot and like in zeros:
            held = zeros[like]
            holdings.hold(held)
        else:
            is_random = variable.kind == "weights" and len(variable.shape) > 1
            drawn = [holdings.take(variable.size_bytes, None) for _ in range(2 * is_random)]
            held = holdings.take(variable.size_bytes, None)
            for number in drawn:
                holdings.release(number)
            held.variable = resident.name
            if resident.is_slot:
                zeros[like] = held
        found[resident.name] = held
    return found
