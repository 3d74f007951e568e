"""What a loss divides by, as far as it is known without trying it, and how to compute losses in its place."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from fitroom.keras_model.private import all_layers, get_mask

Kind = Literal["mean", "sum", "weighted", "counted"]
"""What a loss divides by: samples, nothing, sample weights, or what only a forward pass can count (masks)."""

_SEPARABLE = {
    "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_logarithmic_error",
    "huber", "log_cosh", "binary_crossentropy", "binary_focal_crossentropy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "sparse_categorical_crossentropy", "hinge", "squared_hinge", "categorical_hinge",
    "kl_divergence", "poisson", "cosine_similarity", "ctc",
}  # fmt: skip
"""Losses of Keras that take each sample by itself, by the names of their functions. All others are tried on data."""


def is_from_keras(thing: Any) -> bool:
    """Whether a class, a function or the class of an object is defined in Keras."""
    return str(getattr(thing, "__module__", "")).startswith("keras.")


def may_mask(model: Any) -> bool:
    """Whether a layer may give its outputs a mask, which a loss then divides by."""
    import keras

    for layer in all_layers(model):
        if isinstance(layer, keras.layers.Masking) or getattr(layer, "mask_zero", False):
            return True
        is_own = not is_from_keras(type(layer))
        if is_own and type(layer).compute_mask is not keras.layers.Layer.compute_mask and layer is not model:
            return True
    return False


def is_separable(loss: Any) -> bool:
    """Whether a loss, an object or a function, is known to take each sample by itself."""
    function = getattr(loss, "fn", loss)
    is_own = not is_from_keras(function) or (function is not loss and not is_from_keras(type(loss)))
    may_be_along_samples = getattr(loss, "_fn_kwargs", {}).get("axis", -1) != -1
    return not is_own and not may_be_along_samples and getattr(function, "__name__", "") in _SEPARABLE


def kind_of(loss: Any, *, may_mask: bool) -> Kind | None:
    """What a loss divides by, or None where it has to be tried on data."""
    if not is_separable(loss):
        return None
    if loss.reduction == "sum":
        return "sum"
    if may_mask or getattr(loss, "ignore_class", None) is not None:
        return "counted"
    return "weighted" if loss.reduction == "mean_with_sample_weight" else "mean"


def divisor_of(loss: Any, y_true: Any, y_pred: Any, weight: Any) -> Any:
    """What Keras divides the sum of the samples' losses by."""
    from keras import ops

    values = loss.call(ops.cast(y_true, loss.dtype), ops.cast(y_pred, loss.dtype))
    masks = [mask for mask in (get_mask(y_pred), get_mask(values)) if mask is not None]
    kept = None
    for mask in masks:
        mask = ops.cast(mask, "float32")
        kept = mask if kept is None else kept * mask
    if loss.reduction == "mean_with_sample_weight" and (weight is not None or kept is not None):
        if weight is None:
            return ops.sum(kept)
        weight = ops.cast(weight, "float32")
        if kept is not None and len(weight.shape) == len(kept.shape) - 1:
            weight = ops.expand_dims(weight, -1)
        return ops.sum(weight if kept is None else weight * kept)
    num_values = ops.cast(ops.size(values), "float32")
    if kept is None:
        return num_values
    return num_values * ops.sum(kept) / ops.cast(ops.size(kept), "float32")


class _Served:
    """Stands in for one of the compiled losses."""

    def __init__(self, index: int, loss: Any, serve: Callable[..., Any]) -> None:
        self.index, self.loss, self.serve = index, loss, serve

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return self.serve(self.index, self.loss, y_true, y_pred, sample_weight)


class _NoTracker:
    """Stands in for a loss tracker, which is updated once for the whole batch, not for its micro-batches."""

    def update_state(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


@contextmanager
def serve_losses(compile_loss: Any, serve: Callable[..., Any]) -> Iterator[None]:
    """Have `serve(index, loss, y_true, y_pred, weight)` called in place of each loss, for the time of the block.

    Keras pairs targets, outputs and weights with the losses by rules of its own, which are so not repeated here. These
    attributes have no public name.
    """
    losses, metrics = compile_loss._flat_losses, compile_loss._metrics
    compile_loss._flat_losses = [
        each._replace(loss=_Served(index, each.loss, serve)) for index, each in enumerate(losses)
    ]
    compile_loss._metrics = [_NoTracker() for _ in metrics]
    try:
        yield
    finally:
        compile_loss._flat_losses, compile_loss._metrics = losses, metrics
