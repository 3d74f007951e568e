"""Several devices of one machine under JAX: `keras.distribution` for the length of a block."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import keras
import numpy as np

from fitroom.backends.jax.shards import largest_axis
from fitroom.backends.jax.train.spread import gather
from fitroom.distribution.current import Distribution
from fitroom.distribution.selection import DeviceSelection
from fitroom.distribution.shares import check_weights
from fitroom.errors import BackendError, InputError

BATCH_AXIS = "batch"

SPREAD_MODELS: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""The models whose variables were laid out over several devices."""

_in_force: list[Any] = []
"""The distributions that `distribute` made and that have not ended."""


@contextmanager
def distribute(
    selection: DeviceSelection, weights: Sequence[float] | None, *, shard_weights: bool = False
) -> Iterator[Distribution]:
    """Train on several devices within the block; afterwards the variables are on the first of them."""
    if (own := keras.distribution.distribution()) is not None:
        raise InputError(
            f"`keras.distribution` is in force already ({type(own).__name__}), and says which devices train.",
            hint="leave the devices out, or the distribution",
        )
    available = jax.local_devices()
    chosen = selection.choose(len(available))
    weights = check_weights(weights, len(chosen))
    if len(set(weights)) > 1:
        raise BackendError(
            f"JAX shares a batch out evenly among devices. Received: shares {', '.join(f'{w:g}' for w in weights)}.",
            hint="leave `shares` out: the smallest card then decides; TensorFlow and PyTorch take unequal shares",
        )
    names = tuple(f"{available[number].platform}:{number}" for number in chosen)
    if len(chosen) == 1:
        with jax.default_device(available[chosen[0]]):
            yield Distribution(
                devices=names, weights=weights, engine="one device", batch_statistics="the batch, as always"
            )
        return
    mesh = keras.distribution.DeviceMesh((len(chosen),), [BATCH_AXIS], np.array(names))
    distribution = WeightShards(mesh) if shard_weights else keras.distribution.DataParallel(device_mesh=mesh)
    before = set(SPREAD_MODELS)
    _in_force.append(distribution)
    try:
        with distribution.scope():
            yield Distribution(
                devices=names,
                weights=weights,
                engine="keras.distribution, weights sharded" if shard_weights else "keras.distribution.DataParallel",
                batch_statistics="the samples of all devices together",
                replicates_rest=True,
            )
    finally:
        _in_force.remove(distribution)
        for model in set(SPREAD_MODELS) - before:
            optimizer = getattr(model, "optimizer", None)
            gather([*model.variables, *model.metrics_variables, *(optimizer.variables if optimizer else ())])


def check_is_ours() -> None:
    """Raise InputError where a script replaced the distribution that `distribute` began by one of its own."""
    own = keras.distribution.distribution()
    if _in_force and own is not _in_force[-1]:
        raise InputError(
            f"The script set a `keras.distribution` of its own, {type(own).__name__}; other devices were asked for.",
            hint="leave the devices out, or the distribution",
        )


class WeightShards(keras.distribution.ModelParallel):  # type: ignore[misc]
    """Weights and optimizer state divided among the devices, each along its largest axis that divides.

    The batch is divided along the same axis of the mesh. A layer's weights are gathered when it is computed.
    """

    def __init__(self, mesh: Any) -> None:
        super().__init__(layout_map=keras.distribution.LayoutMap(mesh), batch_dim_name=mesh.axis_names[0])

    def get_variable_layout(self, variable: Any) -> Any:
        """The layout of one variable; replicated where no axis divides."""
        mesh = self.device_mesh
        axes: list[str | None] = [None] * len(variable.shape)
        place = largest_axis(variable.shape, mesh.devices.size)
        if place is not None:
            axes[place] = mesh.axis_names[0]
        return keras.distribution.TensorLayout(axes, mesh)
