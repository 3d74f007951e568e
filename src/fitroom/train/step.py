"""`fitroom.Step`: the transaction for people with a training loop of their own."""

from typing import Any

from fitroom.recipe import Recipe


class Step:
    """One optimizer update at a time, which out-of-memory cannot break.

    >>> step = fitroom.Step(model)  # doctest: +SKIP
    >>> for x, y in batches:  # doctest: +SKIP
    ...     logs = step(x, y)

    The model is compiled as for `fit`. `logs` are those of `model.train_on_batch(..., return_dict=True)`, metrics
    running on until `model.reset_metrics()`. The size that was found is remembered from call to call.
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
        from fitroom.train.loop import as_floats

        return as_floats(self._transaction.train(self._batch(x, y, sample_weight)))

    def test(self, x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, Any]:
        """Evaluate on one batch; metrics run on, weights do not change."""
        from fitroom.train.loop import as_floats

        return as_floats(self._transaction.test(self._batch(x, y, sample_weight)))

    def _batch(self, x: Any, y: Any, sample_weight: Any) -> Any:
        from fitroom.train.sources import source_of

        # Through the same door as `fit`: lists become arrays, lengths that differ are an error.
        whole = source_of(x, y, sample_weight, batch_size=2**62, shuffle=False)
        return next(iter(whole.epoch(0, 0)))
