"""`fitroom.Step`: the transaction for people with a training loop of their own."""

from collections.abc import Callable
from typing import Any

from fitroom.recipe import Recipe


class Step:
    """One optimizer update at a time, which out-of-memory cannot break.

    >>> step = fitroom.Step(model)  # doctest: +SKIP
    >>> for x, y in batches:  # doctest: +SKIP
    ...     logs = step(x, y)

    The model is compiled as for `fit`. `logs` are those of `model.train_on_batch(..., return_dict=True)`: of this batch
    alone. The size that was found is remembered from call to call.
    """

    def __init__(self, model: Any, *, recipe: Recipe | None = None) -> None:
        from fitroom.train.training import new_transaction

        self.model = model
        self._transaction = new_transaction(model, recipe or Recipe())

    @property
    def micro_batch(self) -> int | None:
        """The most samples at once now; None: whole batches."""
        sizing = self._transaction.training
        return sizing.current if sizing.current is not None else sizing.ceiling

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, Any]:
        """Train on one batch."""
        return self._logs(self._transaction.train, x, y, sample_weight)

    def test(self, x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, Any]:
        """Evaluate on one batch; the logs of `model.test_on_batch(..., return_dict=True)`."""
        return self._logs(self._transaction.test, x, y, sample_weight)

    def _logs(self, step: Callable[[Any], dict[str, Any]], x: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
        from fitroom.train.loop import as_floats
        from fitroom.train.sources import source_of

        # Through the same door as `fit`: lists become arrays, lengths that differ are an error.
        whole = source_of(x, y, sample_weight, batch_size=2**31, shuffle=False)
        batch = next(whole.epoch(0))
        self._transaction.stepper.prepare(batch)
        self.model.reset_metrics()
        return as_floats(step(batch))
