"""Whether a step is compiled by XLA."""

from typing import Any

from fitroom.keras_model.jit_choice import AUTO, jit_choice
from fitroom.keras_model.layers import can_be_jitted


def is_jitted_on_card(model: Any) -> bool:
    """Whether Keras would jit a model's step on a card: "auto" means yes there, if all layers can be jitted."""
    choice = jit_choice(model)
    if choice in (AUTO, None) and model.compiled and has_card():
        return bool(model.jit_compile)
    return choice is not False and can_be_jitted(model)


def has_card() -> bool:
    """Whether TensorFlow sees a GPU here."""
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
