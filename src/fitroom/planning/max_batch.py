"""`fitroom.max_batch`: the largest batch that fits whole, with nothing recomputed and with as much as possible."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitroom.budget import Budget
from fitroom.cards.catalogue import Card
from fitroom.errors import NothingFitsError
from fitroom.estimating.estimate import estimate
from fitroom.input_sizes import InputShape, known_sizes
from fitroom.memory.step import NO_LIMIT_BYTES
from fitroom.planning.candidates import Candidate
from fitroom.planning.covers import Covers
from fitroom.planning.memory import Memory
from fitroom.planning.room import Room
from fitroom.planning.subject import Subject
from fitroom.planning.variant import Variant
from fitroom.units import format_bytes

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True, kw_only=True)
class MaxBatch:
    """The largest batches that train whole in a budget."""

    plain: int
    """With nothing recomputed."""

    with_remat: int
    """With as much recomputed as saves memory."""

    budget: Budget

    def __str__(self) -> str:
        from fitroom.report.facts import max_batch_lines, text_of

        return text_of(max_batch_lines(self))

    def _repr_html_(self) -> str:
        """As a few lines, where a notebook shows it."""
        from fitroom.report.facts import max_batch_lines
        from fitroom.report.notebook import facts_html

        return facts_html(max_batch_lines(self))


def max_batch(
    model: "keras.Model",
    *,
    budget: Budget | int | str | None = None,
    gpu: str | Card | None = None,
    precision: str | None = None,
    optimizer: Any = None,
    loss: Any = None,
    input_dtype: str | None = None,
    input_shape: InputShape | None = None,
    say: Callable[[str], None] | None = None,
) -> MaxBatch:
    """The largest whole batch, plain and with recomputing; each is estimated at its size.

    >>> fitroom.max_batch(model, budget="16GiB").plain  # doctest: +SKIP
    """
    from fitroom.backends.choose import current_backend
    from fitroom.keras_model.input_batch import symbolic_calls
    from fitroom.keras_model.layers import precision_of
    from fitroom.planning.room import room_of
    from fitroom.planning.variant import Variant

    room = room_of(budget, gpu, current_backend().name)
    policy = precision_of(model) if precision in (None, "auto") else str(precision)
    variant = Variant(precision=policy, input_dtype=input_dtype)
    with symbolic_calls(), known_sizes(input_shape):
        search = LargestBatch(model, room, variant, optimizer=optimizer, loss=loss, say=say or (lambda text: None))
        plain = search.plain()
        with_remat = max(plain, search.with_remat())
    if not with_remat:
        raise search.nothing_fits()
    return MaxBatch(plain=plain, with_remat=with_remat, budget=room.budget)


MOST_ESTIMATES = 5
CLOSE_ENOUGH = 1.02
"""A batch that is larger by less is not worth another estimate."""

_LARGEST = 2**20
_FIRST_PART = 0.4
"""Of what is usable: the first estimate is of a size that surely fits."""


class LargestBatch:
    """Of one model in one room."""

    def __init__(
        self, model: Any, room: Room, variant: Variant, *, optimizer: Any, loss: Any, say: Callable[[str], None]
    ) -> None:
        from fitroom.backends.choose import current_backend

        self._model, self._room, self._say = model, room, say
        self._optimizer, self._loss = optimizer, loss
        self._variant = variant
        self._covers = Covers.of_model(model, variant.precision)
        self._memory = Memory(current_backend().name)

    def plain(self) -> int:
        """With nothing recomputed; 0 where not even one sample fits."""
        return self._largest(lambda size: self._subject(size).plain(size))

    def with_remat(self) -> int:
        """With as much recomputed as saves memory."""
        return self._largest(lambda size: self._subject(size).tightest(size))

    def nothing_fits(self) -> NothingFitsError:
        """Why there is no such batch."""
        return NothingFitsError(
            f"Not even one sample fits into {format_bytes(self._room.budget.bytes)}.",
            smallest_bytes=self._memory.required_bytes(self._subject(1).tightest(1)),
            hint="smaller pictures, a smaller model or a leaner optimizer",
        )

    def _subject(self, batch_size: int) -> Subject:
        return Subject(
            variant=self._variant,
            batch_size=batch_size,
            may_recompute=True,
            may_cut=False,
            covers=self._covers,
            seconds=None,
            **Subject.bytes_of(self._model, batch_size),
        )

    def _fits(self, candidate: Candidate) -> bool:
        self._say(f"estimating a batch of {candidate.batch_size}{', recomputed' if candidate.recomputes else ''}")
        found = estimate(
            self._model,
            candidate.batch_size,
            recipe=candidate.recipe,
            optimizer=self._optimizer,
            loss=self._loss,
            gpu=self._room.card,
            limit=NO_LIMIT_BYTES,
        )
        self._memory.learn(candidate, required_bytes=found.required_bytes, peak_bytes=found.peak_bytes)
        return found.required_bytes <= self._room.usable_bytes

    def _largest(self, candidate_of: Callable[[int], Candidate]) -> int:
        """The largest size that was seen to fit."""
        fitting, failing = 0, _LARGEST
        size = self._expected(candidate_of, int(_FIRST_PART * self._room.usable_bytes), fitting, failing)
        for _ in range(MOST_ESTIMATES):
            if self._fits(candidate_of(size)):
                fitting = size
            else:
                failing = size
            size = self._expected(candidate_of, self._room.usable_bytes, fitting, failing)
            if failing - fitting <= 1 or size <= CLOSE_ENOUGH * fitting:
                break
        return fitting

    def _expected(self, candidate_of: Callable[[int], Candidate], usable_bytes: int, fitting: int, failing: int) -> int:
        """The largest size between the two that is expected to fit, and no less than the next after `fitting`."""
        low, high = fitting, failing - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._memory.required_bytes(candidate_of(middle)) <= usable_bytes:
                low = middle
            else:
                high = middle - 1
        return max(low, min(fitting + 1, failing - 1), 1)
