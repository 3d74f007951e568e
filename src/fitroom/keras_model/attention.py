"""Attention layers that drop scores at random, which Keras composes of single operations."""

from typing import Any

from fitroom.keras_model.private import inner_layers, own_attention


def layers_with_attention_dropout(model: Any) -> list[Any]:
    """The MultiHeadAttention layers of a model, at any depth, that drop scores and compute attention as Keras does."""
    import keras

    return [
        layer
        for layer in inner_layers(model)
        if isinstance(layer, keras.layers.MultiHeadAttention) and layer.dropout > 0 and own_attention(layer)
    ]
