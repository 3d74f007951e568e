"""What a loss divides by, as far as it is known without trying it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

Kind = Literal["mean", "sum", "weighted", "counted"]
"""What a loss divides by: samples, nothing, sample weights, or what only a forward pass can count (masks)."""

_SEPARABLE = {
    "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_logarithmic_error",
    "huber", "log_cosh", "binary_crossentropy", "binary_focal_crossentropy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "sparse_categorical_crossentropy", "hinge", "squared_hinge", "categorical_hinge",
    "kl_divergence", "poisson", "cosine_similarity", "ctc",
}  # fmt: skip
"""Of Keras's own losses those that are known to take each sample by itself; all others are tried out. By the names of
their functions, which a class of Keras's wraps, as a loss that is given by its name is."""


def is_kerass(thing: Any) -> bool:
    """Whether Keras brought a class, a function or an object."""
    return str(getattr(thing, "__module__", "")).startswith("keras.")


def may_mask(model: Any) -> bool:
    """Whether a layer may give its outputs a mask, which a loss then divides by."""
    import keras

    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Masking) or getattr(layer, "mask_zero", False):
            return True
        is_own = not is_kerass(type(layer))
        if is_own and type(layer).compute_mask is not keras.layers.Layer.compute_mask and layer is not model:
            return True
    return False


def is_separable(loss: Any) -> bool:
    """Whether a loss, an object or a function, is known to take each sample by itself."""
    function = getattr(loss, "fn", loss)
    is_own = not is_kerass(function) or (function is not loss and not is_kerass(type(loss)))
    is_along_samples = getattr(loss, "_fn_kwargs", {}).get("axis", -1) != -1  # it may be
    return not is_own and not is_along_samples and getattr(function, "__name__", "") in _SEPARABLE


def kind_of(loss: Any, *, may_mask: bool) -> Kind | None:
    """What is known of a loss without trying it."""
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
    masks = [mask for mask in (_mask_of(y_pred), _mask_of(values)) if mask is not None]
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


def _mask_of(tensor: Any) -> Any:
    # Of tensors that take no attributes (JAX's in a trace) Keras keeps masks aside, and gives no public way to them.
    from keras.src.backend import get_keras_mask

    return get_keras_mask(tensor)


class _Served:
    """Stands in for one of the compiled losses."""

    def __init__(self, index: int, loss: Any, serve: Callable[..., Any]) -> None:
        self.index, self.loss, self.serve = index, loss, serve

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return self.serve(self.index, self.loss, y_true, y_pred, sample_weight)


class _Untold:
    """Stands in for a loss tracker: it is told of the whole batch at the end, not of its parts."""

    def update_state(self, *_: Any, **__: Any) -> None:
        """Nothing."""


@contextmanager
def losses_served_by(compile_loss: Any, serve: Callable[..., Any]) -> Iterator[None]:
    """Have `serve(index, loss, y_true, y_pred, weight)` called in place of each loss.

    Keras pairs targets, outputs and weights with the losses by rules of its own, which are not repeated here. There is
    no public way in, hence the underscores.
    """
    losses, metrics = compile_loss._flat_losses, compile_loss._metrics
    compile_loss._flat_losses = [
        each._replace(loss=_Served(index, each.loss, serve)) for index, each in enumerate(losses)
    ]
    compile_loss._metrics = [_Untold() for _ in metrics]
    try:
        yield
    finally:
        compile_loss._flat_losses, compile_loss._metrics = losses, metrics
