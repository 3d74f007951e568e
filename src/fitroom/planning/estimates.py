"""The estimates of one plan: made one after another, or begun while the one before is still being compiled."""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fitroom.estimating.estimate import PendingEstimate, begin_estimate
from fitroom.memory.estimate import Estimate
from fitroom.memory.step import NO_LIMIT_BYTES
from fitroom.planning.candidates import Candidate
from fitroom.planning.request import PlanRequest
from fitroom.planning.target import Target


class EstimatesOfPlan:
    """Estimates candidates of one request on one target."""

    def __init__(
        self,
        request: PlanRequest,
        target: Target,
        model_at: Callable[[int | None], Any],
        tell: Callable[[Candidate], None],
    ) -> None:
        """`model_at` returns the model for an image size; `tell` is called with each candidate before its estimate."""
        from fitroom.backends.choose import current_backend
        from fitroom.backends.contract import TracesAhead

        self._request, self._target = request, target
        self._model_at, self._tell = model_at, tell
        self._begun: dict[Any, PendingEstimate] = {}
        self._seconds: list[float] = []
        self._told_at: float | None = None
        self.can_begin = isinstance(current_backend(), TracesAhead) and (os.cpu_count() or 1) > 1
        """Whether another process compiles, and has a core for it."""

    @property
    def count(self) -> int:
        """How many were made."""
        return len(self._seconds)

    def expected_seconds(self) -> float | None:
        """How long the next estimate will take, by those that were made; None before the first."""
        return statistics.fmean(self._seconds) if self._seconds else None

    def estimate(self, candidate: Candidate) -> Estimate:
        """Estimate a candidate, or wait for its estimate where that was begun."""
        self.begin(candidate)
        assert self._told_at is not None, "see `begin`"
        found = self._begun.pop(candidate.key).result()
        self._seconds.append(time.monotonic() - self._told_at)
        self._told_at = None
        return replace(found, limit_bytes=self._target.budget.bytes)

    def begin(self, candidate: Candidate) -> None:
        """Begin the estimate of a candidate. The first one is waited for before any other, and ends all before it."""
        if self._told_at is None:
            self._told_at = time.monotonic()
            self._cancel_all_but(candidate)  # the cores are for this one
            self._tell(candidate)
        if candidate.key in self._begun:
            return
        self._begun[candidate.key] = begin_estimate(
            self._model_at(candidate.variant.image_size),
            self._request.batch_size * self._request.sharded_over,
            recipe=replace(candidate.recipe, image_size=None),
            optimizer=None if candidate.variant.optimizer else self._request.optimizer,
            loss=self._request.loss,
            gpu=self._target.card,
            limit=NO_LIMIT_BYTES,
            devices=self._request.sharded_over,
            shard_weights=self._request.sharded_over > 1,
        )

    def cancel(self) -> None:
        """End the estimates that were begun and turned out not to be needed."""
        self._cancel_all_but(None)

    def _cancel_all_but(self, candidate: Candidate | None) -> None:
        for key in [key for key in self._begun if candidate is None or key != candidate.key]:
            self._begun.pop(key).cancel()


def format_micro_batch(candidate: Candidate) -> str:
    """A candidate's micro-batch, for people."""
    return (
        f"the whole batch of {candidate.batch_size}" if candidate.is_whole else f"micro-batch {candidate.micro_batch}"
    )
