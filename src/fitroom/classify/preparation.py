"""All that is settled before the first batch: device, pictures, precision, network, recipe; said aloud and written."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitroom.classify import records
from fitroom.classify.machine import Machine, start_machine
from fitroom.classify.network import Network, build_network, picture_size
from fitroom.classify.options import NO_WEIGHTS, TrainOptions
from fitroom.classify.phases import Phase, phases_of
from fitroom.classify.pictures import load_pictures
from fitroom.classify.precision import choose_precision
from fitroom.classify.recipe_choice import Choice, choose_micro_batch
from fitroom.classify.schedule import Schedule, usual_rate
from fitroom.classify.seed import set_seed
from fitroom.models.source import ModelSource
from fitroom.train.run.fingerprint import current_versions
from fitroom.watch.listener import Listener


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A training that can begin."""

    options: TrainOptions
    machine: Machine
    network: Network
    pictures: Any
    phases: tuple[Phase, ...]
    job: dict[str, Any]
    """As `job.json` has it."""

    @property
    def folder(self) -> Path:
        """Where the run is."""
        return Path(self.options.run_dir)

    @property
    def micro_batch(self) -> int | None:
        """The most pictures at once; None for whole batches."""
        found: int | None = self.job["recipe"]["micro_batch"]
        return found


def prepare(options: TrainOptions, command: Sequence[str], kept: dict[str, Any] | None, view: Listener) -> Prepared:
    """Settle everything, or take it from what was kept of a run that goes on, and write `job.json`."""
    backend = kept["backend"] if kept else options.backend
    machine = start_machine(backend, budget=options.budget, gpu=options.gpu, say=view.said)
    _set_keras(options)
    source = ModelSource(text=options.model, image_size=options.image_size, unsafe=options.unsafe)
    source = replace(source, image_size=picture_size(source))
    pictures = load_pictures(options, source.image_size or 0, view)
    precision = kept["precision"] if kept else _precision(options, machine, view)
    network = build_network(
        replace(source, precision=precision["policy"]), num_classes=len(pictures.classes), weights=options.weights
    )
    for note in network.notes:
        view.said(note)
    phases = phases_of(options.epochs, freeze=options.freezes, unfreeze_after=options.unfreeze_after)
    compile_for(phases[-1], options, network, pictures)
    choice = _choice(options, machine, network, kept, view)
    job = {
        "format": records.FORMAT,
        "command": kept["command"] if kept else list(command),
        "options": options.to_dict(),
        "begun": kept["begun"] if kept else time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "model": {"text": options.model} | _facts(network),
        "backend": machine.backend.name,
        "device": machine.device_name,
        "image_size": source.image_size,
        "classes": list(pictures.classes),
        "precision": precision,
        "budget": {"bytes": machine.budget.bytes, "source": machine.budget.source} if machine.budget else None,
        "recipe": {
            "batch_size": options.batch_size,
            "micro_batch": choice.micro_batch,
            "precision": precision["policy"],
            "jit": options.jit,
        },
        "recipe_why": choice.why,
        "optimizer": options.optimizer,
        "learning_rate": learning_rate(phases[-1], options, network),
        "epochs": options.epochs,
        "data": pictures.summary(),
        "augmentation": pictures.settings.augment and pictures.settings.augment.to_dict(),
        "versions": current_versions(),
    }
    records.write_job(Path(options.run_dir), job)
    if choice.estimate is not None or not kept:
        records.write_estimate(Path(options.run_dir), choice.estimate)
    records.write_skipped(Path(options.run_dir), pictures.skipped)
    return Prepared(options=options, machine=machine, network=network, pictures=pictures, phases=tuple(phases), job=job)


def compile_for(phase: Phase, options: TrainOptions, network: Network, pictures: Any) -> None:
    """Compile the network for one stretch of the training."""
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
    return usual_rate(options.optimizer, fine_tuning=network.weights != NO_WEIGHTS and not phase.frozen)


def _set_keras(options: TrainOptions) -> None:
    import keras

    keras.config.set_image_data_format("channels_last")  # as the pictures come
    set_seed(options.seed)


def _precision(options: TrainOptions, machine: Machine, view: Listener) -> dict[str, str]:
    capability = machine.gpu.compute_capability if machine.gpu else None
    found = choose_precision(options.precision, machine.device, capability)
    view.said(f"precision: {found.policy} ({found.why})")
    return found.to_dict()


def _choice(
    options: TrainOptions, machine: Machine, network: Network, kept: dict[str, Any] | None, view: Listener
) -> Choice:
    """A run that goes on keeps its recipe, unless it was given other memory."""
    given = {name: getattr(options, name) for name in ("budget", "gpu", "micro_batch")}
    if kept and given.items() <= kept["options"].items():
        return Choice(micro_batch=kept["recipe"]["micro_batch"], estimate=None, why=kept["recipe_why"])
    choice = choose_micro_batch(
        network.model,
        machine,
        batch_size=options.batch_size,
        asked=options.micro_batch,
        jit=options.jit,
        say=view.said,
    )
    view.said(choice.why)
    return choice


def _facts(network: Network) -> dict[str, Any]:
    model = network.model
    return {
        "name": model.name,
        "parameters": sum(math.prod(variable.shape) for variable in model.weights),
        "trainable_parameters": sum(math.prod(variable.shape) for variable in model.trainable_weights),
        "weights": network.weights,
        "gives_probabilities": network.gives_probabilities,
    }
