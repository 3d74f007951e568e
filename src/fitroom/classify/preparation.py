"""All that is settled before the first batch: device, pictures, precision, network, recipe; said aloud and written."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitroom.classify import records
from fitroom.classify.description import job_of, network_words
from fitroom.classify.machine import Machine, start_machine
from fitroom.classify.network import Network, build_network, picture_size
from fitroom.classify.options import TrainOptions
from fitroom.classify.phases import Phase, phases_of
from fitroom.classify.pictures import load_pictures
from fitroom.classify.precision import choose_precision
from fitroom.classify.recipe_choice import Choice, choose_micro_batch
from fitroom.classify.schedule import Schedule, usual_rate
from fitroom.classify.seed import set_seed
from fitroom.models.source import ModelSource
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
    machine = _machine(options, kept, view)
    source = ModelSource(text=options.model, image_size=options.image_size, unsafe=options.unsafe)
    source = replace(source, image_size=picture_size(source))
    pictures = load_pictures(options, source.image_size or 0, view)
    precision = kept["precision"] if kept else _precision(options, machine, view)
    network = build_network(
        replace(source, precision=precision["policy"]), num_classes=len(pictures.classes), weights=options.weights
    )
    phases = phases_of(options.epochs, freeze=options.freezes, unfreeze_after=options.unfreeze_after)
    rate = learning_rate(phases[-1], options, network)
    for line in (network_words(network, options, rate), *network.notes):
        view.said(line)
    compile_for(phases[-1], options, network, pictures)  # the stretch that takes the most memory
    choice = _choice(options, machine, network, kept, view)
    job = job_of(options, command, machine, network, pictures, precision, choice, rate)
    job |= {name: kept[name] for name in ("command", "begun")} if kept else {}
    folder = Path(options.run_dir)
    records.write_job(folder, job)
    if choice.estimate is not None or not kept:
        records.write_estimate(folder, choice.estimate)
    records.write_skipped(folder, pictures.skipped)
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
    return usual_rate(options.optimizer, fine_tuning=network.has_learnt and not phase.frozen)


def _machine(options: TrainOptions, kept: dict[str, Any] | None, view: Listener) -> Machine:
    """A run stays on the backend that it was begun on."""
    if kept:
        os.environ["KERAS_BACKEND"] = kept["backend"]
    backend = kept["backend"] if kept else options.backend
    machine = start_machine(backend, budget=options.budget, gpu=options.gpu, say=view.said)

    import keras

    keras.config.set_image_data_format("channels_last")  # as the pictures come
    set_seed(options.seed)
    return machine


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
