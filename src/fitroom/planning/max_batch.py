"""`fitroom.max_batch`: the largest batch that fits whole, with nothing recomputed and with as much as possible."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitroom.budget import Budget
from fitroom.errors import NothingFitsError
from fitroom.estimating.cards import Card
from fitroom.estimating.estimate import estimate
from fitroom.planning.candidate import Candidate
from fitroom.planning.covers import Covers
from fitroom.planning.memory import Memory
from fitroom.planning.room import room_of
from fitroom.planning.subject import Subject
from fitroom.planning.variant import Variant
from fitroom.units import format_bytes

if TYPE_CHECKING:
    import keras

MOST_ESTIMATES = 6
CLOSE_ENOUGH = 1.01
"""A batch that is larger by less is not worth another estimate."""

_LARGEST = 2**20
_FIRST_PART = 0.4


@dataclass(frozen=True, kw_only=True)
class MaxBatch:
    """The largest batches that train whole in a budget."""

    plain: int
    """With nothing recomputed."""

    with_remat: int
    """With as much recomputed as saves memory."""

    budget: Budget


def max_batch(
    model: "keras.Model",
    *,
    budget: Budget | int | str | None = None,
    gpu: str | Card | None = None,
    precision: str | None = None,
    optimizer: Any = None,
    loss: Any = None,
    say: Callable[[str], None] | None = None,
) -> MaxBatch:
    """The largest whole batch, plain and with recomputing; each is estimated at its size.

    >>> fitroom.max_batch(model, budget="16GiB").plain  # doctest: +SKIP
    """
    from fitroom.backends.choose import current_backend
    from fitroom.backends.keras_layers import precision_of

    backend = current_backend().name
    room = room_of(budget, gpu, backend)
    own = precision_of(model)
    variant = Variant(precision=own if precision in (None, "auto") else str(precision))
    covers = Covers.of_model(model, variant.precision)
    memory = Memory(backend)

    def subject(batch_size: int) -> Subject:
        return Subject(
            model=model,
            variant=variant,
            batch_size=batch_size,
            may_recompute=True,
            may_cut=False,
            covers=covers,
            seconds=None,
        )

    def fits(candidate: Candidate) -> bool:
        if say:
            say(f"estimating a batch of {candidate.batch_size}{', recomputed' if candidate.recomputes else ''}")
        found = estimate(
            model,
            candidate.batch_size,
            recipe=candidate.recipe,
            optimizer=optimizer,
            loss=loss,
            gpu=room.card,
            limit=room.budget.bytes,
        )
        memory.learn(candidate, required_bytes=found.required_bytes, peak_bytes=found.peak_bytes)
        return found.required_bytes <= room.usable_bytes

    def largest(candidate_of: Callable[[int], Candidate]) -> int:
        return _largest(candidate_of, fits, memory, room.usable_bytes)

    plain = largest(lambda size: subject(size).plain(size))
    with_remat = largest(lambda size: subject(size).tightest(size))
    if not max(plain, with_remat):
        raise NothingFitsError(
            f"Not even one sample fits into {format_bytes(room.budget.bytes)}.",
            smallest_bytes=memory.required_bytes(subject(1).tightest(1)),
            hint="smaller pictures, a smaller model or a leaner optimizer",
        )
    return MaxBatch(plain=plain, with_remat=max(plain, with_remat), budget=room.budget)


def _largest(
    candidate_of: Callable[[int], Candidate], fits: Callable[[Candidate], bool], memory: Memory, usable_bytes: int
) -> int:
    """The largest size that was seen to fit; 0 where none does."""
    fitting, failing = 0, _LARGEST + 1
    size = _likely(candidate_of, memory, int(_FIRST_PART * usable_bytes), 0, failing)
    for _ in range(MOST_ESTIMATES):
        size = max(size, 1)
        if fits(candidate_of(size)):
            fitting = size
        else:
            failing = size
        size = _likely(candidate_of, memory, usable_bytes, fitting, failing)
        if size <= CLOSE_ENOUGH * fitting or size >= failing:
            break
    return fitting


def _likely(
    candidate_of: Callable[[int], Candidate], memory: Memory, usable_bytes: int, fitting: int, failing: int
) -> int:
    """The largest size between the two that memory expects to fit; next to `fitting` where it expects none."""
    low, high = fitting, failing - 1
    while low < high:
        middle = (low + high + 1) // 2
        if memory.required_bytes(candidate_of(middle)) <= usable_bytes:
            low = middle
        else:
            high = middle - 1
    return low if low > fitting or failing - fitting <= 1 else (fitting + failing) // 2 if fitting == 0 else fitting
