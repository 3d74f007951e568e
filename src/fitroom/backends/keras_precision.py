"""A model's layers in another precision for the time of a training, and as they were after it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fitroom.backends.keras_layers import precision_of


@contextmanager
def in_precision(model: Any, policy: str | None) -> Iterator[None]:
    """Have a compiled `model` compute in `policy`; its weights stay what they are.

    Under mixed_float16 the loss is scaled, as Keras does for a model that was compiled so.
    """
    if policy is None or policy == precision_of(model):
        yield
        return
    import keras

    optimizer = model.optimizer
    if policy == "mixed_float16" and not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        model.optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    try:
        with layers_in_precision(model, policy):
            yield
    finally:
        model.optimizer = optimizer


@contextmanager
def layers_in_precision(model: Any, policy: str) -> Iterator[None]:
    """Have the layers follow `policy`; one that was set apart (a float32 softmax at the end, say) stays apart."""
    import keras

    current = precision_of(model)
    followers = [layer for layer in model._flatten_layers() if layer.dtype_policy.name == current]
    before = [layer.dtype_policy for layer in followers]
    try:
        for layer in followers:
            layer.dtype_policy = keras.dtype_policies.get(policy)
        yield
    finally:
        for layer, its_own in zip(followers, before, strict=True):
            layer.dtype_policy = its_own
