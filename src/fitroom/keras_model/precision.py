"""A model that computes in another precision for the time of a training; afterwards it is as it was."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fitroom.keras_model.layers import precision_of
from fitroom.keras_model.private import all_layers, override_attribute

_COMPILED = ("train_function", "test_function", "predict_function")
"""The functions that Keras compiled for a model, in the precision that it had then."""


class Precision:
    """A built model that can compute in another precision; its weights stay what they are.

    A layer that was set apart (a float32 softmax at the end, say) stays apart. Under mixed_float16 the loss is scaled,
    as Keras does for a model that was compiled so.

    >>> precision = Precision(model, "mixed_bfloat16")  # doctest: +SKIP
    >>> with precision.in_force():  # doctest: +SKIP
    ...     model.train_on_batch(x, y)
    """

    def __init__(self, model: Any, policy: str | None) -> None:
        current = precision_of(model)
        self._model, self._policy = model, None if policy == current else policy
        followers = (layer for layer in all_layers(model) if layer.dtype_policy.name == current)
        self._own = [(layer, layer.dtype_policy) for layer in followers]
        self._optimizer = getattr(model, "optimizer", None)
        self._scaled = _scale_loss(self._optimizer) if self._policy == "mixed_float16" else self._optimizer

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Compute in the other precision for the time of the block. A file saved in it is of the model as it was."""
        if self._policy is None:
            yield
            return
        save = self._model.save

        def save_as_built(*arguments: Any, **options: Any) -> Any:
            self._restore()
            try:
                return save(*arguments, **options)
            finally:
                self._apply()

        with ExitStack() as stack:
            stack.callback(self._restore)
            self._apply()
            for name in _COMPILED:
                stack.enter_context(override_attribute(self._model, name, None))
            stack.enter_context(override_attribute(self._model, "save", save_as_built))
            yield

    def _apply(self) -> None:
        import keras

        policy = keras.dtype_policies.get(self._policy)
        for layer, _ in self._own:
            layer.dtype_policy = policy
        self._set_optimizer(self._scaled)

    def _restore(self) -> None:
        for layer, its_own in self._own:
            layer.dtype_policy = its_own
        self._set_optimizer(self._optimizer)

    def _set_optimizer(self, optimizer: Any) -> None:
        if optimizer is not None and self._model.optimizer is not optimizer:
            self._model.optimizer = optimizer


@contextmanager
def in_precision(model: Any, policy: str | None) -> Iterator[None]:
    """Have a built `model` compute in `policy`, or as it does where that is None."""
    with Precision(model, policy).in_force():
        yield


def _scale_loss(optimizer: Any) -> Any:
    """The optimizer with loss scaling around it."""
    import keras

    if optimizer is None or isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer
    return keras.optimizers.LossScaleOptimizer(optimizer)
