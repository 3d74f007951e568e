"""Where state and batches lie when JAX trains on several devices: as `keras.distribution` says.

A batch is shared out evenly along the mesh's batch axis, which is all that a sharded array can do. What is left over,
fewer samples than there are devices, is replicated: every device computes it, and it counts once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import keras
from jax.sharding import NamedSharding, PartitionSpec

from fitroom.backends.jax.train.state import Groups, StepFunction
from fitroom.batch import Batch, leaves
from fitroom.keras_model.state import has_batch_statistics


@dataclass(frozen=True, kw_only=True)
class SpreadBatch:
    """A batch on several devices."""

    main: Batch | None
    """What is shared out, evenly; None where there are more devices than samples."""

    rest: Batch | None
    """What is left over and replicated."""

    def unpacked(self) -> Any:
        """What a step in micro-batches takes: the two, each unpacked."""
        return tuple(None if part is None else part.unpacked() for part in (self.main, self.rest))

    def data(self) -> Any:
        """What a whole step takes; there is no rest then."""
        whole = self.main or self.rest
        assert whole is not None
        return whole.data()


class Spread:
    """The layout of one `keras.distribution`."""

    def __init__(self, distribution: Any) -> None:
        self._distribution = distribution
        self.mesh = distribution.device_mesh.backend_mesh
        self.axis: str | None = distribution.batch_dim_name
        self.num_shares: int = 1 if self.axis is None else self.mesh.shape[self.axis]

    @property
    def key(self) -> Any:
        """What tells programs for this layout from others."""
        return self.mesh, self.axis

    @property
    def devices(self) -> list[Any]:
        """The devices of the mesh that belong to this process."""
        return [device for device in self.mesh.devices.flat if device.process_index == jax.process_index()]

    def accumulates_locally(self, model: Any) -> bool:
        """Whether each device can add up the gradients of its micro-batches by itself, to be reduced once.

        BatchNormalization sees the samples of all devices, so that its devices must talk to each other in every
        micro-batch. So must they where weights are sharded.
        """
        is_data_parallel = isinstance(self._distribution, keras.distribution.DataParallel)
        return is_data_parallel and len(self.mesh.axis_names) == 1 and not has_batch_statistics(model)

    def place(self, groups: Groups) -> None:
        """Lay out the variables over the devices."""
        for variable in (variable for group in groups for variable in group):
            variable._value = jax.device_put(variable._value, self._layout(variable))

    def constrain(self, step: StepFunction, groups: Groups) -> StepFunction:
        """The step with its new state laid out as the old one: the compiler might choose otherwise."""
        layouts = [[self._layout(variable) for variable in group] for group in groups]

        def run(state: Any, data: Any) -> tuple[Any, Any]:
            logs, new_state = step(state, data)
            pairs = (zip(values, rows, strict=True) for values, rows in zip(new_state, layouts, strict=True))
            return logs, tuple([_constrained(value, layout) for value, layout in group] for group in pairs)

        return run

    def put(self, batch: Batch, *, can_cut: bool) -> SpreadBatch:
        """Transfer a batch to the devices. One that can be neither cut nor shared out evenly is replicated."""
        rest = batch.size % self.num_shares
        if rest and not can_cut:
            return SpreadBatch(main=None, rest=self._put(batch, PartitionSpec()))
        main = batch.size - rest
        return SpreadBatch(
            main=self._put(batch.slice(0, main) if rest else batch, PartitionSpec(self.axis)) if main else None,
            rest=self._put(batch.slice(main, batch.size), PartitionSpec()) if rest else None,
        )

    def merged(self, array: Any) -> Any:
        """The constraint for a micro-batch, of which every device has its part."""
        return jax.lax.with_sharding_constraint(array, NamedSharding(self.mesh, PartitionSpec(self.axis)))

    def _put(self, batch: Batch, spec: PartitionSpec) -> Batch:
        sharding = NamedSharding(self.mesh, spec)
        replicated = NamedSharding(self.mesh, PartitionSpec())
        is_dense = all(hasattr(array, "__getitem__") for array in leaves(batch.x))
        return batch.map(lambda array: jax.device_put(array, sharding if is_dense else replicated))

    def _layout(self, variable: Any) -> Any:
        return self._distribution.get_variable_layout(variable).backend_layout


def current_spread() -> Spread | None:
    """The layout of the distribution in force, or None where one device trains."""
    distribution = keras.distribution.distribution()
    if distribution is None or len(distribution.device_mesh.devices.flat) == 1:
        return None
    return Spread(distribution)


def gather(variables: Sequence[Any]) -> None:
    """Bring variables that are replicated over several devices back to the first of them."""
    for variable in variables:
        value = variable._value
        if isinstance(value, jax.Array) and len(value.devices()) > 1 and value.is_fully_replicated:
            variable._value = jax.device_put(value, min(value.devices(), key=lambda device: device.id))


def _constrained(value: Any, layout: Any) -> Any:
    return None if value is None else jax.lax.with_sharding_constraint(value, layout)
