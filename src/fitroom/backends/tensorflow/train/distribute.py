"""Several devices of one machine under TensorFlow: `tf.distribute.MirroredStrategy` for the length of a block."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from fitroom.distribution.current import Distribution
from fitroom.distribution.selection import DeviceSelection
from fitroom.distribution.shares import check_weights
from fitroom.errors import BackendError, InputError
from fitroom.keras_model.optimizers import extra_optimizers

_moved: "weakref.WeakSet[Any]" = weakref.WeakSet()
"""The models that were made outside of a strategy and moved to one."""

_in_force: list[Any] = []
"""The strategies that `distribute` made and that have not ended."""


@contextmanager
def distribute(
    selection: DeviceSelection, weights: Sequence[float] | None, *, shard_weights: bool = False
) -> Iterator[Distribution]:
    """Train on several devices within the block. Models made in it, or trained in it, are mirrored on all of them."""
    if shard_weights:
        raise BackendError(
            "TensorFlow cannot shard the weights of a Keras model: its strategies mirror them.",
            hint="JAX can: KERAS_BACKEND=jax; or a smaller model, a leaner optimizer, remat",
        )
    if tf.distribute.has_strategy():
        raise InputError(
            f"A {type(tf.distribute.get_strategy()).__name__} is in force already, and says which devices train.",
            hint="leave the devices out, or the strategy",
        )
    available = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    chosen = selection.choose(len(available))
    weights = check_weights(weights, len(chosen))
    names = tuple(available[number].name.partition("device:")[2].lower() for number in chosen)
    if len(chosen) == 1:
        with tf.device(available[chosen[0]].name):
            yield Distribution(
                devices=names, weights=weights, engine="one device", batch_statistics="the batch, as always"
            )
        return
    strategy = tf.distribute.MirroredStrategy([name.upper() for name in names], cross_device_ops=_cross_device_ops())
    _in_force.append(strategy)
    try:
        with strategy.scope():
            yield Distribution(
                devices=names,
                weights=weights,
                engine="tf.distribute.MirroredStrategy",
                batch_statistics="the samples of its own replica; those of all with synchronized=True in the layer",
            )
    finally:
        _in_force.remove(strategy)
        for model in list(_moved):
            _move(model, None)
        _moved.clear()


def move_to_strategy(model: Any) -> None:
    """Mirror a model that was made outside of the strategy that `distribute` began."""
    if not _in_force:
        return
    own = model.distribute_strategy
    if own.num_replicas_in_sync > 1 and own is not _in_force[-1]:
        raise InputError(
            f"The model {model.name!r} was made under a strategy of its own, {type(own).__name__}, and other devices "
            "were asked for.",
            hint="leave the devices out, or the strategy",
        )
    if own.num_replicas_in_sync == 1 or _is_unmirrored(model):
        _move(model, _in_force[-1])
        _moved.add(model)


def _is_unmirrored(model: Any) -> bool:
    """Whether a model says that it follows the strategy in force, and its variables do not."""
    return any(not isinstance(each.value, tf.distribute.DistributedValues) for each in model.variables)


def _move(model: Any, strategy: Any) -> None:
    """Make all variables of a model anew, with their values: mirrored by a strategy, or on one device."""
    optimizer = getattr(model, "optimizer", None)
    optimizers = [*([] if optimizer is None else [optimizer]), *extra_optimizers(model)]
    optimizers += [inner for each in optimizers if (inner := getattr(each, "inner_optimizer", None)) is not None]
    slots = [variable for each in optimizers for variable in each.variables]
    variables = {id(each): each for each in (*model.variables, *model.metrics_variables, *slots)}
    scope = tf.distribute.get_strategy() if strategy is None else strategy
    with scope.scope():
        for variable in variables.values():
            value = variable.value.numpy()
            variable._value = None
            variable._initialize(value)
    model._distribute_strategy = strategy
    for each in optimizers:
        each._distribution_strategy = scope
        # Keras finds the slots of a weight by its TensorFlow variable.
        each._trainable_variables_indices = {
            each._var_key(variable): place for place, variable in enumerate(each._trainable_variables)
        }
    # What was traced holds the variables of before.
    model.make_train_function(force=True)
    model.make_test_function(force=True)
    model.make_predict_function(force=True)


def _cross_device_ops() -> Any:
    """None for TensorFlow's own choice, NCCL; copies to one device where that cannot be had."""
    cards = tf.config.list_physical_devices("GPU")
    if not cards or len(tf.config.list_logical_devices("GPU")) > len(cards):
        # NCCL refuses a card that comes twice. On CPUs TensorFlow's collectives remember the number of devices of the
        # first strategy in a process, and an error in one of them makes all that follow fail.
        return tf.distribute.ReductionToOneDevice()
    return None
