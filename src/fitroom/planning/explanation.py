"""The sentences of `Plan.why`: what the chosen recipe does, and why no simpler or faster one was taken."""

from collections.abc import Iterator

from fitroom.planning.candidates import (
    ABOUT_AS_FAST,
    FEW_SAMPLES,
    PricedCandidate,
    choose_best,
    has_enough_samples,
)
from fitroom.planning.search import Search
from fitroom.units import format_bytes


def explain_choice(search: Search, chosen: PricedCandidate) -> str:
    """Return the reasons for the candidate that a search chose, in whole sentences."""
    return " ".join(_explain(search, chosen))


def _explain(search: Search, chosen: PricedCandidate) -> Iterator[str]:
    candidate = chosen.candidate
    batch_size, target = candidate.batch_size, search.target
    whole = search.price(search.factory_of(candidate).plain(batch_size))
    limit = f"{format_bytes(target.usable_bytes)} ({format_bytes(target.budget.bytes)} less a reserve)"
    the_whole = f"The whole batch of {batch_size}"
    if any(change.effect == "the task itself" for change in chosen.changes):
        few = f", or only with a micro-batch below {FEW_SAMPLES}" if search.protects_statistics else ""
        yield f"Nothing fits without changing the task{few}; it is changed as `allow` permits."
        the_whole = f"With that change, the whole batch of {batch_size}"
    if candidate.is_whole and not candidate.recomputes:
        yield f"{the_whole} fits: it needs {format_bytes(chosen.required_bytes)} of {limit}."
        yield from _explain_faster(search, chosen)
        return
    yield f"{the_whole} needs {format_bytes(whole.required_bytes)}, more than the {limit} there are."
    number = -(-batch_size // candidate.micro_batch)
    if candidate.is_whole:
        yield (
            f"With {candidate.remat} recomputed in the backward pass it needs {format_bytes(chosen.required_bytes)} "
            f"and takes {_format_slower(whole, chosen)}; the batch stays whole, and the result the same."
        )
    else:
        recomputed = f" and {candidate.remat} recomputed" if candidate.recomputes else ""
        yield (
            f"In {number} micro-batches of at most {candidate.micro_batch} samples{recomputed} it needs "
            f"{format_bytes(chosen.required_bytes)}; the optimizer still sees all {batch_size}."
        )
    yield from _explain_faster(search, chosen)
    yield from _explain_statistics(search, chosen)


def _explain_faster(search: Search, chosen: PricedCandidate) -> Iterator[str]:
    """Name a slightly faster candidate that was not taken, and say why."""
    other = search.find_faster(chosen)
    if other is None:
        return
    faster = f"{_format_recipe(other, chosen)} would be {_format_faster(other, chosen)}"
    if choose_best((other, chosen), protects_statistics=search.protects_statistics) is chosen:
        preferred = "that changes less" if chosen.severity < other.severity else "with the larger micro-batch"
        yield f"{faster}; within {100 * (ABOUT_AS_FAST - 1):.0f} %, the recipe {preferred} is preferred."
    else:
        yield f"{faster}, but its memory is only predicted: no estimate has confirmed it."


def _format_recipe(one: PricedCandidate, beside: PricedCandidate) -> str:
    """Name a recipe by its micro-batch, its remat and, where it differs from the other's, its variant."""
    candidate = one.candidate
    samples = "The whole batch" if candidate.is_whole else f"Micro-batch {candidate.micro_batch}"
    variant = f" in {candidate.variant.words}" if candidate.variant != beside.candidate.variant else ""
    return f"{samples}{variant} with {candidate.remat if candidate.recomputes else 'nothing'} recomputed"


def _explain_statistics(search: Search, chosen: PricedCandidate) -> Iterator[str]:
    """Say what the micro-batch means for layers with batch statistics, where there are any."""
    if not search.has_statistics:
        return
    candidate = chosen.candidate
    tried = [one for one in search.find_frontier(chosen) if one.fits and one.candidate.variant == candidate.variant]
    if candidate.is_whole or candidate.micro_batch >= FEW_SAMPLES:
        few = [one for one in tried if not has_enough_samples(one.candidate) and one.seconds < chosen.seconds]
        if few:
            yield (
                f"Micro-batch {few[0].candidate.micro_batch} would be faster, but BatchNormalization learns worse "
                f"from fewer than {FEW_SAMPLES} samples."
            )
        whole = [one for one in tried if one.candidate.is_whole]
        if whole and not candidate.is_whole:
            yield (
                "Keeping the batch whole for BatchNormalization, with more recomputed, would take "
                f"{_format_slower(chosen, whole[0])}."
            )
    else:
        yield (
            f"BatchNormalization sees only {candidate.micro_batch} samples at a time, fewer than the {FEW_SAMPLES} it "
            "should have: nothing larger fits, or speed was asked for."
        )


def _format_slower(fast: PricedCandidate, slow: PricedCandidate) -> str:
    more = slow.seconds / fast.seconds - 1
    return f"{100 * more:.0f} % more time" if more > 0.005 else "no more time"


def _format_faster(fast: PricedCandidate, slow: PricedCandidate) -> str:
    """Compare by speed, as a share of the slower one's. The difference is small."""
    more = slow.seconds / fast.seconds - 1
    return f"{100 * more:.1f} % faster" if more >= 0.001 else "less than 0.1 % faster"
