"""`fitroom.lean.separable`: standard convolutions replaced by depthwise separable ones, from the old kernels."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fitroom.errors import InputError, ModelError
from fitroom.lean.changes_made import Changes, LayerChange, remember_changes
from fitroom.lean.network import check_model
from fitroom.lean.rebuilding import Rebuilt, choose_layers, copy_layer, layers_of

_KINDS = {"Conv1D": "SeparableConv1D", "Conv2D": "SeparableConv2D"}
_SHARED = (
    *("name", "trainable", "dtype", "filters", "kernel_size", "strides", "padding", "data_format", "dilation_rate"),
    *("activation", "use_bias", "bias_initializer", "bias_regularizer", "bias_constraint", "activity_regularizer"),
)


def separable(model: Any, layers: Iterable[str] | None = None, *, rank: int = 1) -> Any:
    """Replace convolutions by depthwise separable ones, which have fewer weights and keep less to compute.

    The new kernels are the best approximation of the old ones: for each input channel, the `rank` largest singular
    vectors. `fitroom.lean.changes(new_model)` has the error of each layer, as a share of the norm of its kernel. The
    model loses accuracy until it is trained again.

    Args:
        model: A built Functional or Sequential model, which is not changed.
        layers: Names of the convolutions to replace. Left out: all that get smaller by it.
        rank: Depthwise filters for each input channel; more are more exact and larger.
    """
    check_model(model)
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise InputError(f"`rank` must be a whole number of at least 1. Received: rank={rank!r}.")
    chosen = choose_layers(model, layers)
    reasons = {id(layer): why_not_separable(layer, rank) for _, layer in chosen}
    if layers is not None:
        for path, layer in chosen:
            if reason := reasons[id(layer)]:
                raise ModelError(
                    f"The layer {path!r} cannot be made separable: {reason}.", hint="leave it out of `layers`"
                )
    replaced = {id(layer): (path, layer) for path, layer in chosen if reasons[id(layer)] is None}
    if not replaced:
        raise ModelError(
            f"No layer of the model {model.name!r} can be made separable.",
            hint="it is for convolutions larger than 1 x 1, in one group",
        )

    rebuilt = Rebuilt(model, lambda layer: separate(layer, rank) if id(layer) in replaced else copy_layer(layer))
    weights, errors = {}, []
    for key, (path, layer) in replaced.items():
        kernel, *bias = layer.get_weights()
        depthwise, pointwise, error = factorise(kernel, rank)
        weights[key] = [depthwise, pointwise, *bias]
        errors.append(LayerChange(layer=path, error=error))
    rebuilt.copy_weights(weights)
    rebuilt.compile_as_before()
    left = [
        (path, layer)
        for path, layer in layers_of(model)
        if type(layer).__name__ in _KINDS and id(layer) not in replaced
    ]
    unchanged = [
        LayerChange(layer=path, reason=why_not_separable(layer, rank) or "it was not named") for path, layer in left
    ]
    remember_changes(rebuilt.model, Changes(changed=tuple(errors), unchanged=tuple(unchanged)))
    return rebuilt.model


def separate(layer: Any, rank: int = 1) -> Any:
    """The separable convolution, without weights, in the place of a standard one."""
    import keras

    config = layer.get_config()
    kernels = {
        f"{part}_{setting}": config[f"kernel_{setting}"]
        for part in ("depthwise", "pointwise")
        for setting in ("regularizer", "constraint", "initializer")
    }
    kind = getattr(keras.layers, _KINDS[type(layer).__name__])
    return kind.from_config({name: config[name] for name in _SHARED} | kernels | {"depth_multiplier": rank})


def factorise(kernel: Any, rank: int) -> tuple[Any, Any, float]:
    """A kernel (..., inputs, outputs) as depthwise and pointwise kernels, and the relative error of their product."""
    *space, inputs, outputs = kernel.shape
    matrices = np.moveaxis(kernel.reshape(-1, inputs, outputs), 1, 0)  # for each input: places by outputs
    left, values, right = np.linalg.svd(matrices.astype(np.float64), full_matrices=False)
    kept = min(rank, values.shape[1])
    roots = np.sqrt(values[:, :kept])
    depthwise, pointwise = left[:, :, :kept] * roots[:, None, :], right[:, :kept, :] * roots[:, :, None]
    if kept < rank:  # more filters than a kernel has singular values: the rest is zero
        depthwise = np.pad(depthwise, ((0, 0), (0, 0), (0, rank - kept)))
        pointwise = np.pad(pointwise, ((0, 0), (0, rank - kept), (0, 0)))
    total = float(np.square(values).sum())
    error = float(np.sqrt(np.square(values[:, kept:]).sum() / total)) if total else 0.0
    depthwise = np.moveaxis(depthwise, 0, 1).reshape(*space, inputs, rank)
    pointwise = pointwise.reshape(*[1] * len(space), inputs * rank, outputs)
    return depthwise.astype(kernel.dtype), pointwise.astype(kernel.dtype), error


def why_not_separable(layer: Any, rank: int) -> str | None:
    """Why a layer cannot be made separable, or would not get smaller; None if it can."""
    if type(layer).__name__ not in _KINDS or not type(layer).__module__.startswith("keras."):
        return f"it is a {type(layer).__name__}, not a Conv1D or Conv2D of Keras"
    if getattr(layer, "lora_enabled", False):
        return "it has an adapter; fitroom.lean.merge(model) merges it"
    if layer.groups > 1:
        return f"it convolves in {layer.groups} groups"
    places = int(np.prod(layer.kernel_size))
    if places == 1:
        return "its kernel is 1 x 1"
    if layer.padding == "causal" or len(set(layer.strides)) > 1:
        return "a separable convolution has no causal padding and no unequal strides"
    if max(layer.strides) > 1 and max(layer.dilation_rate) > 1:
        return "a separable convolution has either strides or dilation"
    inputs, outputs = layer.kernel.shape[-2:]
    if inputs * rank * (places + outputs) >= places * inputs * outputs:
        return "it would not get smaller"
    return None
