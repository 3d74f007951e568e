"""The trained model as a file for anybody: plain Keras loads it, and it runs well on any device."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitroom.backends.keras_precision import in_precision
from fitroom.classify.loss import loss_of, metrics_of
from fitroom.classify.network import Network
from fitroom.classify.records import MODEL_FILE
from fitroom.train.run.durable import save_whole


@contextmanager
def for_anybody(network: Network, num_classes: int) -> Iterator[Any]:
    """The model in float32, all of it trainable, compiled with what Keras has itself and no memory of this training."""
    model = network.model
    model.trainable = True
    loss = loss_of(gives_probabilities=network.gives_probabilities, smoothing=0.0)
    model.compile("sgd", loss, metrics=metrics_of(num_classes))
    with in_precision(model, "float32"):
        yield model


def publish(model: Any, folder: Path) -> Path:
    """Write `model.keras`, whole or not at all."""
    save_whole(model, folder / MODEL_FILE)
    return folder / MODEL_FILE
