"""The trained model as a file for anybody: plain Keras loads it, and it runs well on any device."""

from pathlib import Path
from typing import Any

from fitroom.classify.loss import loss_of, metrics_of
from fitroom.classify.network import Network
from fitroom.classify.records import write_model


def publish(network: Network, folder: Path) -> None:
    """Write `model.keras`, whole or not at all."""
    make_plain(network)
    write_model(folder, network.model)


def make_plain(network: Network) -> Any:
    """The model in float32, all of it trainable, compiled with what Keras has itself and no memory of a training."""
    import keras

    model = network.model
    for layer in model._flatten_layers():  # no public name for the layers within layers
        if layer.dtype_policy.name.startswith("mixed"):
            layer.dtype_policy = keras.dtype_policies.get("float32")
    model.trainable = True
    loss = loss_of(gives_probabilities=network.gives_probabilities, smoothing=0.0)
    # Of all optimizers this one has nothing to remember.
    model.compile("sgd", loss, metrics=metrics_of(int(model.output_shape[-1])))
    return model
