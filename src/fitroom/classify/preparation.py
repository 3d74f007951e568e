"""All that happens before the first batch: device, images, recipe and network are chosen, announced and recorded."""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitroom.activity import activity
from fitroom.classify import records
from fitroom.classify.choice import Choice, Chooser, has_same_request
from fitroom.classify.compiling import learning_rate
from fitroom.classify.images import load_images
from fitroom.classify.machine import Machine, start_machine
from fitroom.classify.network import Network, build_network, find_image_size
from fitroom.classify.options import IMAGENET, NO_WEIGHTS, OWN_WEIGHTS, TrainOptions
from fitroom.classify.phases import Phase, build_phases
from fitroom.classify.precision import Precision
from fitroom.classify.seed import set_seed
from fitroom.keras_model.fingerprint import current_versions
from fitroom.keras_model.loading.source import ModelSource
from fitroom.keras_model.optimizers import optimizer_class
from fitroom.runs.job import Job
from fitroom.watching.listener import Listener


@dataclass(frozen=True, kw_only=True)
class PreparedRun:
    """A run that is ready to train."""

    options: TrainOptions
    """As given by the user, except for the optimizer, which the planner may have chosen."""

    machine: Machine
    network: Network
    images: Any
    phases: tuple[Phase, ...]
    choice: Choice
    job: Job
    """What `job.json` holds."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.options.run_dir)


def prepare(options: TrainOptions, command: Sequence[str], previous: Job | None, view: Listener) -> PreparedRun:
    """Choose everything, or take it from the `job.json` of a run that is resumed, and write `job.json`."""
    with activity("starting the framework"):
        machine = _start_machine(options, previous, view)
    optimizer_class(options.optimizer)  # checks names that only Keras knows, before the scan
    source = _find_source(options, previous)
    own_size = source.image_size or 0
    with activity("reading the folder of images"):
        images = load_images(options, own_size, view.said)
    phases = _build_phases(options, previous.frozen_layers if previous else None)
    keeps_plan = previous is not None and has_same_request(options, previous)
    if previous is not None and keeps_plan:
        choice = Choice.from_job(previous)
    else:
        chooser = Chooser(
            options=_fix_choices(options, previous),
            machine=machine,
            source=source,
            images=images,
            phase=phases[-1],
            say=view.said,
        )
        with activity("planning"):
            choice = chooser.choose()
        machine.backend.release()  # memory of the network that was planned with
        if previous is not None:
            choice = replace(choice, precision=Precision.from_job(previous))
        for line in choice.lines(options, own_size):
            view.said(line)
    if choice.image_size != own_size:
        images = load_images(options, choice.image_size, lambda text: None)
    phases = _build_phases(options, choice.frozen_layers)
    with activity("building the network"):
        network = _build_network(options, choice, source, images)
    asked, options = options, replace(options, optimizer=choice.optimizer)
    rate = learning_rate(phases[-1], options, network)
    for line in (describe_network(network, options, rate), *network.notes):
        view.said(line)
    phases[-1].apply(network)  # `job.json` says how many parameters are trained
    values = describe_job(asked, command, machine, network, images, choice, rate)
    job = Job.from_dict(values | ({"command": previous.command, "begun": previous.begun} if previous else {}))
    folder = Path(options.run_dir)
    records.write_job(folder, job)
    if not keeps_plan:
        records.write_estimate(folder, choice.plan.estimate if choice.plan else None)
    records.write_skipped(folder, images.skipped)
    return PreparedRun(
        options=options,
        machine=machine,
        network=network,
        images=images,
        phases=tuple(phases),
        choice=choice,
        job=job,
    )


def _build_phases(options: TrainOptions, frozen_layers: int | None) -> list[Phase]:
    phases = build_phases(options.epochs, freeze=options.freezes, unfreeze_after=options.unfreeze_after)
    return [replace(phase, frozen_layers=frozen_layers) for phase in phases]


def _start_machine(options: TrainOptions, previous: Job | None, view: Listener) -> Machine:
    """Start the backend; a run that is resumed stays on the one that it was started on."""
    backend = previous.backend if previous else options.backend
    if previous and backend:
        os.environ["KERAS_BACKEND"] = backend
    machine = start_machine(backend, budget=options.budget, gpu=options.gpu, say=view.said)

    import keras

    keras.config.set_image_data_format("channels_last")  # the layout of decoded images
    return machine


def _find_source(options: TrainOptions, previous: Job | None) -> ModelSource:
    """The model source with the image size: as before, as asked for, or the model's own."""
    size = previous.image_size if previous else options.pixels
    source = ModelSource(text=options.model, image_size=size, unsafe=options.unsafe)
    return replace(source, image_size=find_image_size(source))


def _fix_choices(options: TrainOptions, previous: Job | None) -> TrainOptions:
    """Options for a new plan of a run that is resumed with other memory: what affects learning stays as it was."""
    if previous is None:
        return options
    return replace(
        options,
        precision=previous.precision.policy or options.precision,
        image_size=previous.image_size,
        optimizer=previous.optimizer or options.optimizer,
        allow=(),
    )


def _build_network(options: TrainOptions, choice: Choice, source: ModelSource, images: Any) -> Network:
    """The network to train; seeded, so that its weights do not depend on whether another one was planned with."""
    set_seed(options.seed)
    return build_network(
        replace(source, image_size=choice.image_size, precision=choice.precision.policy),
        num_classes=len(images.classes),
        weights=options.weights,
    )


def describe_job(
    options: TrainOptions,
    command: Sequence[str],
    machine: Machine,
    network: Network,
    images: Any,
    choice: Choice,
    learning_rate: float,
) -> dict[str, Any]:
    """The content of `job.json`."""
    augment = images.settings.augment
    return {
        "format": records.FORMAT,
        "command": list(command),
        "options": options.to_dict(),
        "begun": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "model": {"text": options.model} | _facts(network),
        "backend": machine.backend.name,
        "device": machine.device_name,
        "classes": list(images.classes),
        "budget": {"bytes": machine.budget.bytes, "source": machine.budget.source} if machine.budget else None,
        **choice.to_job(options.batch_size),
        "learning_rate": learning_rate,
        "epochs": options.epochs,
        "data": images.summary(),
        "augmentation": augment and augment.to_dict(),
        "versions": current_versions(),
    }


def describe_network(network: Network, options: TrainOptions, learning_rate: float) -> str:
    """One line for people: the model, its initial weights, optimizer and peak learning rate."""
    start = {
        IMAGENET: "starts from ImageNet weights",
        NO_WEIGHTS: "starts from scratch",
        OWN_WEIGHTS: "starts from the model's own weights",
    }.get(network.weights, f"starts from the weights in {network.weights}")
    default = " (the default; or --weights none)" if network.weights == IMAGENET and not options.weights else ""
    rate = f"{options.optimizer} with a peak learning rate of {learning_rate:g}"
    return f"{network.model.name}: {_facts(network)['parameters']:,} parameters; {start}{default}; {rate}"


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
