"""The timeline of a compiled step: the buffers that XLA assigned, over its schedule, with kind and layer of each."""

from collections.abc import Iterable
from dataclasses import dataclass

from fitroom.backends.xla.attribution import Argument, Attribution, ScopeReader
from fitroom.backends.xla.dump import Allocation, Dump, Value
from fitroom.memory.timeline import Buffer, Moment, Timeline

ALIGNMENT_BYTES = 256
"""XLA's allocator hands out multiples of this."""


def align_bytes(size_bytes: int) -> int:
    """A size rounded up to what the allocator hands out."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def timeline_of(
    dump: Dump, arguments: tuple[Argument, ...], scope_reader: ScopeReader, added: Iterable[tuple[range, int]] = ()
) -> Timeline:
    """The step's memory over its schedule. Its peak is what the step asks of the allocator, to the byte.

    `added`: further workspaces that the step has on a card, as moments and bytes (see `on_card`).
    """
    attribution = Attribution(dump, arguments, scope_reader)
    moments = tuple(
        Moment(name=name, layer=attribution.layer(name), phase=attribution.phase(name))
        for name in dump.schedule.instructions
    )
    last = len(moments) - 1
    buffers = [
        Buffer(size_bytes=align_bytes(a.size_bytes), kind=a.kind, layer=a.layer, first=0, last=last) for a in arguments
    ]
    for allocation in dump.allocations:
        if allocation.role == "output":
            size_bytes = align_bytes(allocation.size_bytes)
            buffers.append(Buffer(size_bytes=size_bytes, kind="other", layer=None, first=0, last=last))
        elif allocation.role == "temporary":
            buffers += _temporaries(allocation, dump, attribution, moments)
    buffers += [
        Buffer(size_bytes=size_bytes, kind="workspace", layer=moments[when[0]].layer, first=when[0], last=when[-1])
        for when, size_bytes in added
    ]
    return Timeline(buffers=tuple(buffers), moments=moments)


def _temporaries(
    allocation: Allocation, dump: Dump, attribution: Attribution, moments: tuple[Moment, ...]
) -> list[Buffer]:
    """The values inside XLA's one block for temporaries, and what of the block they leave unfilled."""
    buffers = [
        Buffer(
            size_bytes=place.value.size_bytes,
            kind=attribution.kind(place.value),
            layer=attribution.layer(place.value.instruction),
            first=place.first,
            last=place.last,
        )
        for place in _places(allocation, dump)
    ]
    filled_bytes = Timeline(buffers=tuple(buffers), moments=moments).peak_bytes
    # The block is one allocation that is held throughout: its gaps are in use too, for nobody.
    gaps_bytes = align_bytes(allocation.size_bytes) - filled_bytes
    gaps = Buffer(size_bytes=gaps_bytes, kind="other", layer=None, first=0, last=len(moments) - 1)
    return [*buffers, gaps]


@dataclass(slots=True)
class _Place:
    """Where a value lies, and from when to when the place is taken."""

    value: Value
    first: int
    last: int

    def overlaps(self, value: Value) -> bool:
        mine = self.value
        return mine.offset < value.offset + value.size_bytes and value.offset < mine.offset + mine.size_bytes

    def begins(self, place: "_Place") -> bool:
        """Whether a value may become another: it lies in the same place, and there is no moment between them."""
        mine, later = self.value, place.value
        return (mine.offset, mine.size_bytes) == (later.offset, later.size_bytes) and self.last >= place.first - 1


def _places(allocation: Allocation, dump: Dump) -> list[_Place]:
    """The values and when they live, each piece of memory counted once.

    XLA updates in place: the value before and the one after are then one piece of memory with two names, and
    the first one's place is taken for as long as either lives. A loop adds up in place too, beginning with zeros.
    """
    lifetimes = dump.schedule.lifetimes
    lived = [(value, lifetimes.get(value.instruction + value.place)) for value in allocation.values]
    timed = [_Place(value, *lifetime) for value, lifetime in lived if lifetime]
    places: list[_Place] = []
    taken: list[_Place] = []
    for place in sorted(timed, key=lambda place: (place.first, -place.value.size_bytes)):
        taken = [earlier for earlier in taken if earlier.last >= place.first - 1]
        begun = [
            earlier for earlier in taken if earlier.begins(place) and not _is_made_of_something(earlier.value, dump)
        ]
        shared = [p for p in taken if p in begun or (p.last >= place.first and p.overlaps(place.value))]
        for earlier in begun:
            earlier.value = place.value  # zeros say nothing about what they are for, a sum does
        for earlier in shared:
            earlier.last = max(earlier.last, place.last)
        if not shared:
            taken.append(place)
            places.append(place)
    return places


def _is_made_of_something(value: Value, dump: Dump) -> bool:
    instruction = dump.program.instructions.get(value.instruction)
    return instruction is not None and bool(instruction.operands)
