"""All that is settled before the first batch: device, pictures, recipe, network; said aloud and written."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitroom.classify import records
from fitroom.classify.choice import Choice, is_asked_again
from fitroom.classify.choosing import Chooser
from fitroom.classify.compiling import compile_for, learning_rate
from fitroom.classify.description import job_of, network_words
from fitroom.classify.machine import Machine, start_machine
from fitroom.classify.network import Network, build_network, picture_size
from fitroom.classify.options import TrainOptions
from fitroom.classify.phases import Phase, phases_of
from fitroom.classify.pictures import load_pictures
from fitroom.classify.precision import Precision
from fitroom.classify.seed import set_seed
from fitroom.keras_model.loading.source import ModelSource
from fitroom.keras_model.optimizers import optimizer_class
from fitroom.watch.listener import Listener


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A training that can begin."""

    options: TrainOptions
    """As they were asked for, but for the optimizer, which may be the planner's."""

    machine: Machine
    network: Network
    pictures: Any
    phases: tuple[Phase, ...]
    choice: Choice
    job: dict[str, Any]
    """As `job.json` has it."""

    @property
    def folder(self) -> Path:
        """Where the run is."""
        return Path(self.options.run_dir)


def prepare(options: TrainOptions, command: Sequence[str], kept: dict[str, Any] | None, view: Listener) -> Prepared:
    """Settle everything, or take it from what was kept of a run that goes on, and write `job.json`."""
    machine = _machine(options, kept, view)
    optimizer_class(options.optimizer)  # names that only Keras knows; before the pictures are looked at
    source = _source(options, kept)
    own_size = source.image_size or 0
    pictures = load_pictures(options, own_size, view.said)
    phases = _phases(options, kept.get("frozen_layers") if kept else None)
    goes_on = kept is not None and is_asked_again(options, kept)
    if kept is not None and goes_on:
        choice = Choice.of_job(kept)
    else:
        chooser = Chooser(
            options=_settled(options, kept),
            machine=machine,
            source=source,
            pictures=pictures,
            phase=phases[-1],
            say=view.said,
        )
        choice = chooser.choose()
        machine.backend.release()  # what the network had that was planned with
        if kept is not None:
            choice = replace(choice, precision=Precision(**kept["precision"]))
        for line in choice.lines(options, own_size):
            view.said(line)
    if choice.image_size != own_size:
        pictures = load_pictures(options, choice.image_size, lambda text: None)
    phases = _phases(options, choice.frozen_layers)
    network = _network(options, choice, source, pictures)
    asked, options = options, replace(options, optimizer=choice.optimizer)
    rate = learning_rate(phases[-1], options, network)
    for line in (network_words(network, options, rate), *network.notes):
        view.said(line)
    compile_for(phases[-1], options, network, pictures)
    job = job_of(asked, command, machine, network, pictures, choice, rate)
    job |= {name: kept[name] for name in ("command", "begun")} if kept else {}
    folder = Path(options.run_dir)
    records.write_job(folder, job)
    if not goes_on:
        records.write_estimate(folder, choice.plan.estimate if choice.plan else None)
    records.write_skipped(folder, pictures.skipped)
    return Prepared(
        options=options,
        machine=machine,
        network=network,
        pictures=pictures,
        phases=tuple(phases),
        choice=choice,
        job=job,
    )


def _phases(options: TrainOptions, frozen_layers: int | None) -> list[Phase]:
    phases = phases_of(options.epochs, freeze=options.freezes, unfreeze_after=options.unfreeze_after)
    return [replace(phase, frozen_layers=frozen_layers) for phase in phases]


def _machine(options: TrainOptions, kept: dict[str, Any] | None, view: Listener) -> Machine:
    """A run stays on the backend that it was begun on."""
    if kept:
        os.environ["KERAS_BACKEND"] = kept["backend"]
    backend = kept["backend"] if kept else options.backend
    machine = start_machine(backend, budget=options.budget, gpu=options.gpu, say=view.said)

    import keras

    keras.config.set_image_data_format("channels_last")  # as the pictures come
    return machine


def _source(options: TrainOptions, kept: dict[str, Any] | None) -> ModelSource:
    """The model for pictures of the size that was asked for, or of its own."""
    size = kept["image_size"] if kept else options.pixels
    source = ModelSource(text=options.model, image_size=size, unsafe=options.unsafe)
    return replace(source, image_size=picture_size(source))


def _settled(options: TrainOptions, kept: dict[str, Any] | None) -> TrainOptions:
    """What a run that goes on with other memory has learnt in is not to be chosen again."""
    if kept is None:
        return options
    return replace(
        options,
        precision=kept["precision"]["policy"],
        image_size=kept["image_size"],
        optimizer=kept["optimizer"],
        allow=(),
    )


def _network(options: TrainOptions, choice: Choice, source: ModelSource, pictures: Any) -> Network:
    """The one to train, with the same values whether or not another one was planned with."""
    set_seed(options.seed)
    return build_network(
        replace(source, image_size=choice.image_size, precision=choice.precision.policy),
        num_classes=len(pictures.classes),
        weights=options.weights,
    )
