"""The largest batch that fits whole, found with few estimates."""

from collections.abc import Callable
from typing import Any

from fitroom.errors import NothingFitsError
from fitroom.estimating.estimate import estimate
from fitroom.estimating.step import NO_LIMIT_BYTES
from fitroom.planning.candidate import Candidate
from fitroom.planning.covers import Covers
from fitroom.planning.memory import Memory
from fitroom.planning.room import Room
from fitroom.planning.subject import Subject
from fitroom.planning.variant import Variant
from fitroom.units import format_bytes

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
