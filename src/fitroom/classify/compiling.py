"""The network compiled for one stretch of its training."""

import math
from typing import Any

from fitroom.classify.network import Network
from fitroom.classify.options import TrainOptions
from fitroom.classify.phases import Phase
from fitroom.classify.schedule import Schedule, usual_rate


def compile_for(phase: Phase, options: TrainOptions, network: Network, pictures: Any) -> None:
    """Say which layers are trained, and compile."""
    from fitroom.classify.loss import loss_of, metrics_of

    phase.apply(network)
    batches = math.ceil(sum(pictures.counts["train"].values()) / options.batch_size)
    schedule = Schedule(
        optimizer=options.optimizer,
        rate=learning_rate(phase, options, network),
        updates=batches * (phase.epochs - phase.first_epoch),
    )
    network.model.compile(
        schedule.build(),
        loss_of(gives_probabilities=network.gives_probabilities, smoothing=options.label_smoothing),
        metrics=metrics_of(len(pictures.classes)),
        **({} if options.jit is None else {"jit_compile": options.jit}),
    )


def learning_rate(phase: Phase, options: TrainOptions, network: Network) -> float:
    """The highest of a stretch."""
    if options.learning_rate is not None:
        return options.learning_rate
    return usual_rate(options.optimizer, fine_tuning=network.has_learnt and not phase.frozen)
