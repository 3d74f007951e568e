"""`fitroom.lean.adapt`: LoRA adapters on the layers that can have them, all else frozen."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fitroom.errors import InputError, ModelError
from fitroom.lean.changes_made import Changes, LayerChange, remember_changes
from fitroom.lean.network import check_model
from fitroom.lean.rebuilding import Rebuilt, choose_layers, copy_layer, layers_of


def adapt(model: Any, rank: int, *, layers: Iterable[str] | None = None, train: Iterable[str] = ()) -> Any:
    """Copy a model and give its layers LoRA adapters: only these are trained, with a fraction of the optimizer's state.

    Dense, EinsumDense and Embedding layers and convolutions, pointwise ones too, can have adapters; depthwise and
    separable convolutions cannot. `fitroom.lean.changes(new_model)` lists both. Saving the model merges the adapters
    into the kernels, so that the file has the old size. It keeps that adapters are on: a model that is loaded from it
    answers the same, and has new ones that do nothing yet. `merge` gives a plain model without any.

    Args:
        model: A built Functional or Sequential model, which is not changed.
        rank: The rank of the adapters.
        layers: Names of the layers that get one. Left out: all that can, except those in `train`.
        train: Names of layers that are trained whole, such as a new head.
    """
    check_model(model)
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise InputError(f"`rank` must be a whole number of at least 1. Received: rank={rank!r}.")
    whole = {id(layer) for _, layer in choose_layers(model, train)}
    chosen = [(path, layer) for path, layer in choose_layers(model, layers) if id(layer) not in whole]
    reasons = {path: why_not_adapted(layer) for path, layer in chosen if layer.weights}
    if layers is not None:
        for path, _ in chosen:
            if reason := reasons.get(path, "it has no weights"):
                raise ModelError(
                    f"The layer {path!r} cannot have an adapter: {reason}.", hint="leave it out of `layers`"
                )
    if not any(reason is None for reason in reasons.values()):
        why = "; ".join(f"{path}: {reason}" for path, reason in list(reasons.items())[:3])
        raise ModelError(
            f"No layer of the model {model.name!r} can have an adapter{': ' + why if why else ''}.",
            hint="adapters are for Dense, EinsumDense, Embedding and convolutions that are not depthwise",
        )
    rebuilt = Rebuilt(model, copy_layer)
    rebuilt.copy_weights({})
    add_adapters(rebuilt, rank, {id(layer) for path, layer in chosen if reasons.get(path, "") is None}, whole)
    rebuilt.compile_as_before()
    changed = tuple(LayerChange(layer=path) for path, reason in reasons.items() if reason is None)
    unchanged = tuple(LayerChange(layer=path, reason=reason) for path, reason in reasons.items() if reason)
    remember_changes(rebuilt.model, Changes(changed=changed, unchanged=unchanged))
    return rebuilt.model


def add_adapters(rebuilt: Rebuilt, rank: int, adapted: set[int], whole: set[int]) -> None:
    """Give adapters to the layers in the place of those in `adapted`, and freeze all that is in neither set."""
    rebuilt.model.trainable = True  # models around a layer, too: a frozen one trains its adapters
    for old, new in rebuilt.layers.values():
        if old is None or id(old) in whole or not hasattr(new, "trainable"):
            continue
        if id(old) in adapted:
            for weight in new.weights:
                weight.trainable = False
            new.enable_lora(rank)
        else:
            new.trainable = False


def merge(model: Any) -> Any:
    """Copy a model with the adapters merged into its kernels, all layers trainable again.

    Args:
        model: A model that `adapt` returned, or any Functional or Sequential one with LoRA enabled.
    """
    import keras

    check_model(model)
    adapted = {id(layer): layer for _, layer in layers_of(model) if getattr(layer, "lora_enabled", False)}
    if not adapted:
        raise InputError(f"The model {model.name!r} has no adapters to merge.", hint="fitroom.lean.adapt adds them")

    def make_layer(layer: Any) -> Any:
        if id(layer) in adapted:
            config = layer.get_config()
            config.pop("lora_rank", None)
            config.pop("lora_alpha", None)
            return type(layer).from_config(config | {"trainable": True})
        copy = copy_layer(layer)
        if hasattr(copy, "trainable"):
            copy.trainable = True
        return copy

    rebuilt = Rebuilt(model, make_layer)
    weights = {}
    for key, layer in adapted.items():
        name = "embeddings" if hasattr(layer, "embeddings") else "kernel"
        merged = keras.ops.convert_to_numpy(getattr(layer, name))
        bias = [np.asarray(keras.ops.convert_to_numpy(layer.bias))] if getattr(layer, "bias", None) is not None else []
        weights[key] = [merged, *bias]
    rebuilt.copy_weights(weights)
    rebuilt.compile_as_before()
    return rebuilt.model


def why_not_adapted(layer: Any) -> str | None:
    """Why a layer with weights cannot have an adapter; None if it can."""
    if getattr(layer, "lora_enabled", False):
        return "it has one already"
    if getattr(layer, "quantization_mode", None):
        return "it is quantized"
    for entry in ("kernel_constraint", "embeddings_constraint"):
        if getattr(layer, entry, None) is not None:
            return f"it has a {entry}"
    name = type(layer).__name__
    if "Depthwise" in name or "Separable" in name or not hasattr(layer, "enable_lora"):
        return f"Keras has no adapter for {name}"
    return None
