"""The timeline of a compiled step: the buffers that XLA assigned, over its schedule, with kind and layer of each."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    taken = _TakenPlaces(len(timed))
    for place in sorted(timed, key=lambda place: (place.first, -place.value.size_bytes)):
        near = taken.near(place)
        begun = [number for number in near if _continues(places[number], place, dump)]
        shared = [
            number
            for number in near
            if number in begun or (places[number].last >= place.first and places[number].overlaps(place.value))
        ]
        for number in begun:
            places[number].value = place.value  # zeros say nothing about what they are for, a sum does
        for number in shared:
            places[number].last = max(places[number].last, place.last)
            taken.extend(number, places[number].last)
        if not shared:
            taken.add(len(places), place)
            places.append(place)
    return places


class _TakenPlaces:
    """The places that are taken at a moment, by number. There may be thousands, of which few lie near a value."""

    def __init__(self, most: int) -> None:
        columns: Any = np.empty((4, most), np.int64)
        self._offsets, self._ends, self._lasts, self._numbers = columns
        self._count = 0
        self._where: dict[int, int] = {}

    def near(self, place: _Place) -> list[int]:
        """The places still taken the moment before that share memory with a value, in the order of their numbers."""
        offset, end = place.value.offset, place.value.offset + place.value.size_bytes
        until = slice(self._count)
        overlap = (self._offsets[until] < end) & (offset < self._ends[until]) | (self._offsets[until] == offset)
        taken = self._lasts[until] >= place.first - 1
        if 2 * np.count_nonzero(taken) < self._count:
            self._keep(np.flatnonzero(taken))
            return self.near(place)
        return [int(number) for number in self._numbers[until][overlap & taken]]

    def add(self, number: int, place: _Place) -> None:
        """Take a place."""
        at, value = self._count, place.value
        self._offsets[at], self._ends[at] = value.offset, value.offset + value.size_bytes
        self._lasts[at], self._numbers[at] = place.last, number
        self._where[number] = at
        self._count += 1

    def extend(self, number: int, last: int) -> None:
        """Have a place taken until another moment."""
        self._lasts[self._where[number]] = last

    def _keep(self, kept: Any) -> None:
        for values in (self._offsets, self._ends, self._lasts, self._numbers):
            values[: len(kept)] = values[kept]
        self._count = len(kept)
        self._where = {int(number): at for at, number in enumerate(self._numbers[: self._count])}


def _continues(earlier: _Place, place: _Place, dump: Dump) -> bool:
    """Whether a value that is made of nothing, such as zeros to add into, becomes another."""
    return earlier.begins(place) and not _is_made_of_something(earlier.value, dump)


def _is_made_of_something(value: Value, dump: Dump) -> bool:
    instruction = dump.program.instructions.get(value.instruction)
    return instruction is not None and bool(instruction.operands)
