"""The hooks of the training loop for checkpoints: none, or those that write a run folder and resume from it."""

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fitroom.distribution.current import current_distribution
from fitroom.errors import InputError, OutOfMemoryError, RunInterrupted
from fitroom.events import ALL_SAVED, EventKind, Events
from fitroom.files.durable import load_weights
from fitroom.files.field_types import check_fields
from fitroom.files.values import decode, encode
from fitroom.inputs import Source, randomness
from fitroom.inputs.prefetch import PrefetchedBatch
from fitroom.keras_model.loading.keras_file import damage_of
from fitroom.runs.callbacks import CallbackStates
from fitroom.runs.capture import capture_state, restore_state
from fitroom.runs.checkpoint import Checkpoint, Found, read_latest
from fitroom.runs.folder import RunFolder
from fitroom.runs.interrupts import Interrupts
from fitroom.runs.layout import RUN_FILE
from fitroom.runs.writer import Cadence, CheckpointWriter
from fitroom.train.fresh_start import IN_THE_WAY
from fitroom.train.keras_logs import as_floats
from fitroom.train.transaction import Transaction

_FACTS: dict[str, Any] = {
    "epoch": int,
    "batch": int,
    "callbacks": dict,
    "history": dict,
    "sizing": dict,
    "out_of_memory": int,
    "stopped": bool,
    "random": dict,
    "source": dict,
}
_PLAIN = "plain"
"""The prefix of the names of arrays that were among the facts."""


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a run is: the epoch and the number in it of the next batch to train, both from 0."""

    epoch: int
    batch: int


class Checkpointer:
    """The hooks that the training loop calls. These do nothing; `RunCheckpointer` writes checkpoints.

    In the order of a training: `start_position`, `before_train_begin`, Keras's `on_train_begin`, `after_train_begin`,
    `restore` (only to resume), then for each epoch `after_open`, `after_batch` and `after_epoch`.
    """

    records = False
    """Whether it needs the state of the source after each batch."""

    last_logs: Mapping[str, Any] = MappingProxyType({})
    """The logs of the last batch that an unfinished run had trained in its epoch."""

    def start_position(self) -> Position | None:
        """How far an unfinished run was, or None where there is none."""
        return None

    def before_train_begin(self) -> None:
        """Called before `on_train_begin` of the callbacks."""

    def after_train_begin(self, position: Position) -> None:
        """Called after `on_train_begin` of the callbacks; `position` is that of the first batch."""

    def restore(self) -> None:
        """Restore the state of the unfinished run: model, callbacks, random generators, source."""

    def after_open(self) -> None:
        """Called after the source was opened for an epoch, before its first batch is made."""

    def after_batch(self, position: Position, batch: PrefetchedBatch, logs: Mapping[str, Any]) -> None:
        """Called after each batch and its `on_train_batch_end`; `position` is that of the next batch."""

    def after_epoch(self, position: Position) -> None:
        """Called after an epoch, its validation and `on_epoch_end` of the callbacks."""

    def on_peer_lost(self) -> None:
        """Called when another process of the training is gone, which ends it."""

    def on_out_of_memory(self, error: OutOfMemoryError) -> None:
        """Called with the error that ends training. May change its hint: a fresh process may be able to resume."""


class RunCheckpointer(Checkpointer):
    """Writes checkpoints of a training into its run folder, and resumes the run from the last one."""

    records = True

    def __init__(
        self,
        folder: RunFolder,
        interrupts: Interrupts,
        cadence: Cadence,
        events: Events,
        *,
        model: Any,
        source: Source,
        transaction: Transaction,
        callbacks: Any,
        epochs: int,
        follows: Path | None = None,
    ) -> None:
        """`follows` is the folder of the run where another process writes it: this one writes no checkpoints."""
        self.follows = follows
        self._latest: tuple[Position, dict[str, Any], Mapping[str, Any]] | None = None
        """What a checkpoint of the last batch would be made of, where other processes may be lost."""
        self.folder, self.interrupts, self.cadence, self.events = folder, interrupts, cadence, events
        self.model, self.source, self.transaction, self.callbacks = model, source, transaction, callbacks
        self.epochs = epochs
        self.states = CallbackStates(callbacks)
        self.writer = CheckpointWriter(
            folder.checkpoints, warn=lambda said: self._tell(EventKind.CHECKPOINT_NOT_WRITTEN, said)
        )
        found = read_latest(folder.checkpoints) if folder.progress != "new" else None
        if found is not None and found.note:
            self._tell(EventKind.CHECKPOINT_DAMAGED, found.note)
        self.checkpoint = found.checkpoint if found else None
        if found is not None:
            _check_facts(found)
        if self.is_finished:
            self._check_finished(epochs)
        elif found is None and folder.progress == "unfinished" and folder.has_history:
            self._tell(
                EventKind.CHECKPOINT_MISSING,
                f"no checkpoint is left in {folder.checkpoints}: training starts anew.",
            )
        self._drawn: dict[str, Any] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self.folder.progress == "finished"

    def _check_finished(self, epochs: int) -> None:
        """Check that a finished run has its model and last checkpoint; reopen it where one is damaged or missing."""
        folder = self.folder
        assert folder.record is not None
        damage = damage_of(folder.model_file)
        if self.checkpoint is None:
            has_model = f"{folder.model_file} cannot be used either: {damage}" if damage else "its model is whole"
            raise InputError(
                f"The run in {folder.path} is finished, but has no checkpoint left; {has_model}.",
                hint=f"another `run_dir` trains anew{'' if damage else f'; or load {folder.model_file} with Keras'}",
            )
        done, facts = folder.record["epochs"], self.checkpoint.facts
        if facts["epoch"] < done and not facts["stopped"]:
            said = f"The run in {folder.path} was finished, but its last checkpoint is damaged or missing"
            if epochs < done:
                raise InputError(f"{said}.", hint=f"ask for all of its {done} epochs, and they are trained again")
            folder.reopen()
            self._tell(EventKind.CHECKPOINT_MISSING, f"{said}: training resumes from epoch {facts['epoch'] + 1}.")
        elif damage:
            folder.reopen()
            self._tell(
                EventKind.MODEL_DAMAGED, f"{folder.model_file} is made again from the last checkpoint: {damage}."
            )

    def start_position(self) -> Position | None:
        """The position of the last checkpoint."""
        if self.checkpoint is None:
            return None
        return Position(epoch=self.checkpoint.facts["epoch"], batch=self.checkpoint.facts["batch"])

    def before_train_begin(self) -> None:
        """Have callbacks append to their files where the run is resumed."""
        if self.checkpoint is not None:
            self.states.continue_files(self._facts()["callbacks"])

    def after_train_begin(self, position: Position) -> None:
        """Write the first checkpoint of a new run, so that a kill in its first minute loses nothing either."""
        self.states.record_start()
        if self.checkpoint is None:
            self._take(position, self.source.state(), {})
            self.writer.flush()
            if self.source.resume_note:
                self._tell(EventKind.RESUMING, self.source.resume_note)
        else:
            is_over = position.epoch >= self.epochs
            words = "its end" if is_over else f"batch {position.batch + 1} of epoch {position.epoch + 1}"
            self._tell(EventKind.RESUMED, f"resuming the run in {self.folder.path} at {words}.", epoch=position.epoch)

    def restore(self) -> None:
        """Restore model, callbacks, history, sizes, random generators and source from the checkpoint."""
        assert self.checkpoint is not None
        facts, arrays = self._facts(), self.checkpoint.arrays
        restore_state(self.model, arrays)
        for note in self.states.restore(facts["callbacks"], arrays):
            self._tell(EventKind.CALLBACKS, note)
        history = self.model.history
        history.epoch, history.history = list(facts["history"]["epoch"]), dict(facts["history"]["history"])
        self.transaction.training.restore(facts["sizing"]["training"])
        self.transaction.testing.restore(facts["sizing"]["testing"])
        self.transaction.training.most = self.folder.fresh_starts.get("training")
        self.transaction.testing.most = self.folder.fresh_starts.get("validation")
        self.transaction.out_of_memory_count = facts["out_of_memory"]
        self.model.stop_training = facts["stopped"]
        randomness.restore(facts["random"])
        self.source.restore(facts["source"])
        # Between epochs nothing is prefetched: what the source draws when it begins one is training's next draw, too.
        self._drawn = facts["random"] if facts["batch"] else None
        self.last_logs = facts.get("logs", {})  # older checkpoints have none

    def after_open(self) -> None:
        """Restore the random generators that training draws from: opening the source has set them back."""
        if self._drawn is not None:
            randomness.restore_frameworks(self._drawn)
            self._drawn = None

    def after_batch(self, position: Position, batch: PrefetchedBatch, logs: Mapping[str, Any]) -> None:
        """Take a checkpoint when one is due; after a signal take one and stop."""
        if _has_peers():
            self._latest = (position, batch.state, dict(logs))
        if self._signal_number() is not None:
            self._take(position, batch.state, logs)
            self._stop()
        elif self.cadence.is_due() and not self.writer.is_busy:
            self._take(position, batch.state, logs)

    def after_epoch(self, position: Position) -> None:
        """Take a checkpoint and write the history file."""
        self._take(position, self.source.state(), {})
        if _has_peers():
            self._latest = (position, self.source.state(), {})
        self.folder.write_history(self.model.history.history)
        if self._signal_number() is not None:
            self._stop()

    def on_peer_lost(self) -> None:
        """Write a checkpoint of the last whole batch, unless another process that is left does."""
        distribution = current_distribution()
        if self._latest is None or distribution is None or not distribution.claim("last checkpoint"):
            return
        if self.follows is not None:
            self.writer = CheckpointWriter(self.follows / self.folder.checkpoints.name, warn=lambda said: None)
        self._take(*self._latest, as_follower=True)
        if self.writer.flush():
            where = self.follows or self.folder.path
            self._tell(EventKind.INTERRUPTED, f"a process is gone; {ALL_SAVED} in {where}.")

    def on_out_of_memory(self, error: OutOfMemoryError) -> None:
        """Record the micro-batch that a fresh process is to start with, where the error names one."""
        if error.fresh_start is None or not self.folder.ask_fresh_start(error.fresh_start):
            return
        error.fresh_start = replace(error.fresh_start, is_kept=True)
        size = error.fresh_start.micro_batch
        error.hint = (
            f"{IN_THE_WAY}: the same call again, in a fresh process, resumes from the last checkpoint with micro-batch "
            f"{size}"
        )

    def finish(self) -> None:
        """Save the model as a file that plain Keras loads; load it, where the run was finished before.

        The model is in its own precision here, whatever precision the training had.
        """
        if self.is_finished:
            self._load_finished()
            return
        if self.follows is not None:
            return
        self.writer.flush()
        try:
            self.folder.write_history(self.model.history.history)
            self.folder.save_model(self.model)
            if not self.folder.mark("finished"):
                raise OSError(f"{RUN_FILE} could not be written")
        except OSError as error:
            self._tell(
                EventKind.MODEL_NOT_WRITTEN,
                f"{self.folder.model_file} could not be written: {error.strerror or error}. The model in memory is "
                "trained: save it, or make room and call the same again, which resumes from the last checkpoint.",
            )

    def _load_finished(self) -> None:
        """Load the saved weights: an average of the weights may have replaced them when training ended."""
        try:
            load_weights(self.model, self.folder.model_file)
        except Exception as error:
            said = str(error).strip().split("\n")[0][:300]
            raise InputError(
                f"The weights of {self.folder.model_file} are not of this run: {said}",
                hint="move the file away: it is made again from the last checkpoint",
            ) from error

    def restore_finished(self) -> None:
        """Restore the history and the state of a run that needs no more training."""
        self.before_train_begin()
        self.callbacks.on_train_begin()
        self.restore()
        self.folder.write_history(self.model.history.history)  # the file may be torn; the checkpoint has it whole
        self._tell(EventKind.FINISHED, f"the run in {self.folder.path} is finished; asking for more epochs resumes it.")

    def close(self) -> None:
        """Wait for the last checkpoint."""
        self.writer.close()

    def _signal_number(self) -> int | None:
        """The signal after which to stop here. Of several processes all stop after the same batch: they vote."""
        own, distribution = self.interrupts.signal_number, current_distribution()
        if distribution is None or distribution.num_processes == 1:
            return own
        distribution.stop.requested = own is not None
        return (own or int(signal.SIGTERM)) if distribution.stop.agreed else None

    def _take(
        self,
        position: Position,
        of_source: dict[str, Any],
        logs: Mapping[str, Any],
        *,
        as_follower: bool = False,
    ) -> None:
        if self.follows is not None and not as_follower:
            return
        started = time.monotonic()
        of_callbacks, arrays = self.states.capture()
        history = self.model.history
        plain: list[Any] = []
        facts = encode(
            {
                "epoch": position.epoch,
                "batch": position.batch,
                "logs": {name: _as_number(value) for name, value in as_floats(dict(logs)).items()},
                "callbacks": of_callbacks,
                "history": {"epoch": list(history.epoch), "history": _as_numbers(history.history)},
                "sizing": {
                    "training": self.transaction.training.to_dict(),
                    "testing": self.transaction.testing.to_dict(),
                },
                "out_of_memory": self.transaction.out_of_memory_count,
                "stopped": bool(self.model.stop_training),
                "random": randomness.capture(),
                "source": of_source,
            },
            plain,
        )
        arrays |= capture_state(self.model)
        # The facts may hold arrays that their owner keeps writing to.
        arrays |= {f"{_PLAIN}/{number}": np.array(array) for number, array in enumerate(plain)}
        self.writer.submit(Checkpoint(arrays=arrays, facts=facts))
        self.cadence.note_written(held_up_seconds=time.monotonic() - started)

    def _facts(self) -> dict[str, Any]:
        assert self.checkpoint is not None
        start = f"{_PLAIN}/"
        arrays = {
            int(name.removeprefix(start)): array
            for name, array in self.checkpoint.arrays.items()
            if name.startswith(start)
        }
        facts: dict[str, Any] = decode(self.checkpoint.facts, arrays)
        return facts

    def _stop(self) -> None:
        number = self._signal_number()
        assert number is not None
        is_saved = self.writer.flush()
        self.folder.mark("interrupted")
        hint = f"the same call again resumes from here: run_dir={str(self.folder.path)!r}"
        saved = "all of it saved" if is_saved else "which could not be saved: the checkpoint before it is kept"
        self._tell(EventKind.INTERRUPTED, f"stopped after a whole batch, {saved}; {hint}.")
        raise RunInterrupted("Training was stopped by a signal.", signal_number=number, hint=hint)

    def _tell(self, kind: str, said: str, **facts: Any) -> None:
        self.events.tell(kind, said, **facts)


def _has_peers() -> bool:
    distribution = current_distribution()
    return distribution is not None and distribution.num_processes > 1


def _check_facts(found: Found) -> None:
    """Refuse a checkpoint whose checksums match, but which lacks fields that a run writes."""
    try:
        check_fields(found.checkpoint.facts, _FACTS)
    except ValueError as error:
        raise InputError(
            f"The checkpoint {found.path} cannot be used: {error}.",
            hint="restore it from a backup, or give another `run_dir`",
        ) from None


def _as_numbers(history: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """A history as JSON: on JAX and TensorFlow it has scalars of the framework, and a metric may give a list."""
    return {name: [_as_number(value) for value in values] for name, values in history.items()}


def _as_number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        if isinstance(value, list):  # of a run that was finished
            return value
        return np.asarray(value).tolist() if hasattr(value, "__array__") else str(value)
