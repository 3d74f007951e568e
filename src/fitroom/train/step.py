"""`fitroom.Step`: one optimizer update as a transaction, for training loops of the user's own."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitroom.recipe import Recipe, recipe_of

if TYPE_CHECKING:
    from fitroom.planning.result import Plan


class Step:
    """One optimizer update at a time, safe from out-of-memory.

    >>> step = fitroom.Step(model)  # doctest: +SKIP
    >>> for x, y in batches:  # doctest: +SKIP
    ...     logs = step(x, y)

    The model is compiled as for `fit`. `logs` are those of `model.train_on_batch(..., return_dict=True)`: of this batch
    alone. The micro-batch that was found is kept from call to call. A `plan` is for a built model, and for batches of
    its size or smaller.
    """

    def __init__(self, model: Any, *, recipe: Recipe | None = None, plan: "Plan | str | Path | None" = None) -> None:
        from fitroom.keras_model.precision import Precision
        from fitroom.train.planned import load_plan, recipes_of
        from fitroom.train.training import build_transaction, check_model, check_one_of

        check_model(model)
        check_one_of(recipe=recipe, plan=plan)
        self.model = model
        self._plan = None if plan is None else load_plan(plan)
        recipes = recipes_of(self._plan, model) if self._plan else (recipe_of(recipe),)
        self._precision = Precision(model, recipes[0].precision)
        self._transaction = build_transaction(model, recipes, whole=self._plan.batch_size if self._plan else None)

    @property
    def micro_batch(self) -> int | None:
        """The micro-batch in force; None for whole batches."""
        return self._transaction.training.recipe.micro_batch

    def __call__(self, x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, Any]:
        """Train on one batch."""
        return self._logs(self._transaction.train, x, y, sample_weight)

    def test(self, x: Any, y: Any = None, sample_weight: Any = None) -> dict[str, Any]:
        """Evaluate on one batch; the logs of `model.test_on_batch(..., return_dict=True)`."""
        return self._logs(self._transaction.test, x, y, sample_weight)

    def _logs(self, step: Callable[[Any], dict[str, Any]], x: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
        from fitroom.train.calls import one_batch
        from fitroom.train.keras_logs import as_floats
        from fitroom.train.planned import check_batches

        batch = one_batch(x, y, sample_weight)
        if self._plan is not None and batch.size > self._plan.batch_size:
            check_batches(self._plan, batch, batch.size)
        with self._precision.in_force():
            self._transaction.prepare(batch)
            self.model.reset_metrics()
            return as_floats(step(batch))
