"""`fitroom.move_augmentation`: takes augmentation out of a model, into the input pipeline.

Keras runs a model without jit where a layer cannot be compiled, as some augmentation cannot: operation by operation,
with all that the backward pass needs held until it is done. Without these layers the same model is compiled whole.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fitroom.errors import ModelError

if TYPE_CHECKING:
    import keras

_OTHERS = ("AugMix", "RandAugment")
"""Augmentation whose name does not begin with "Random"."""


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Augmentation for the data: call it with images. It needs no model, and works within `tf.data`, too."""

    layers: tuple[Any, ...]
    always_needed: bool
    """Whether data for validation and prediction must pass through it, too, with `training=False`."""

    def __call__(self, x: Any, *, training: bool = True) -> Any:
        """Return the images augmented, of the kind that was given; with `training=False` as the model had them then."""
        import numpy as np
        from keras import ops

        found = x
        for layer in self.layers:
            found = layer(found, training=training)
        return ops.convert_to_numpy(found) if isinstance(x, np.ndarray) else found


def move_augmentation(model: "keras.Model") -> tuple["keras.Model", Augmentation]:
    """Return the model without its leading augmentation layers, and these as a function for the data.

    The model that is returned has the weights of the one that was given, which are shared, and is compiled as that was,
    with the same optimizer; train one of the two only. Random numbers are drawn in the input pipeline from then on:
    other ones than before, so that a training is another, as with another seed.

    Args:
        model: a Functional or Sequential model that begins with augmentation layers, of Keras or others.

    Example:
        >>> model, augment = fitroom.move_augmentation(model)                              # doctest: +SKIP
        >>> data = data.map(lambda x, y: (augment(x), y))     # a tf.data.Dataset          # doctest: +SKIP
        >>> fitroom.fit(model, data, epochs=10)                                            # doctest: +SKIP
    """
    import keras

    from fitroom.keras_model.jit_choice import AUTO, jit_choice
    from fitroom.keras_model.layers import layer_paths
    from fitroom.keras_model.twin import compile_arguments, compile_like
    from fitroom.remat.graph import functional_of

    chain = _leading_calls(model)
    moved = tuple(layer for layer, _ in chain)
    tensor, functional = chain[-1][1], functional_of(model)
    rest = keras.Model(tensor, functional.outputs, name=model.name)
    still = [layer.name for _, layer in layer_paths(rest) if _is_augmentation(layer)]
    if still:
        raise ModelError(
            f"{model.name!r} has augmentation that is not at its beginning: {', '.join(still)}.",
            hint="build the model without it, and augment the data",
        )
    if model.compiled:
        # Where Keras decided, it decides anew: what was in the way may be gone.
        choice = jit_choice(model)
        jit = AUTO if choice is None else choice
        compile_like(model, rest, **compile_arguments(model) | {"optimizer": model.optimizer, "jit_compile": jit})
    always_needed = tuple(tensor.shape) != tuple(functional.inputs[0].shape) or any(map(_changes_values, moved))
    return rest, Augmentation(layers=moved, always_needed=always_needed)


def movable_augmentation(model: Any) -> tuple[str, ...]:
    """The names of the augmentation layers that `move_augmentation` would take out; empty where it cannot."""
    try:
        return tuple(layer.name for layer, _ in _leading_calls(model) if _is_augmentation(layer))
    except ModelError:
        return ()


def _leading_calls(model: Any) -> list[tuple[Any, Any]]:
    """The layers at the beginning of a model up to its last augmentation there, each with the tensor that it makes."""
    from fitroom.remat.graph import functional_of, nodes_of

    functional = functional_of(model)
    if functional is None or len(functional.inputs) != 1:
        raise ModelError(
            "Augmentation can be taken out of a Functional or Sequential model with one input. "
            f"Received: {model.name!r}, a {type(model).__name__}.",
            hint="build the model without augmentation, and augment the data",
        )
    nodes, tensor, chain = list(nodes_of(functional)), functional.inputs[0], []
    while True:
        users = [node for node in nodes if any(each is tensor for each in node.input_tensors)]
        if len(users) != 1 or len(users[0].input_tensors) != 1 or len(users[0].outputs) != 1:
            break
        layer, tensor = users[0].operation, users[0].outputs[0]
        if getattr(layer, "weights", None) != []:  # an operation, or what is trained
            break
        chain.append((layer, tensor))
    while chain and not _is_augmentation(chain[-1][0]):
        chain.pop()
    if not chain:
        raise ModelError(
            f"{model.name!r} does not begin with augmentation layers.",
            hint="augmentation within a model cannot be taken out; build the model without it, and augment the data",
        )
    return chain


def _is_augmentation(layer: Any) -> bool:
    inner = getattr(layer, "layers", None)
    if inner:
        return any(map(_is_augmentation, inner))
    name = type(layer).__name__
    return name.startswith("Random") or name in _OTHERS


def _changes_values(layer: Any) -> bool:
    """Whether a layer does something outside of training, too."""
    inner = getattr(layer, "layers", None)
    if inner:
        return any(map(_changes_values, inner))
    name = type(layer).__name__
    return name == "RandomCrop" or (name != "InputLayer" and not _is_augmentation(layer))
