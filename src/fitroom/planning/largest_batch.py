"""The search for the largest batch that fits whole, confirmed by estimates."""

import time
from collections.abc import Callable
from typing import Any

from fitroom.activity import begin_step
from fitroom.errors import NothingFitsError
from fitroom.estimating.estimate import estimate
from fitroom.memory.step import NO_LIMIT_BYTES
from fitroom.planning.candidate_factory import CandidateFactory
from fitroom.planning.candidates import Candidate
from fitroom.planning.memory_model import MemoryModel
from fitroom.planning.remat_choices import RematChoices
from fitroom.planning.target import Target
from fitroom.planning.variant import Variant
from fitroom.units import format_bytes

MOST_ESTIMATES = 5
CLOSE_ENOUGH = 1.02
"""A batch that is larger by less is not worth another estimate."""

_USUAL_ESTIMATES = 5
"""Two or three for each of the two answers."""

_LARGEST = 2**20
_FIRST_SHARE = 0.4
"""The share of the usable bytes for the first estimate, so that it surely fits."""


class LargestBatch:
    """The search for the largest batch of one model on one target."""

    def __init__(
        self, model: Any, target: Target, variant: Variant, *, optimizer: Any, loss: Any, say: Callable[[str], None]
    ) -> None:
        from fitroom.backends.choose import current_backend

        self._model, self._target, self._say = model, target, say
        self._optimizer, self._loss = optimizer, loss
        self._variant = variant
        self._remat_choices = RematChoices.of_model(model, variant.precision)
        self._memory = MemoryModel(current_backend().name)
        self._times: list[float] = []

    def plain(self) -> int:
        """Return the largest batch with nothing recomputed; 0 where not even one sample fits."""
        return self._find_largest(lambda size: self._make_factory(size).plain(size))

    def with_remat(self) -> int:
        """The largest with as much recomputed as saves memory."""
        return self._find_largest(lambda size: self._make_factory(size).tightest(size))

    def nothing_fits(self) -> NothingFitsError:
        """Make the error for the case that not even one sample fits."""
        return NothingFitsError(
            f"Not even one sample fits into {format_bytes(self._target.budget.bytes)}.",
            smallest_bytes=self._memory.required_bytes(self._make_factory(1).tightest(1)),
            hint="smaller images, a smaller model or a leaner optimizer",
        )

    def _make_factory(self, batch_size: int) -> CandidateFactory:
        return CandidateFactory(
            variant=self._variant,
            batch_size=batch_size,
            may_recompute=True,
            may_split=False,
            remat_choices=self._remat_choices,
            seconds=None,
            **CandidateFactory.bytes_of(self._model, batch_size),
        )

    def _fits(self, candidate: Candidate) -> bool:
        self._tell(candidate)
        found = estimate(
            self._model,
            candidate.batch_size,
            recipe=candidate.recipe,
            optimizer=self._optimizer,
            loss=self._loss,
            gpu=self._target.card,
            limit=NO_LIMIT_BYTES,
        )
        self._memory.learn(candidate, required_bytes=found.required_bytes, peak_bytes=found.peak_bytes)
        return found.required_bytes <= self._target.usable_bytes

    def _tell(self, candidate: Candidate) -> None:
        """Say which estimate is made, and how long it takes by those that were made."""
        now = time.monotonic()
        self._times.append(now)
        number = len(self._times)
        seconds = (now - self._times[0]) / (number - 1) if number > 1 else None
        place = f"estimate {number} of about {max(number, _USUAL_ESTIMATES)}"
        takes = f", about {seconds:.0f} s" if seconds else ""
        detail = f"a batch of {candidate.batch_size}{', recomputed' if candidate.recomputes else ''}{takes}"
        if not begin_step(place, detail, expected_seconds=seconds):
            self._say(f"{place}: {detail}")

    def _find_largest(self, candidate_of: Callable[[int], Candidate]) -> int:
        """Return the largest size that an estimate has shown to fit."""
        fitting, failing = 0, _LARGEST
        size = self._predict_largest(candidate_of, int(_FIRST_SHARE * self._target.usable_bytes), fitting, failing)
        for _ in range(MOST_ESTIMATES):
            if self._fits(candidate_of(size)):
                fitting = size
            else:
                failing = size
            size = self._predict_largest(candidate_of, self._target.usable_bytes, fitting, failing)
            if failing - fitting <= 1 or size <= CLOSE_ENOUGH * fitting:
                break
        return fitting

    def _predict_largest(
        self, candidate_of: Callable[[int], Candidate], usable_bytes: int, fitting: int, failing: int
    ) -> int:
        """Return the largest size between the two that is predicted to fit, at least the next after `fitting`."""
        low, high = fitting, failing - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._memory.required_bytes(candidate_of(middle)) <= usable_bytes:
                low = middle
            else:
                high = middle - 1
        return max(low, min(fitting + 1, failing - 1), 1)
