"""`fitroom.Step`: the transaction for people with a training loop of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitroom.recipe import Recipe, recipe_of

if TYPE_CHECKING:
    from fitroom.planning.result import Plan


class Step:
    """One optimizer update at a time, which out-of-memory cannot break.

    >>> step = fitroom.Step(model)  # doctest: +SKIP
    >>> for x, y in batches:  # doctest: +SKIP
    ...     logs = step(x, y)

    The model is compiled as for `fit`. `logs` are those of `model.train_on_batch(..., return_dict=True)`: of this batch
    alone. The size that was found is remembered from call to call. A `plan` is for a built model, and for batches of
    its size; one that is shorter is done as well.
    """

    def __init__(self, model: Any, *, recipe: Recipe | None = None, plan: "Plan | str | Path | None" = None) -> None:
        from fitroom.keras_model.precision import Precision
        from fitroom.train.planned import opened, recipes_of
        from fitroom.train.training import check_model, check_one_of, new_transaction

        check_model(model)
        check_one_of(recipe=recipe, plan=plan)
        self.model = model
        self._plan = None if plan is None else opened(plan)
        recipes = recipes_of(self._plan, model) if self._plan else (recipe_of(recipe),)
        self._precision = Precision(model, recipes[0].precision)
        self._transaction = new_transaction(model, recipes, whole=self._plan.batch_size if self._plan else None)

    @property
    def micro_batch(self) -> int | None:
        """The most samples at once now; None: whole batches."""
        return self._transaction.training.recipe.micro_batch

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, Any]:
        """Train on one batch."""
        return self._logs(self._transaction.train, x, y, sample_weight)

    def test(self, x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, Any]:
        """Evaluate on one batch; the logs of `model.test_on_batch(..., return_dict=True)`."""
        return self._logs(self._transaction.test, x, y, sample_weight)

    def _logs(self, step: Callable[[Any], dict[str, Any]], x: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
        from fitroom.train.calls import one_batch
        from fitroom.train.loop import as_floats
        from fitroom.train.planned import check_batches

        batch = one_batch(x, y, sample_weight)
        if self._plan is not None and batch.size > self._plan.batch_size:
            check_batches(self._plan, batch, batch.size)
        with self._precision.in_force():
            self._transaction.prepare(batch)
            self.model.reset_metrics()
            return as_floats(step(batch))
