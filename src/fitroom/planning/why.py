"""Why a plan is what it is, in whole sentences."""

from collections.abc import Iterator

from fitroom.planning.candidates import ABOUT_AS_FAST, FEW_SAMPLES, Priced, best_of, has_enough
from fitroom.planning.search import Search
from fitroom.units import format_bytes


def why_this(search: Search, chosen: Priced) -> str:
    """What it does, why not what is simpler or faster."""
    return " ".join(_sentences(search, chosen))


def _sentences(search: Search, chosen: Priced) -> Iterator[str]:
    candidate = chosen.candidate
    batch_size, room = candidate.batch_size, search.room
    subject = next(one for one in search.subjects if one.variant == candidate.variant)
    whole = search.priced(subject.plain(batch_size))
    limit = f"{format_bytes(room.usable_bytes)} ({format_bytes(room.budget.bytes)} less a reserve)"
    the_whole = f"The whole batch of {batch_size}"
    if any(change.effect == "the task itself" for change in chosen.changes):
        few = f", or only with fewer than {FEW_SAMPLES} samples at once" if search.spares_statistics else ""
        yield f"Nothing fits that leaves the task as it is{few}; it is changed as was allowed."
        the_whole = f"So changed, the whole batch of {batch_size}"
    if candidate.is_whole and not candidate.recomputes:
        yield f"{the_whole} fits: it needs {format_bytes(chosen.required_bytes)} of {limit}."
        yield from _about_faster(search, chosen)
        return
    yield f"{the_whole} needs {format_bytes(whole.required_bytes)} at once, and there are {limit}."
    parts = -(-batch_size // candidate.micro_batch)
    if candidate.is_whole:
        yield (
            f"With {candidate.remat} recomputed in the backward pass it needs {format_bytes(chosen.required_bytes)}, "
            f"for {_slower(whole, chosen)}; the batch stays whole, and the result the same."
        )
    else:
        recomputed = f" and {candidate.remat} recomputed" if candidate.recomputes else ""
        yield (
            f"With {candidate.micro_batch} samples at once, in {parts} parts{recomputed}, it needs "
            f"{format_bytes(chosen.required_bytes)}; the optimizer still sees {batch_size}."
        )
    yield from _about_faster(search, chosen)
    yield from _about_statistics(search, chosen)


def _about_faster(search: Search, chosen: Priced) -> Iterator[str]:
    """Where one that is a little faster was passed over: which one, and what for."""
    passed = search.passed_over(chosen)
    if passed is None:
        return
    faster = f"{_named(passed, chosen)} would be {_faster(passed, chosen)}"
    if best_of((passed, chosen), spares_statistics=search.spares_statistics) is chosen:
        preferred = "that changes less" if chosen.severity < passed.severity else "with more samples at once"
        yield f"{faster}; within {100 * (ABOUT_AS_FAST - 1):.0f} %, the recipe {preferred} is preferred."
    else:
        yield f"{faster}, by a guess of its memory that no estimate has checked."


def _named(one: Priced, beside: Priced) -> str:
    """A recipe by its samples, what it recomputes and, where that differs from the other, its variant."""
    candidate = one.candidate
    samples = "The whole batch" if candidate.is_whole else f"{candidate.micro_batch} samples at once"
    variant = f" in {candidate.variant.words}" if candidate.variant != beside.candidate.variant else ""
    return f"{samples}{variant} with {candidate.remat if candidate.recomputes else 'nothing'} recomputed"


def _about_statistics(search: Search, chosen: Priced) -> Iterator[str]:
    if not search.has_statistics:
        return
    candidate = chosen.candidate
    tried = [one for one in search.frontier(chosen) if one.fits and one.candidate.variant == candidate.variant]
    if candidate.is_whole or candidate.micro_batch >= FEW_SAMPLES:
        if faster := [one for one in tried if not has_enough(one.candidate) and one.seconds < chosen.seconds]:
            yield (
                f"{faster[0].candidate.micro_batch} samples at once would be faster, but BatchNormalization learns "
                f"worse from fewer than {FEW_SAMPLES}."
            )
        kept = [one for one in tried if one.candidate.is_whole]
        if kept and not candidate.is_whole:
            yield (
                "Keeping the batch whole for BatchNormalization, with more recomputed, would take "
                f"{_slower(chosen, kept[0])}."
            )
    else:
        yield (
            f"BatchNormalization sees only {candidate.micro_batch} samples at a time, fewer than the {FEW_SAMPLES} it "
            "should have: nothing larger fits, or speed was asked for."
        )


def _slower(fast: Priced, slow: Priced) -> str:
    more = slow.seconds / fast.seconds - 1
    return f"{100 * more:.0f} % more time" if more > 0.005 else "no more time"


def _faster(fast: Priced, slow: Priced) -> str:
    """By its speed, as a part of the other's; the difference is small."""
    more = slow.seconds / fast.seconds - 1
    return f"{100 * more:.1f} % faster" if more >= 0.001 else "less than 0.1 % faster"
