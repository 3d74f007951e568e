"""What a training is, as `job.json` has it and as people are told."""

import math
import time
from collections.abc import Sequence
from typing import Any

from fitroom.classify import records
from fitroom.classify.choice import Choice
from fitroom.classify.machine import Machine
from fitroom.classify.network import Network
from fitroom.classify.options import IMAGENET, NO_WEIGHTS, OWN_WEIGHTS, TrainOptions
from fitroom.keras_model.fingerprint import current_versions


def job_of(
    options: TrainOptions,
    command: Sequence[str],
    machine: Machine,
    network: Network,
    pictures: Any,
    choice: Choice,
    learning_rate: float,
) -> dict[str, Any]:
    """As JSON."""
    augment = pictures.settings.augment
    return {
        "format": records.FORMAT,
        "command": list(command),
        "options": options.to_dict(),
        "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "model": {"text": options.model} | _facts(network),
        "backend": machine.backend.name,
        "device": machine.device_name,
        "classes": list(pictures.classes),
        "budget": {"bytes": machine.budget.bytes, "source": machine.budget.source} if machine.budget else None,
        **choice.to_job(options.batch_size),
        "learning_rate": learning_rate,
        "epochs": options.epochs,
        "data": pictures.summary(),
        "augmentation": augment and augment.to_dict(),
        "versions": current_versions(),
    }


def network_words(network: Network, options: TrainOptions, learning_rate: float) -> str:
    """What is trained, from where, and how fast at most."""
    begins = {
        IMAGENET: "with what it learnt on ImageNet",
        NO_WEIGHTS: "from scratch",
        OWN_WEIGHTS: "with the values it came with",
    }.get(network.weights, f"with the weights in {network.weights}")
    default = " (the default; or --weights none)" if network.weights == IMAGENET and not options.weights else ""
    rate = f"{options.optimizer} with a learning rate of up to {learning_rate:g}"
    return f"{network.model.name}: {_facts(network)['parameters']:,} parameters; it begins {begins}{default}; {rate}"


def _facts(network: Network) -> dict[str, Any]:
    model = network.model
    return {
        "name": model.name,
        "parameters": _count(model.weights),
        "trainable_parameters": _count(model.trainable_weights),
        "weights": network.weights,
    }


def _count(variables: Sequence[Any]) -> int:
    return sum(math.prod(variable.shape) for variable in variables)
