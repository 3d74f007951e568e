"""Compiling of the network: for a phase of training with its learning-rate schedule, and plain for the saved model."""

import inspect
import math
from dataclasses import dataclass
from typing import Any

from fitroom.classify.network import Network
from fitroom.classify.options import TrainOptions
from fitroom.classify.phases import Phase
from fitroom.keras_model.optimizers import optimizer_class


def compile_for(phase: Phase, options: TrainOptions, network: Network, images: Any) -> None:
    """Set which layers are trainable in a phase, and compile the network for it."""
    from fitroom.classify.loss import build_loss, build_metrics

    phase.apply(network)
    batches = math.ceil(sum(images.counts["train"].values()) / options.batch_size)
    schedule = Schedule(
        optimizer=options.optimizer,
        rate=learning_rate(phase, options, network),
        updates=batches * (phase.epochs - phase.first_epoch),
    )
    network.model.compile(
        schedule.build(),
        build_loss(gives_probabilities=network.gives_probabilities, smoothing=options.label_smoothing),
        metrics=build_metrics(len(images.classes)),
        **({} if options.jit is None else {"jit_compile": options.jit}),
    )


def learning_rate(phase: Phase, options: TrainOptions, network: Network) -> float:
    """The peak learning rate of a phase."""
    if options.learning_rate is not None:
        return options.learning_rate
    return default_rate(options.optimizer, fine_tuning=network.is_pretrained and not phase.frozen)


_FINE_TUNING_FACTOR = 0.1
_WARM_UP_SHARE = 0.05
_FINAL_FACTOR = 0.01
"""Of the default rate for a pretrained network; of the updates that warm up; of the peak rate at the end."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A learning rate that warms up and then falls along a cosine, over all updates."""

    optimizer: str
    rate: float
    updates: int

    def build(self) -> Any:
        """The Keras optimizer with this schedule."""
        import keras

        warm_up = min(max(1, round(_WARM_UP_SHARE * self.updates)), self.updates - 1)
        rates = keras.optimizers.schedules.CosineDecay(
            self.rate / max(1, warm_up),
            decay_steps=max(1, self.updates - warm_up),
            alpha=_FINAL_FACTOR,
            warmup_target=self.rate if warm_up else None,
            warmup_steps=warm_up,
        )
        return optimizer_class(self.optimizer)(learning_rate=rates)


def default_rate(optimizer: str, *, fine_tuning: bool) -> float:
    """Keras's default for this optimizer; a tenth of it for fine-tuning."""
    rate = inspect.signature(optimizer_class(optimizer).__init__).parameters["learning_rate"].default
    return float(rate) * (_FINE_TUNING_FACTOR if fine_tuning else 1.0)


def make_plain(network: Network) -> Any:
    """Make the model plain Keras: in float32, all trainable, compiled with Keras's own loss and no optimizer state."""
    import keras

    from fitroom.classify.loss import build_loss, build_metrics

    model = network.model
    for layer in model._flatten_layers():  # no public name for the layers within layers
        if layer.dtype_policy.name.startswith("mixed"):
            layer.dtype_policy = keras.dtype_policies.get("float32")
    model.trainable = True
    loss = build_loss(gives_probabilities=network.gives_probabilities, smoothing=0.0)
    # SGD without momentum has no state to save.
    model.compile("sgd", loss, metrics=build_metrics(int(model.output_shape[-1])))
    return model
