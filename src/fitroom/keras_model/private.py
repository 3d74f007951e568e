"""The private names of Keras that are used here, each behind a function.

What has no public name in Keras may change with its next version; then this is the file to look at. Keras is imported
where a function needs it: `exported_names` refuses a wrong name without the seconds that importing Keras takes.
"""

import importlib.util
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_EXPORTED = re.compile(r"\bas ([A-Z]\w*)")


@cache
def exported_names(module: str) -> tuple[str, ...]:
    """Classes and functions of `keras.<module>` that begin with a capital letter; empty where the file tells none.

    >>> "Adam" in exported_names("optimizers"), "Xception" in exported_names("applications")
    (True, True)
    """
    spec = importlib.util.find_spec("keras")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        try:
            return tuple(dict.fromkeys(_EXPORTED.findall((Path(folder) / module / "__init__.py").read_text("utf-8"))))
        except OSError:
            continue
    return ()


def all_layers(layer: Any) -> list[Any]:
    """A layer or model and all layers within it, at any depth; empty for an operation that is no layer."""
    return list(layer._flatten_layers()) if hasattr(layer, "_flatten_layers") else []


def inner_layers(layer: Any) -> list[Any]:
    """The layers within a layer, at any depth, without itself."""
    return list(layer._flatten_layers(include_self=False))


def seed_generators(layer: Any) -> list[Any]:
    """The random generators that a layer owns itself, without those of layers within it."""
    return list(layer._seed_generators)


def own_trainable_variables(layer: Any) -> list[Any]:
    """The variables that a layer made as trainable ones, frozen or not, without those of layers within it."""
    return list(layer._trainable_variables)


def compiled_loss(model: Any) -> Any:
    """The object that computes the losses that `compile` was given; None where there are none."""
    return model._compile_loss


def unbuilt_trackers(model: Any) -> list[Any]:
    """What still has to be built before the first step, of the losses and metrics that `compile` was given.

    A `compute_loss` of the model's own says itself what the losses are given: they are built when it calls them.
    """
    import keras

    has_own = type(model).compute_loss is not keras.Model.compute_loss
    trackers = [model._compile_metrics] if has_own else [model._compile_loss, model._compile_metrics]
    return [each for each in trackers if each is not None and not each.built]


def compiled_metrics(model: Any) -> Any:
    """The object that updates the metrics that `compile` was given; None where there are none."""
    return model._compile_metrics


def loss_tracker(model: Any) -> Any:
    """The metric in which a compiled model keeps the mean of its loss."""
    return model._loss_tracker


def compile_config(model: Any) -> dict[str, Any]:
    """What `compile` was given. The public `get_compile_config` loses functions of the user's."""
    return dict(model._compile_config.config)


def build_from_batch(model: Any, data: Any) -> None:
    """Make the variables of model, loss, metrics and optimizer, as `fit` does with its first batch."""
    model._symbolic_build(data_batch=data)


def learning_rate_setting(optimizer: Any) -> Any:
    """The learning rate or the schedule that an optimizer was given; the public name gives a schedule's value now."""
    return getattr(optimizer, "_learning_rate", None)


def get_mask(tensor: Any) -> Any:
    """The mask that Keras attached to a tensor, or None."""
    from keras.src.backend.common.masking import get_keras_mask

    return None if tensor is None else get_keras_mask(tensor)


def set_mask(tensor: Any, mask: Any) -> None:
    """Attach a mask to a tensor."""
    from keras.src.backend.common.masking import set_keras_mask

    set_keras_mask(tensor, mask)


def autocast_scope(layer: Any) -> Any:
    """The scope that Keras opens around a layer's `call`: variables are read in the layer's precision."""
    from keras.src.backend.common import AutocastScope

    return AutocastScope(layer.compute_dtype if layer.autocast else None)


def no_autocast_scope() -> Any:
    """A scope in which variables are read as they are stored, whatever the precision of the layer around it."""
    from keras.src.backend.common import AutocastScope

    return AutocastScope(None)


_ATTENTION = "_compute_attention"


def own_attention(layer: Any) -> Any:
    """The method by which a MultiHeadAttention computes attention; None where its class has another than Keras's."""
    import keras

    method = getattr(type(layer), _ATTENTION)
    own = getattr(keras.layers.MultiHeadAttention, _ATTENTION)
    return method.__get__(layer) if method is own and _ATTENTION not in vars(layer) else None


def override_attention(layer: Any, compute: Any) -> Any:
    """Have a MultiHeadAttention compute attention by another function for the time of a block."""
    return override_attribute(layer, _ATTENTION, compute)


_UNINITIALIZED = "uninitialized_variables"


def uninitialized_variables() -> list[Any]:
    """The variables that were made without values. Keras gives them values at the end of its next scope."""
    from keras.src.backend.common import global_state

    return list(global_state.get_global_attribute(_UNINITIALIZED, []))


def initialize_missing_values(variables: Iterable[Any]) -> None:
    """Give those of the variables that have no value yet their initial one."""
    for variable in variables:
        if variable._value is None:
            variable._deferred_initialize()


def set_uninitialized_variables(variables: list[Any]) -> None:
    """Replace the list of variables that wait for values."""
    from keras.src.backend.common import global_state

    global_state.set_global_attribute(_UNINITIALIZED, variables)


_unscaled = threading.local()


@contextmanager
def unscaled_losses() -> Iterator[None]:
    """Have Keras's losses in the block give what they give on one device.

    Under a `tf.distribute` strategy Keras divides a mean by the number of replicas, as if their batches were equal. The
    block counts for its thread alone: TensorFlow traces every replica in a thread of its own, by turns.
    """
    from keras.src.losses import loss as module

    own = module.scale_loss_for_distribution
    if not hasattr(own, "is_switched"):

        def scale_unless_off(value: Any) -> Any:
            return value if getattr(_unscaled, "is_on", False) else own(value)

        scale_unless_off.is_switched = True  # type: ignore[attr-defined]
        module.scale_loss_for_distribution = scale_unless_off
    _unscaled.is_on = True
    try:
        yield
    finally:
        _unscaled.is_on = False


@contextmanager
def restore_added_losses(model: Any) -> Iterator[None]:
    """Undo at the end of the block what layers added by `add_loss` in it."""
    before = [(layer, layer._losses, layer._losses[:]) for layer in all_layers(model)]
    try:
        yield
    finally:
        for layer, losses, content in before:
            losses[:] = content
            layer._losses = losses


@contextmanager
def override_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of the instance for the time of the block; past Keras, which would track what is set."""
    own = vars(owner)
    before = {name: own[name]} if name in own else {}
    own[name] = value
    try:
        yield
    finally:
        del own[name]
        own.update(before)


@contextmanager
def skip_tensorflow_types() -> Iterator[None]:
    """Within the block Keras does not ask whether something is TensorFlow's, as long as nobody has imported TensorFlow.

    It asks of whatever it writes down, a layer or a schedule, and imports TensorFlow to find out: two seconds of CPU
    time in an estimate or a plan on JAX or PyTorch.
    """
    import keras.src.utils.module_utils as modules

    known = modules.tensorflow._available
    if "tensorflow" in sys.modules or known is not None:
        yield
        return
    modules.tensorflow._available = False
    try:
        yield
    finally:
        modules.tensorflow._available = None
