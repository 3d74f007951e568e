"""A step in micro-batches on several devices.

Each device goes over its share of the batch. Where nothing in the model looks at the batch as a whole, the gradients
are added up on each device and reduced once, after the last micro-batch. Otherwise (BatchNormalization, sharded
weights) a micro-batch is one computation over all devices, which the compiler divides. What could not be shared out
evenly follows as micro-batches of their own, replicated.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from fitroom.backends.jax.train.micro_batches import (
    MICRO_BATCH,
    DoMicroBatch,
    MicroBatchStep,
    Sums,
    loop_over_micro_batches,
)
from fitroom.backends.jax.train.spread import Spread
from fitroom.batch import micro_batch_sizes
from fitroom.keras_model.objective import Objective


class _Rows(NamedTuple):
    """A row for each micro-batch: of what is shared out, and of the rest."""

    main: Any
    rest: Any


class SpreadMicroBatchStep(MicroBatchStep):
    """The step of a compiled model for batches of one size on several devices.

    `data` is what `SpreadBatch.unpacked` gives: what is shared out, and the rest.
    """

    def __init__(
        self, model: Any, objective: Objective, spread: Spread, batch_size: int, micro_batch: int, *, looped: bool
    ) -> None:
        share, rest = divmod(batch_size, spread.num_shares)
        self._main_sizes = micro_batch_sizes(share, micro_batch) if share else []
        self._rest_sizes = micro_batch_sizes(rest, micro_batch) if rest else []
        super().__init__(model, objective, [*self._main_sizes, *self._rest_sizes], looped=looped)
        self.num_samples = batch_size
        self._spread, self._is_local = spread, spread.accumulates_locally(model)

    @property
    def kind(self) -> tuple[Any, ...]:
        """What tells this step from others of the same model."""
        return (self._spread.key, self._is_local, tuple(self._rest_sizes), *super().kind)

    def _go_over(self, do: DoMicroBatch, carry: Any, data: Any, rows: Any) -> Any:
        main, rest = data
        if main is not None:
            over = self._sum_locally if self._is_local else self._sum_together
            carry = over(do, carry, main, rows.main)
        if rest is not None:
            carry, _ = loop_over_micro_batches(do, carry, rest, self._rest_sizes, rows.rest, looped=self.looped)
        return carry

    def _sum_together(self, do: DoMicroBatch, carry: Any, main: Any, rows: Any) -> Any:
        """Every micro-batch is one computation over all devices."""
        return self._loop_together(do, carry, main, rows)[0]

    def _sum_locally(self, do: DoMicroBatch, carry: Sums, main: Any, rows: Any) -> Sums:
        """Every device goes over its share alone; the sums are reduced once."""
        axis = self._spread.axis

        def on_device(main: Any, rows: Any) -> Sums:
            number = jax.lax.axis_index(axis)
            start = carry._replace(seeds=[_own_seed(seed, number) for seed in carry.seeds])
            sums, _ = loop_over_micro_batches(do, start, main, self._main_sizes, rows[0], looped=self.looped)
            metrics = [after - before for after, before in zip(sums.metrics, carry.metrics, strict=True)]
            reduced = jax.lax.psum((sums.gradients, metrics, sums.total, sums.losses), axis)
            gradients, metrics, total, losses = reduced
            return Sums(
                gradients=gradients,
                changes=[_reduced_change(change, axis) for change in sums.changes],
                seeds=[_own_seed(seed, number) for seed in sums.seeds],
                metrics=[before + added for before, added in zip(carry.metrics, metrics, strict=True)],
                total=total,
                losses=losses,
            )

        return cast(Sums, self._on_each_device(on_device, PartitionSpec())(main, rows))

    def _shares(self, trainable: Any, non_trainable: Any, data: Any) -> Any:
        main, rest = data
        kinds, num_shares = self.objective.kinds(), self._spread.num_shares
        together = 1 if self._is_local else num_shares
        by_samples = _Rows(
            main=_rows_by_samples(np.array(self._main_sizes) * together / self.num_samples, kinds),
            rest=_rows_by_samples(np.array(self._rest_sizes) / self.num_samples, kinds),
        )
        if self._is_local:
            by_samples = by_samples._replace(main=np.repeat(by_samples.main[None], num_shares, axis=0))
        weighted = len(main or rest) > 2 and "weighted" in kinds
        if not weighted and not self.objective.counts:
            return by_samples
        count = self._count(trainable, non_trainable)
        with jax.named_scope(MICRO_BATCH):
            divisors = _Rows(
                main=np.zeros((0, len(kinds)), "float32") if main is None else self._count_main(count, main),
                rest=np.zeros((0, len(kinds)), "float32") if rest is None else self._count_rest(count, rest),
            )
            totals = sum(jnp.sum(rows.reshape(-1, len(kinds)), axis=0) for rows in divisors)
            counted = _Rows(*(jnp.where(totals, rows / jnp.where(totals, totals, 1), 0) for rows in divisors))
        is_counted = np.array([kind == "counted" or (kind == "weighted" and weighted) for kind in kinds])
        chosen = (
            jnp.where(is_counted, rows, plain) if rows.size else plain
            for rows, plain in zip(counted, by_samples, strict=True)
        )
        return _Rows(*chosen)

    def _count_main(self, count: DoMicroBatch, main: Any) -> Any:
        unused: Any = np.zeros((len(self._main_sizes), 1), "float32")
        if not self._is_local:
            return self._loop_together(count, None, main, unused)[1]

        def on_device(main: Any) -> Any:
            _, found = loop_over_micro_batches(count, None, main, self._main_sizes, unused, looped=self.looped)
            return found[None]

        return self._on_each_device(on_device, PartitionSpec(self._spread.axis))(main)

    def _count_rest(self, count: DoMicroBatch, rest: Any) -> Any:
        unused: Any = np.zeros((len(self._rest_sizes), 1), "float32")
        return loop_over_micro_batches(count, None, rest, self._rest_sizes, unused, looped=self.looped)[1]

    def _loop_together(self, do: DoMicroBatch, carry: Any, main: Any, rows: Any) -> Any:
        return loop_over_micro_batches(do, carry, main, self._main_sizes, rows, looped=self.looped, spread=self._spread)

    def _on_each_device(self, function: Any, out_specs: PartitionSpec) -> Any:
        given = PartitionSpec(self._spread.axis)
        # Unchecked, since a checked gradient of replicated weights is reduced at once, in every micro-batch.
        return jax.shard_map(function, mesh=self._spread.mesh, in_specs=given, out_specs=out_specs, check_vma=False)


def _rows_by_samples(shares: Any, kinds: Sequence[str]) -> Any:
    columns = [np.ones_like(shares) if kind == "sum" else shares for kind in kinds] or [shares]
    return np.stack(columns, axis=1).astype("float32")


def _reduced_change(change: Any, axis: str | None) -> Any:
    """The sum over the devices; of whole numbers, which count something, each device has the same outcome."""
    return jax.lax.psum(change, axis) if jnp.issubdtype(change.dtype, jnp.floating) else change


def _own_seed(seed: Any, number: Any) -> Any:
    """A random state for one device; applied twice, the state of all devices again.

    Keras's generators count in the second number and leave the first as it is.
    """
    mixed = jnp.bitwise_xor(seed[0], (number * 0x9E3779B1).astype(seed.dtype))
    return seed.at[0].set(mixed)
