"""A step in micro-batches as one function of state and batch, as Keras's own step is.

The whole batch is an argument. Its micro-batches run in a loop that adds up their gradients, and the update follows in
the same program: one call, which either happens or does not.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.experimental.sparse import BCOO

from fitroom.backends.jax.train.statistics import add_change, apply_change, zero_change
from fitroom.errors import ModelError
from fitroom.keras_model.objective import Objective
from fitroom.keras_model.state import forward_state

if TYPE_CHECKING:
    from fitroom.backends.jax.train.spread import Spread

ACCUMULATION = "accumulated_gradients"
"""The scope in which a step in micro-batches adds up gradients. Attribution reads it in the traced program."""

MICRO_BATCH = "micro_batch"
"""The scope in which a micro-batch is taken out of the batch."""

MICRO_BATCH_LOOP = "micro_batch_loop"
"""The scope around the loops over micro-batches."""


class Sums(NamedTuple):
    """What the loop carries from micro-batch to micro-batch."""

    gradients: list[Any]
    """The last weight's first, as `state.reverse_groups` has the variables."""

    changes: list[Any]
    """How far the micro-batches so far changed the statistics: see `statistics`."""

    seeds: list[Any]
    metrics: list[Any]
    total: Any
    losses: Any


class MicroBatchStep:
    """The step of a compiled model in micro-batches of these sizes.

    `train` and `test` take and return what Keras's `train_step` and `test_step` do. With `looped` False the program has
    no loop but one micro-batch after another: for a model that is not compiled, and for a CPU, which is slow in loops.
    """

    def __init__(self, model: Any, objective: Objective, sizes: Sequence[int], *, looped: bool = True) -> None:
        self.model, self.objective, self.looped = model, objective, looped
        self.sizes, self.num_samples = tuple(sizes), sum(sizes)
        places = {id(variable): place for place, variable in enumerate(model.non_trainable_variables)}
        forward = forward_state(model)
        self._statistics = [places[id(variable)] for variable in forward.statistics]
        self._seeds = [places[id(variable)] for variable in forward.seeds]

    @property
    def kind(self) -> tuple[Any, ...]:
        """What tells this step from others of the same model."""
        return (*self.sizes, *self.objective.kinds())

    def train(self, state: Any, data: Any) -> tuple[Any, Any]:
        """One update: logs and the new state."""
        trainable, non_trainable, of_optimizer, metrics = state
        sums = self._sum_micro_batches(trainable, non_trainable, metrics, of_optimizer, data)
        trainable, of_optimizer = self.model.optimizer.stateless_apply(of_optimizer, sums.gradients[::-1], trainable)
        logs, metrics = self._track(sums)
        return logs, (trainable, self._non_trainable_after(non_trainable, sums), of_optimizer, metrics)

    def test(self, state: Any, data: Any) -> tuple[Any, Any]:
        """One batch of `evaluate`: logs and the new state."""
        trainable, non_trainable, metrics = state
        sums = self._sum_micro_batches(trainable, non_trainable, metrics, None, data)
        logs, metrics = self._track(sums)
        return logs, (trainable, self._non_trainable_after(non_trainable, sums), metrics)

    def _sum_micro_batches(
        self, trainable: Any, non_trainable: Any, metrics: Any, of_optimizer: Any, data: Any
    ) -> Sums:
        """The sums over all micro-batches; without variables of the optimizer, nothing is trained."""
        training = of_optimizer is not None
        shares = self._shares(trainable, non_trainable, data)

        def loss_of(trainable: Any, sums: Sums, part: MicroBatch, share: Any) -> tuple[Any, Any]:
            before = _replace(non_trainable, self._seeds, sums.seeds)
            y_pred, after, added = self._call(trainable, before, part.x, training=training, return_losses=True)
            model, sample_share = self.model, part.size / self.num_samples
            with _scope((model.trainable_variables, trainable), (model.non_trainable_variables, after)):
                total, losses = self.objective.loss(part.y, y_pred, part.sample_weight, added, share, sample_share)
            outcome = (total, jnp.stack(losses) if losses else sums.losses, y_pred, after)
            if not training:
                return total, outcome
            with _scope((model.optimizer.variables, of_optimizer)):
                return model.optimizer.scale_loss(total), outcome

        def add(sums: Sums, part: MicroBatch, share: Any) -> tuple[Sums, None]:
            gradients: Any = []
            if training:
                (_, outcome), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, sums, part, share)
            else:
                _, outcome = loss_of(trainable, sums, part, share)
            total, losses, y_pred, after = outcome
            # Outside of what is differentiated, as Keras has it: the outputs carry no masks here.
            with _scope((self.model.metrics_variables, sums.metrics)) as scope:
                self.model.compute_metrics(part.x, part.y, y_pred, part.sample_weight)
            with jax.named_scope(ACCUMULATION):
                gradients = [so_far + new for so_far, new in zip(sums.gradients, gradients[::-1], strict=True)]
            added = Sums(
                gradients=gradients,
                changes=[
                    add_change(non_trainable[place], so_far, after[place], part.size / self.num_samples)
                    for place, so_far in zip(self._statistics, sums.changes, strict=True)
                ],
                seeds=[after[place] for place in self._seeds],
                metrics=[scope.get_current_value(variable) for variable in self.model.metrics_variables],
                total=sums.total + total,
                losses=sums.losses + losses,
            )
            return added, None

        with jax.named_scope(ACCUMULATION):
            gradients = [jnp.zeros(value.shape, value.dtype) for value in trainable[::-1]] if training else []
        nothing = Sums(
            gradients=gradients,
            changes=[zero_change(non_trainable[place]) for place in self._statistics],
            seeds=[non_trainable[place] for place in self._seeds],
            metrics=list(metrics),
            total=jnp.zeros((), "float32"),
            losses=jnp.zeros((self.objective.num_losses,), "float32"),
        )
        return cast(Sums, self._go_over(add, nothing, data, shares))

    def _go_over(self, do: "DoMicroBatch", carry: Any, data: Any, rows: Any) -> Any:
        """Call `do` for all micro-batches; the last carry."""
        return loop_over_micro_batches(do, carry, data, self.sizes, rows, looped=self.looped)[0]

    def _shares(self, trainable: Any, non_trainable: Any, data: Any) -> Any:
        """The share of each micro-batch (rows) in each loss (columns), as `Objective.shares` has it, but traced."""
        kinds = self.objective.kinds()
        by_samples = np.array(self.sizes, "float32") / self.num_samples
        shares = np.stack([np.ones_like(by_samples) if kind == "sum" else by_samples for kind in kinds] or [by_samples])
        weighted = len(data) > 2 and "weighted" in kinds
        if not weighted and not self.objective.counts:
            return shares.T
        count = self._count(trainable, non_trainable)
        with jax.named_scope(MICRO_BATCH):
            _, divisors = loop_over_micro_batches(count, None, data, self.sizes, shares.T, looped=self.looped)
            totals = jnp.sum(divisors, axis=0)
            counted = jnp.where(totals, divisors / jnp.where(totals, totals, 1), 0)
        is_counted = np.array([kind == "counted" or (kind == "weighted" and weighted) for kind in kinds])
        return jnp.where(is_counted, counted, shares.T)

    def _count(self, trainable: Any, non_trainable: Any) -> "DoMicroBatch":
        """What finds the divisors of a micro-batch."""

        def count(carry: None, part: MicroBatch, _: Any) -> tuple[None, Any]:
            # The compiler leaves out all of the forward pass that no mask is made of.
            y_pred, _ = self._call(trainable, non_trainable, part.x, training=False)
            return None, self.objective.divisors(part.y, y_pred, part.sample_weight)

        return count

    def _call(self, trainable: Any, non_trainable: Any, x: Any, *, training: bool, **options: Any) -> Any:
        if self.model._call_has_training_arg:
            options["training"] = training
        return self.model.stateless_call(trainable, non_trainable, x, **options)

    def _track(self, sums: Sums) -> tuple[Any, list[Any]]:
        model = self.model
        with _scope((model.metrics_variables, sums.metrics)) as scope:
            self.objective.track(sums.total, list(sums.losses), self.num_samples)
            logs = model.get_metrics_result()
        return logs, [scope.get_current_value(variable) for variable in model.metrics_variables]

    def _non_trainable_after(self, non_trainable: Any, sums: Sums) -> list[Any]:
        before = [non_trainable[place] for place in self._statistics]
        after = [apply_change(value, by) for value, by in zip(before, sums.changes, strict=True)]
        return _replace(_replace(non_trainable, self._statistics, after), self._seeds, sums.seeds)


def _scope(*groups: tuple[Sequence[Any], Sequence[Any]]) -> Any:
    mapping = [pair for variables, values in groups for pair in zip(variables, values, strict=True)]
    return keras.StatelessScope(state_mapping=mapping)


def _replace(values: Sequence[Any], places: Sequence[int], by: Sequence[Any]) -> list[Any]:
    values = list(values)
    for place, value in zip(places, by, strict=True):
        values[place] = value
    return values


DoMicroBatch = Callable[[Any, Any, Any], tuple[Any, Any]]
"""`do(carry, part, row)`: the next carry, and what is stacked over the micro-batches. `part` is a `MicroBatch`."""


class MicroBatch:
    """Some samples of the batch, sliced within the traced program."""

    def __init__(self, data: Any, start: Any, size: int, spread: "Spread | None" = None) -> None:
        """With `spread`, so many samples of every device's share."""
        self.size = size if spread is None else size * spread.num_shares
        with jax.named_scope(MICRO_BATCH):
            sliced = jax.tree.map(lambda array: _slice(array, start, size, spread), data)
        self.x, self.y, self.sample_weight = keras.utils.unpack_x_y_sample_weight(sliced)


def _slice(array: Any, start: Any, size: int, spread: "Spread | None") -> Any:
    if spread is not None:
        shares = array.reshape(spread.num_shares, array.shape[0] // spread.num_shares, -1)
        rows = jax.lax.dynamic_slice_in_dim(shares, start, size, axis=1)
        return spread.merged(rows.reshape(size * spread.num_shares, *array.shape[1:]))
    # In rows, for which there is one layout: XLA would turn the whole batch into another one that its kernels like.
    rows = jax.lax.dynamic_slice_in_dim(array.reshape(array.shape[0], -1), start, size)
    return rows.reshape(size, *array.shape[1:])


def has_sparse(data: Any) -> bool:
    """Whether there are sparse tensors in a batch, which cannot be split then."""
    return any(isinstance(leaf, BCOO) for leaf in jax.tree.leaves(data, is_leaf=lambda leaf: isinstance(leaf, BCOO)))


def loop_over_micro_batches(
    do: DoMicroBatch,
    carry: Any,
    data: Any,
    sizes: Sequence[int],
    rows: Any,
    *,
    looped: bool,
    spread: "Spread | None" = None,
) -> tuple[Any, Any]:
    """Call `do` for each micro-batch and its row of `rows`: the last carry, and what was stacked.

    Micro-batches of one size run in one loop of the compiled program; with `looped` False there is none. With `spread`
    the sizes are those of each device.
    """
    if has_sparse(data):
        raise ModelError(
            "A batch of sparse tensors cannot be cut into micro-batches on JAX.",
            hint="leave `micro_batch` out, and choose a batch_size that fits whole",
        )
    first, start, stacked = 0, 0, []
    for size, equal in itertools.groupby(sizes):
        count = len(list(equal))
        starts: Any = start + size * np.arange(count, dtype="int32")
        rows_of_size = rows[first : first + count]
        first, start = first + count, start + size * count
        if looped:
            with jax.named_scope(MICRO_BATCH_LOOP):
                carry, found = jax.lax.scan(_loop_body(do, data, size, spread), carry, (starts, rows_of_size))
            stacked.append(found)
            continue
        for at in zip(starts, rows_of_size, strict=True):
            carry, found = _loop_body(do, data, size, spread)(carry, at)
            stacked.append(jax.tree.map(lambda value: value[None], found))
    return carry, jax.tree.map(lambda *found: jax.numpy.concatenate(found), *stacked)


def _loop_body(
    do: DoMicroBatch, data: Any, size: int, spread: "Spread | None"
) -> Callable[[Any, Any], tuple[Any, Any]]:
    return lambda carry, at: do(carry, MicroBatch(data, at[0], size, spread), at[1])
