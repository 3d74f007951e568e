"""The phases of a training, each by `fitroom.fit` in the same run folder, and which epoch's weights are kept."""

from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import keras  # noqa: TID253 - imported once the backend is started

from fitroom.activity import activity
from fitroom.classify.compiling import compile_for
from fitroom.classify.phases import Phase, begin_phase, is_over, read_earlier_history
from fitroom.classify.preparation import PreparedRun
from fitroom.classify.seed import set_layer_seeds, set_seed
from fitroom.errors import MissingExtraError
from fitroom.events import EventKind, listening
from fitroom.runs.layout import TENSORBOARD
from fitroom.train.devices import devices
from fitroom.train.fit import fit
from fitroom.watching.listener import Listener
from fitroom.watching.recorder import Recorder
from fitroom.watching.tensorboard import TensorBoardLog


class BestEpoch(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the weights of the epoch with the highest validation accuracy; among equals, with the lowest loss.

    Its state is part of every checkpoint, so that a resumed run ends with the same weights.
    """

    def __init__(self, patience: int | None = None) -> None:
        super().__init__()
        self.patience = patience
        self.epoch: int | None = None
        """The best epoch so far, counted from 0."""
        self._score: tuple[float, float] | None = None
        self._weights: list[Any] | None = None
        self._worse = 0

    def get_state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"epoch": self.epoch, "score": self._score, "weights": self._weights, "worse": self._worse}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.epoch, self._weights, self._worse = state["epoch"], state["weights"], state["worse"]
        self._score = tuple(state["score"]) if state["score"] is not None else None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Compare the epoch with the best one, and stop training after `patience` epochs without a better one."""
        logs = logs or {}
        if "val_accuracy" not in logs:
            return
        score = (float(logs["val_accuracy"]), -float(logs["val_loss"]))
        if self._score is None or score > self._score:
            self.epoch, self._score, self._worse = epoch, score, 0
            self._weights = self.model.get_weights()
            return
        self._worse += 1
        if self.patience is not None and self._worse >= self.patience:
            self.model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Give the model the weights of the best epoch."""
        if self._weights is not None:
            self.model.set_weights(self._weights)


def train(prepared: PreparedRun, view: Listener) -> int | None:
    """Train to the end, resuming where the run is. Returns the epoch, from 0, whose weights are kept; None: last."""
    best = BestEpoch(prepared.options.early_stopping)
    for phase in prepared.phases:
        if is_over(prepared.folder, phase):
            continue
        compile_for(phase, prepared.options, prepared.network, prepared.images)
        begin_phase(prepared.folder, prepared.network, phase)
        set_seed(prepared.options.seed)
        if phase.after is not None:
            set_layer_seeds(prepared.network.model, prepared.options.seed)
        with activity("the first batch"):
            _fit(prepared, phase, best, view)
    return best.epoch


def _fit(prepared: PreparedRun, phase: Phase, best: BestEpoch, view: Listener) -> None:
    options, images, choice = prepared.options, prepared.images, prepared.choice
    plan = choice.plan_for(prepared.network.model)

    def pass_on(event: dict[str, Any]) -> None:
        # The command line itself says how to resume, and the plan has said what its micro-batch changes.
        is_planned = (
            event["kind"] == EventKind.BATCH_STATISTICS and plan and event.get("micro_batch") == plan.micro_batch
        )
        if event["kind"] != EventKind.INTERRUPTED and not is_planned:
            view.event(event)

    with listening(pass_on), _use_devices(options.devices):
        fit(
            prepared.network.model,
            images.train,
            epochs=phase.epochs,
            initial_epoch=phase.first_epoch,
            verbose=0,
            callbacks=_callbacks(prepared, phase, best, view),
            validation_data=images.validation,
            class_weight=images.class_weight() if options.class_weight else None,
            recipe=None if plan else choice.recipe,
            plan=plan,
            run_dir=prepared.folder,
            seed=options.seed,
        )


def _use_devices(selection: str | None) -> AbstractContextManager[Any]:
    return nullcontext() if selection is None else devices(selection)


def _callbacks(prepared: PreparedRun, phase: Phase, best: BestEpoch, view: Listener) -> list[Any]:
    machine = prepared.machine
    recorder = Recorder(
        prepared.folder,
        images_per_batch=prepared.options.batch_size,
        backend=machine.backend,
        limit_bytes=machine.budget.bytes if machine.budget else None,
        listeners=[view, *_tensorboard(prepared)],
    )
    continuing = [_continue_records(recorder, prepared, phase)] if phase.after is not None else []
    return [recorder, *([best] if phase.is_last else []), *continuing]


def _continue_records(recorder: Recorder, prepared: PreparedRun, phase: Phase) -> Any:
    """A callback with which history and update count continue from the phase before."""
    history = read_earlier_history(prepared.folder, phase)
    batches = -(-sum(prepared.images.counts["train"].values()) // prepared.options.batch_size)
    recorder.set_state(recorder.get_state() | {"updates": batches * phase.first_epoch})

    def begin(logs: Any = None) -> None:
        prepared.network.model.history.history = {name: list(values) for name, values in history.items()}

    return keras.callbacks.LambdaCallback(on_train_begin=begin)


def _tensorboard(prepared: PreparedRun) -> list[Listener]:
    """A log for TensorBoard, where the package is installed."""
    with suppress(MissingExtraError):
        return [TensorBoardLog(prepared.folder / TENSORBOARD)]
    return []
