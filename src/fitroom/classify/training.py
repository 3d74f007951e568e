"""The stretches of a training, one after the other, each by `fitroom.fit` in the same run folder."""

from contextlib import suppress
from typing import Any

import keras  # noqa: TID253 - whoever imports this trains

from fitroom.classify.best import BestEpoch
from fitroom.classify.compiling import compile_for
from fitroom.classify.phases import Phase, earlier_history, is_over, turn
from fitroom.classify.preparation import Prepared
from fitroom.classify.seed import set_layer_seeds, set_seed
from fitroom.errors import MissingExtraError
from fitroom.events import listening
from fitroom.runs.layout import TENSORBOARD
from fitroom.train.fit import fit
from fitroom.watch.listener import Listener
from fitroom.watch.recorder import Recorder
from fitroom.watch.tensorboard import TensorBoardLog


def train(prepared: Prepared, view: Listener) -> int | None:
    """Train to the end, from wherever the run is. The epoch, from 0, whose weights stay; None: the last one's."""
    best = BestEpoch(prepared.options.early_stopping)
    for phase in prepared.phases:
        if is_over(prepared.folder, phase):
            continue
        compile_for(phase, prepared.options, prepared.network, prepared.pictures)
        turn(prepared.folder, prepared.network, phase)
        set_seed(prepared.options.seed)
        if phase.after is not None:
            set_layer_seeds(prepared.network.model, prepared.options.seed)
        _fit(prepared, phase, best, view)
    return best.epoch


def _fit(prepared: Prepared, phase: Phase, best: BestEpoch, view: Listener) -> None:
    options, pictures, choice = prepared.options, prepared.pictures, prepared.choice
    plan = choice.plan_for(prepared.network.model)

    def heard(event: dict[str, Any]) -> None:
        # The command line says how to resume; and the plan has said what its micro-batch changes.
        is_planned = event["kind"] == "batch statistics" and plan and event.get("micro_batch") == plan.micro_batch
        if event["kind"] != "interrupted" and not is_planned:
            view.event(event)

    with listening(heard):
        fit(
            prepared.network.model,
            pictures.train,
            epochs=phase.epochs,
            initial_epoch=phase.first_epoch,
            verbose=0,
            callbacks=_callbacks(prepared, phase, best, view),
            validation_data=pictures.validation,
            class_weight=pictures.class_weight() if options.class_weight else None,
            recipe=None if plan else choice.recipe,
            plan=plan,
            run_dir=prepared.folder,
            seed=options.seed,
        )


def _callbacks(prepared: Prepared, phase: Phase, best: BestEpoch, view: Listener) -> list[Any]:
    machine = prepared.machine
    recorder = Recorder(
        prepared.folder,
        images_per_batch=prepared.options.batch_size,
        backend=machine.backend,
        limit_bytes=machine.budget.bytes if machine.budget else None,
        listeners=[view, *_tensorboard(prepared)],
    )
    following = [_follow(recorder, prepared, phase)] if phase.after is not None else []
    return [recorder, *([best] if phase.is_last else []), *following]


def _follow(recorder: Recorder, prepared: Prepared, phase: Phase) -> Any:
    """Have what is recorded go on from the stretch before."""
    history = earlier_history(prepared.folder, phase)
    batches = -(-sum(prepared.pictures.counts["train"].values()) // prepared.options.batch_size)
    recorder.set_state(recorder.get_state() | {"updates": batches * phase.first_epoch})

    def begin(logs: Any = None) -> None:
        prepared.network.model.history.history = {name: list(values) for name, values in history.items()}

    return keras.callbacks.LambdaCallback(on_train_begin=begin)


def _tensorboard(prepared: Prepared) -> list[Listener]:
    """Where the package is installed."""
    with suppress(MissingExtraError):
        return [TensorBoardLog(prepared.folder / TENSORBOARD)]
    return []
