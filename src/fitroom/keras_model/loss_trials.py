"""Losses that are not Keras's own, tried on data: is the loss of a few samples the mean or the sum over their parts?"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fitroom.batch import Batch
from fitroom.errors import ModelError
from fitroom.keras_model.losses import Kind, serve_losses
from fitroom.keras_model.private import all_layers

TRIED_SAMPLES = 6
_TOLERANCE = 1e-5


class LossTrial:
    """Finds out what the losses of a compiled model divide by, or that they couple the samples of a batch."""

    def __init__(self, compile_loss: Any) -> None:
        self._compile_loss = compile_loss
        self._losses = [served.loss for served in compile_loss._flat_losses]

    def kinds(self, few: Batch, predict: Callable[[Any], Any]) -> list[Kind]:
        """What each loss divides by; `predict` gives the model's outputs for some inputs."""
        few = replace(few, sample_weight=None)  # what weights are divided by is known, and they may all be 0
        if few.size < 2:
            raise ModelError("A loss that is not Keras's own cannot be computed in micro-batches of one sample.")
        outputs = predict(few.x)
        whole = self._values(few, outputs)
        # More than one split: the parts of one may be alike by chance.
        splits = [self._split_values(few, outputs, first) for first in range(1, few.size)]
        kinds: list[Kind] = []
        for index, loss in enumerate(self._losses):
            kind: Kind = "weighted" if loss.reduction == "mean_with_sample_weight" else "mean"
            if all(_is_close(whole[index], split.mean(index)) for split in splits):
                kinds.append(kind)
            elif all(_is_close(whole[index], split.left[index] + split.right[index]) for split in splits):
                kinds.append("sum")
            else:
                raise ModelError(
                    f"The loss {loss.name!r} couples the samples of a batch: its value for {few.size} samples "
                    f"({whole[index]:.6g}) is neither the mean nor the sum of its values for their parts.",
                    hint="such a batch cannot be split into micro-batches; a smaller batch_size or image size helps",
                )
        return kinds

    def _split_values(self, few: Batch, outputs: Any, first: int) -> "_Split":
        left, right = few.slice(0, first), few.slice(first, few.size)
        return _Split(
            left=self._values(left, _slice(outputs, 0, first)),
            right=self._values(right, _slice(outputs, first, few.size)),
            share=first / few.size,
        )

    def _values(self, part: Batch, y_pred: Any) -> list[float]:
        import keras
        from keras import ops

        values: list[float] = []

        def record(index: int, loss: Any, y_true: Any, y_pred: Any, weight: Any) -> Any:
            value = loss(y_true, y_pred, weight)
            values.append(float(ops.convert_to_numpy(ops.sum(value))))
            return value

        as_tensors = part.map(ops.convert_to_tensor)
        outputs = keras.tree.map_structure(ops.convert_to_tensor, y_pred)
        with serve_losses(self._compile_loss, record):
            self._compile_loss(as_tensors.y, outputs, as_tensors.sample_weight)
        return values


def check_added_losses(model: Any, few: Batch) -> None:
    """Raise ModelError where a loss that layers add by `add_loss` is no mean over samples.

    Only layers that are not Keras's own are tried: what Keras's layers add are means. A random value cannot be tried.
    """
    if not any(_adds_losses(type(layer)) for layer in all_layers(model)) or few.size < 2:
        return
    seeded = [variable.value for variable in model.non_trainable_variables]
    whole, later = _compute_added_losses(model, few, seeded)
    again, _ = _compute_added_losses(model, few, later)
    if not whole or not all(map(_is_close, whole, again)):
        return
    half = few.size // 2
    left, right = (
        _compute_added_losses(model, part, seeded)[0] for part in (few.slice(0, half), few.slice(half, few.size))
    )
    share = half / few.size
    for value, one, other in zip(whole, left, right, strict=True):
        if not _is_close(value, share * one + (1 - share) * other):
            raise ModelError(
                f"A loss that a layer of {model.name!r} adds couples the samples of a batch: its value for {few.size} "
                f"samples ({value:.6g}) is not the mean of its values for their parts.",
                hint="such a batch cannot be split into micro-batches; a smaller batch_size or image size helps",
            )


def _compute_added_losses(model: Any, part: Batch, state: list[Any]) -> tuple[list[float], list[Any]]:
    """`model.losses` for some samples, and the state after it; the model itself is not changed."""
    from keras import ops

    x = part.map(ops.convert_to_tensor).x
    trainable = [variable.value for variable in model.trainable_variables]
    _, state, losses = model.stateless_call(trainable, state, x, return_losses=True)
    return [float(ops.convert_to_numpy(ops.sum(loss))) for loss in losses], state


def _adds_losses(kind: type) -> bool:
    """Whether a method of a class that is not Keras's own refers to `add_loss`."""
    own = [one for one in kind.__mro__ if one is not object and not one.__module__.startswith("keras.")]
    codes = [value.__code__ for one in own for value in vars(one).values() if hasattr(value, "__code__")]
    return any("add_loss" in code.co_names for code in codes)


def sum_weights(compile_loss: Any, part: Batch, index: int) -> float:
    """The sum of the sample weights that one of the losses takes."""
    from keras import ops

    weights = part.sample_weight
    if isinstance(weights, dict | list | tuple):
        for key in compile_loss._flat_losses[index].path:
            weights = weights[key]
    return float(np.sum(ops.convert_to_numpy(weights)))  # a user's own loader may have put them on the card


@dataclass(frozen=True, kw_only=True)
class _Split:
    """What the losses are for the two parts of a few samples."""

    left: list[float]
    right: list[float]
    share: float
    """The left part's, by samples."""

    def mean(self, index: int) -> float:
        """The mean of the parts."""
        return self.share * self.left[index] + (1 - self.share) * self.right[index]


def _slice(structure: Any, start: int, stop: int) -> Any:
    import keras

    return keras.tree.map_structure(lambda leaf: leaf[start:stop], structure)


def _is_close(one: float, other: float) -> bool:
    return bool(np.isclose(one, other, rtol=_TOLERANCE, atol=1e-6))
