"""Whether what was compiled for a model still holds: Keras too keeps its functions from `fit` to `fit`."""

import weakref
from typing import Any


class MadeWith:
    """What a model was trained with when something was made for it. It does not keep the model alive."""

    def __init__(self, model: Any) -> None:
        self._parts = [weakref.ref(part) for part in _parts(model)]
        self._settings = _settings(model)

    def holds_for(self, model: Any) -> bool:
        """Whether the model was not compiled anew, has the same variables, and computes as it did."""
        then, now = [reference() for reference in self._parts], _parts(model)
        is_same = len(then) == len(now) and all(map(lambda one, other: one is other, then, now))
        return is_same and self._settings == _settings(model)


def _parts(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)  # a model that only predicts is not compiled
    compiled = (optimizer, model._loss_tracker, model._compile_loss, model._compile_metrics)
    variables = (model.trainable_variables, model.non_trainable_variables, model.metrics_variables)
    slots = optimizer.variables if optimizer is not None else ()
    return [*(each for each in compiled if each is not None), *(each for group in variables for each in group), *slots]


def _settings(model: Any) -> list[Any]:
    """How its steps are run, and of each layer the precision and whether it is trained."""
    layers = ((layer.dtype_policy.name, layer.trainable) for layer in model._flatten_layers())
    return [model.run_eagerly, model.jit_compile, *layers]
