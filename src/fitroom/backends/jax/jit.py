"""Whether a step is compiled whole: as Keras has it, and as `fitroom.fit` does."""

from collections.abc import Iterator
from typing import Any

from fitroom.keras_model.jit_choice import AUTO, jit_choice

_COMPILABLE = ("RandomPerspective", "RandomRotation", "RandomShear", "RandomTranslation", "RandomZoom")
"""Layers of Keras's that bar `jit_compile="auto"` on every backend for what XLA lacks on TensorFlow. On JAX they can be
compiled, and draw the same numbers: looked at with Keras 3.15.1."""


def keras_jits(model: Any) -> bool:
    """Whether Keras's own `fit` compiles the steps of a compiled model."""
    return bool(model.jit_compile) and not model.run_eagerly


def fitroom_jits(model: Any) -> bool:
    """Whether `fitroom.fit` compiles the steps of a compiled model.

    It does where Keras does, and also where the choice was left to Keras and only layers are in the way that JAX can
    compile. Operation by operation a step takes many times as long, and so does each of its micro-batches.
    """
    return keras_jits(model) or (jit_choice(model) == AUTO and all(map(can_be_compiled, model._flatten_layers())))


def jit_note(model: Any) -> str | None:
    """A note for a model that `fitroom.fit` compiles and Keras would not; else None."""
    if keras_jits(model) or not fitroom_jits(model):
        return None
    names = ", ".join(dict.fromkeys(_in_the_way(model)))
    return (
        f"The step is compiled whole. Keras would run it operation by operation for {names}, which JAX can compile; "
        "Recipe(jit=False) leaves it so."
    )


def _in_the_way(model: Any) -> Iterator[str]:
    return (layer.name for layer in model._flatten_layers() if not layer.supports_jit)


def can_be_compiled(layer: Any) -> bool:
    """Whether JAX can trace and compile a layer, as far as it says itself or is known."""
    import keras

    known = getattr(keras.layers, type(layer).__name__, None)
    return bool(layer.supports_jit) or (type(layer).__name__ in _COMPILABLE and type(layer) is known)
