"""What grows in a loop that leaks: arrays by owner and holder, compiled functions, objects, lines that allocate."""

import gc
import re
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any

from fitroom.activity import begin_step
from fitroom.backends.contract import Backend
from fitroom.holders import UNKNOWN, Holder, find_holders, find_user_line, list_held, name_line
from fitroom.loops.advice import classify_holder, describe_advice
from fitroom.loops.host import collect_garbage, quick_collections
from fitroom.loops.leaks import Suspect
from fitroom.loops.owners import OTHERS, LiveArray, born_since, list_live_arrays

_ROUNDS = 3
_FRAMES = 6
"""Of each allocation. More would reach further up, and make a round that traces a model many times slower."""

_MOST_SUSPECTS = 8
_NAMED_FUNCTIONS = 4
_SMALLEST_SHARE = 0.02
_SMALLEST_BYTES = 2048
_PLAIN_TYPES = frozenset(("list", "dict", "tuple", "set", "cell", "function", "frame", "weakref", "ReferenceType"))


def find_suspects(
    backend: Backend, run: Callable[[int], None], *, first: int, on_round: Callable[[int, int], None] | None
) -> tuple[Suspect, ...]:
    """Run some more rounds, from number `first` on, and say what there is more of after them."""
    was_tracing = tracemalloc.is_tracing()
    arrays, host_arrays, programs = list_live_arrays(backend), list_host_arrays(), backend.count_programs()
    if not was_tracing:
        tracemalloc.start(_FRAMES)
    try:
        # From here on the collector lists only what the rounds make.
        with quick_collections():
            types = [_count_types()]
            lines = []
            for number in range(first, first + _ROUNDS):
                if on_round:
                    on_round(number, first + _ROUNDS)
                run(number)
                collect_garbage()
                types.append(_count_types())
                lines.append(tracemalloc.take_snapshot())
            begin_step("looking for what holds it")
            found = [
                *_suspect_arrays(born_since(arrays, list_live_arrays(backend)).values()),
                *_suspect_arrays(born_since(host_arrays, list_host_arrays()).values()),
            ]
            by_line = _suspect_lines(lines[0], lines[-1])
            if sum(each.bytes_a_round or 0 for each in by_line) > 2 * sum(each.bytes_a_round or 0 for each in found):
                known = {each.made_at for each in found}
                found += [*_suspect_objects(types), *(each for each in by_line if each.made_at not in known)]
        found += _suspect_programs(programs, backend.count_programs())
    finally:
        if not was_tracing:
            tracemalloc.stop()
    return _keep_largest(found)


def list_host_arrays() -> dict[int, LiveArray]:
    """The NumPy arrays that own their memory and that the user's variables hold."""
    import numpy as np

    return {
        id(array): LiveArray(reference=weakref.ref(array), bytes=array.nbytes, owner="NumPy arrays")
        for array in list_held(np.ndarray)
        if array.base is None and array.nbytes >= _SMALLEST_BYTES
    }


def _suspect_arrays(born: Iterable[LiveArray]) -> Iterator[Suspect]:
    """A suspect for each group of arrays that are alike."""
    groups: dict[str, list[LiveArray]] = {}
    for array in born:
        if (alive := array.reference()) is not None:
            groups.setdefault(_describe_group(array.owner, alive), []).append(array)
            del alive
    whole = sum(array.bytes for group in groups.values() for array in group)
    least = max(_SMALLEST_SHARE * whole, _SMALLEST_BYTES)
    large = {
        what: group
        for what, group in groups.items()
        if len(group) >= _ROUNDS and sum(array.bytes for array in group) >= least
    }
    samples = [_choose_sample(group) for group in large.values()]
    small = [_choose_sample(group) for what, group in groups.items() if what not in large and len(group) >= _ROUNDS]
    losses = [each for each in small if _has_graph(each)][:_MOST_SUSPECTS]
    holders = find_holders([*samples, *losses])
    of_losses = next((each for each in holders[len(samples) :] if each.kind != "unknown"), UNKNOWN)
    for (what, group), sample, holder in zip(large.items(), samples, holders, strict=False):
        kind = classify_holder(group[0].owner, holder, sample)
        # PyTorch's own C++ holds what a graph needs: a loss that somebody keeps is then the reason.
        if holder.kind == "unknown" and of_losses.kind != "unknown" and kind in ("array", "loss"):
            kind, holder = "loss", of_losses
        yield Suspect(
            kind=kind,
            what=f"{what}: {len(group) // _ROUNDS} more a round",
            bytes_a_round=sum(array.bytes for array in group) // _ROUNDS,
            holder=_describe_holder(holder),
            made_at=find_user_line(tracemalloc.get_object_traceback(sample)) if sample is not None else None,
            advice=describe_advice(kind),
        )


def _choose_sample(group: list[LiveArray]) -> Any | None:
    """The largest array of a group; of PyTorch's, one that holds others for the backward pass rather than one held."""
    alive = [(array.bytes, array.reference()) for array in group]
    return max(alive, key=lambda each: (each[0], _has_graph(each[1])))[1]


def _has_graph(array: Any) -> bool:
    return getattr(array, "grad_fn", None) is not None


def _describe_group(owner: str, array: Any) -> str:
    """The owner without the number that Keras gave it; the type and shape of an array that is nobody's."""
    if owner == OTHERS:
        return f"{type(array).__name__} {tuple(array.shape)} {array.dtype}"
    if owner == "NumPy arrays":
        return f"NumPy array {array.shape} {array.dtype}"
    return "arrays of " + re.sub(r"_\d+'", "'", owner)


def _describe_holder(holder: Holder) -> str | None:
    if holder.kind == "unknown":
        return None
    return holder.root + (f", by way of {' and '.join(holder.by[:2])}" if holder.by else "")


def _suspect_programs(before: dict[tuple[int, str], int], now: dict[tuple[int, str], int]) -> Iterator[Suspect]:
    """One suspect for all functions that were traced or compiled anew in every round."""
    more = {key: count - before.get(key, count) for key, count in now.items()}
    grown = sorted((key for key in more if more[key] >= _ROUNDS), key=lambda key: -more[key])
    if not grown:
        return
    names = list(dict.fromkeys(f"`{name}`" for _, name in grown))
    others = f" and {len(names) - _NAMED_FUNCTIONS} more" if len(names) > _NAMED_FUNCTIONS else ""
    times, kept = sum(more[key] for key in grown) / _ROUNDS, sum(now[key] for key in grown)
    often = "once" if times == 1 else f"{times:g} times"
    yield Suspect(
        kind="retrace",
        what=f"function{'s' if len(names) > 1 else ''} {', '.join(names[:_NAMED_FUNCTIONS])}{others}: compiled "
        f"{often} a round, {kept} versions are kept",
        bytes_a_round=None,
        holder=None,
        made_at=None,
        advice=describe_advice("retrace"),
    )


def _suspect_objects(types: list[Counter[str]]) -> Iterator[Suspect]:
    """A suspect for each of the types of which there were more after every round."""
    grown = {
        name: (types[-1][name] - types[0][name]) // _ROUNDS
        for name in types[-1]
        if all(later[name] > earlier[name] for earlier, later in pairwise(types))
    }
    most = sorted(grown.items(), key=lambda item: (item[0] in _PLAIN_TYPES, -item[1]))[:3]
    holders = _holders_of_newest([name for name, _ in most])
    for name, more in most:
        kind = classify_holder(name, holders[name], None)
        yield Suspect(
            kind=kind if kind != "array" else "objects",
            what=f"Python objects of type {name}: {more} more a round",
            bytes_a_round=None,
            holder=_describe_holder(holders[name]),
            made_at=None,
            advice=describe_advice(kind if kind != "array" else "objects"),
        )


def _holders_of_newest(names: Collection[str]) -> dict[str, Holder]:
    """Who holds the newest object of each type, by its name; the collector lists objects from old to new."""
    newest: dict[str, Any] = {}
    for each in reversed(gc.get_objects()):
        name = type(each).__name__
        if name in names:
            newest.setdefault(name, each)
            if len(newest) == len(names):
                break
    found = dict(zip(newest, find_holders(list(newest.values()), in_libraries=False), strict=True))
    return {name: found.get(name, UNKNOWN) for name in names}


def _count_types() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects())


def _suspect_lines(first: tracemalloc.Snapshot, last: tracemalloc.Snapshot) -> list[Suspect]:
    """A suspect for each line of which more bytes were in use after the last round than after the first."""
    grown: Counter[str] = Counter()
    for each in last.compare_to(first, "traceback"):
        if each.size_diff > 0 and each.count_diff >= _ROUNDS - 1:
            place = find_user_line(each.traceback) or name_line(each.traceback)
            if place is not None:
                grown[place] += each.size_diff // (_ROUNDS - 1)
    return [
        Suspect(
            kind="host",
            what="memory of Python and NumPy that a line allocated and that stays",
            bytes_a_round=size,
            holder=None,
            made_at=place,
            advice=describe_advice("host"),
        )
        for place, size in grown.most_common(3)
        if size >= _SMALLEST_BYTES
    ]


def _keep_largest(found: Iterable[Suspect]) -> tuple[Suspect, ...]:
    """The suspects with the most bytes, one of each holder and thing.

    Objects of which nobody is known to hold them come behind the others, and lines of code last.
    """

    def rank(each: Suspect) -> tuple[bool, bool, int]:
        return each.kind == "host", each.kind == "objects" and each.holder is None, -(each.bytes_a_round or 0)

    ranked = sorted(found, key=rank)
    return tuple({(each.kind, each.what, each.made_at): each for each in ranked}.values())[:_MOST_SUSPECTS]
