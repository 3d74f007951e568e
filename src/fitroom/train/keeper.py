"""Between the loop of training and a run folder: checkpoints on the way, and everything back when a run goes on."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fitroom.errors import InputError, OutOfMemoryError, RunInterrupted
from fitroom.events import Events
from fitroom.files.durable import load_weights
from fitroom.files.values import decode, encode
from fitroom.inputs import Source, randomness
from fitroom.inputs.prefetch import Prefetched
from fitroom.keras_model.fingerprint import current_versions, given_learning_rate, model_fingerprint
from fitroom.keras_model.loading.keras_file import damage_of
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe
from fitroom.runs.callbacks import CallbackStates
from fitroom.runs.capture import capture_state, restore_state
from fitroom.runs.checkpoint import Checkpoint, Found, read_latest
from fitroom.runs.folder import RunFolder
from fitroom.runs.interrupts import Interrupts
from fitroom.runs.place import RUN_FILE, check_fields
from fitroom.runs.writer import Cadence, CheckpointWriter
from fitroom.train.fresh_start import IN_THE_WAY
from fitroom.train.loop import Keeper, Position, as_floats
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
"""Of the names of arrays that were among the facts."""


class RunKeeper(Keeper):
    """The run in one folder, while this process trains it."""

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
    ) -> None:
        self.folder, self.interrupts, self.cadence, self.events = folder, interrupts, cadence, events
        self.model, self.source, self.transaction, self.callbacks = model, source, transaction, callbacks
        self.epochs = epochs
        self.states = CallbackStates(callbacks)
        self.writer = CheckpointWriter(folder.checkpoints, warn=lambda said: self._tell("checkpoint not written", said))
        found = read_latest(folder.checkpoints) if folder.progress != "new" else None
        if found is not None and found.note:
            self._tell("checkpoint damaged", found.note)
        self.checkpoint = found.checkpoint if found else None
        if found is not None:
            _check_facts(found)
        if self.is_finished:
            self._look_at_end(epochs)
        elif found is None and folder.progress == "unfinished" and folder.has_history:
            self._tell("checkpoint missing", f"no checkpoint is left in {folder.checkpoints}: training begins anew.")
        self._drawn: dict[str, Any] | None = None

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self.folder.progress == "finished"

    def _look_at_end(self, epochs: int) -> None:
        """Whether a finished run has all that it ended with. What is missing is made again from the checkpoints."""
        folder = self.folder
        assert folder.kept is not None
        damage = damage_of(folder.model_file)
        if self.checkpoint is None:
            has_model = f"{folder.model_file} cannot be used either: {damage}" if damage else "its model is whole"
            raise InputError(
                f"The run in {folder.path} is finished, but has no checkpoint left; {has_model}.",
                hint=f"another `run_dir` trains anew{'' if damage else f'; or load {folder.model_file} with Keras'}",
            )
        done, facts = folder.kept["epochs"], self.checkpoint.facts
        if facts["epoch"] < done and not facts["stopped"]:
            said = f"The run in {folder.path} was finished, but its last checkpoint is damaged or missing"
            if epochs < done:
                raise InputError(f"{said}.", hint=f"ask for all of its {done} epochs, and they are trained again")
            folder.reopen()
            self._tell("checkpoint missing", f"{said}: training resumes from epoch {facts['epoch'] + 1}.")
        elif damage:
            folder.reopen()
            self._tell("model damaged", f"{folder.model_file} is made again from the last checkpoint: {damage}.")

    def starts_at(self) -> Position | None:
        """Where the last checkpoint was taken."""
        if self.checkpoint is None:
            return None
        return Position(epoch=self.checkpoint.facts["epoch"], batch=self.checkpoint.facts["batch"])

    def begins(self) -> None:
        """Files of callbacks are appended to when the run goes on."""
        if self.checkpoint is not None:
            self.states.continue_files(self._facts()["callbacks"])

    def begun(self, position: Position) -> None:
        """What a new run begins with is kept at once: a kill in its first minute changes nothing either."""
        self.states.begun()
        if self.checkpoint is None:
            self._take(position, self.source.state(), {})
            self.writer.flush()
            if self.source.resume_note:
                self._tell("resuming", self.source.resume_note)
        else:
            is_over = position.epoch >= self.epochs
            words = "its end" if is_over else f"batch {position.batch + 1} of epoch {position.epoch + 1}"
            self._tell("resumed", f"going on with the run in {self.folder.path} at {words}.", epoch=position.epoch)

    def restore(self) -> None:
        """Everything as it was when the checkpoint was taken."""
        assert self.checkpoint is not None
        facts, arrays = self._facts(), self.checkpoint.arrays
        restore_state(self.model, arrays)
        for note in self.states.restore(facts["callbacks"], arrays):
            self._tell("callbacks", note)
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
        # Between epochs nothing is made ahead: what the source draws when it begins one is training's next draw, too.
        self._drawn = facts["random"] if facts["batch"] else None
        self.last_logs = facts.get("logs", {})  # older checkpoints have none

    def opened(self) -> None:
        """The source has brought back what it makes batches with; what training draws from is further on."""
        if self._drawn is not None:
            randomness.restore_frameworks(self._drawn)
            self._drawn = None

    def batch_done(self, position: Position, batch: Prefetched, logs: Mapping[str, Any]) -> None:
        """Take a checkpoint when one is due, or when a signal came."""
        if self.interrupts.signal_number is not None:
            self._take(position, batch.state, logs)
            self._stop()
        elif self.cadence.is_due() and not self.writer.is_busy:
            self._take(position, batch.state, logs)

    def epoch_done(self, position: Position) -> None:
        """Take a checkpoint, and write the history for people."""
        self._take(position, self.source.state(), {})
        self.folder.write_history(self.model.history.history)
        if self.interrupts.signal_number is not None:
            self._stop()

    def gave_up(self, error: OutOfMemoryError) -> None:
        """Memory ran out for good in this process. Where a fresh one may go on, it is to begin as the error says."""
        if error.fresh_start is None or not self.folder.ask_fresh_start(error.fresh_start):
            return
        error.fresh_start = replace(error.fresh_start, is_kept=True)
        size = error.fresh_start.micro_batch
        error.hint = (
            f"{IN_THE_WAY}: the same call again, in a fresh process, goes on from the last checkpoint with micro-batch "
            f"{size}"
        )

    def finish(self) -> None:
        """The model as a file that plain Keras loads; or from it, where the run was done before.

        It is as the user built it here, whatever precision the training had.
        """
        if self.is_finished:
            self._load_finished()
            return
        self.writer.flush()
        try:
            self.folder.write_history(self.model.history.history)
            self.folder.save_model(self.model)
            if not self.folder.mark("finished"):
                raise OSError(f"{RUN_FILE} could not be written")
        except OSError as error:
            self._tell(
                "model not written",
                f"{self.folder.model_file} could not be written: {error.strerror or error}. The model in memory is "
                "trained: save it, or make room and call the same again, which resumes from the last checkpoint.",
            )

    def _load_finished(self) -> None:
        """At the end an average of the weights may have taken their place."""
        try:
            load_weights(self.model, self.folder.model_file)
        except Exception as error:
            said = str(error).strip().split("\n")[0][:300]
            raise InputError(
                f"The weights of {self.folder.model_file} are not of this run: {said}",
                hint="move the file away: it is made again from the last checkpoint",
            ) from error

    def restore_finished(self) -> None:
        """The history and the state of a run that is done."""
        self.begins()
        self.callbacks.on_train_begin()
        self.restore()
        self.folder.write_history(self.model.history.history)  # the file may be torn; the checkpoint has it whole
        self._tell("finished", f"the run in {self.folder.path} is finished; asking for more epochs goes on with it.")

    def close(self) -> None:
        """Wait for the last checkpoint."""
        self.writer.close()

    def _take(self, position: Position, of_source: dict[str, Any], logs: Mapping[str, Any]) -> None:
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
        # The facts may hold arrays that somebody goes on writing to.
        arrays |= {f"{_PLAIN}/{number}": np.array(array) for number, array in enumerate(plain)}
        self.writer.submit(Checkpoint(arrays=arrays, facts=facts))
        self.cadence.wrote(held_up_seconds=time.monotonic() - started)

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
        number = self.interrupts.signal_number
        assert number is not None
        is_saved = self.writer.flush()
        self.folder.mark("interrupted")
        hint = f"the same call again goes on from here: run_dir={str(self.folder.path)!r}"
        saved = "all of it saved" if is_saved else "which could not be saved: the checkpoint before it is kept"
        self._tell("interrupted", f"stopped after a whole batch, {saved}; {hint}.")
        raise RunInterrupted("Training was stopped by a signal.", signal_number=number, hint=hint)

    def _tell(self, kind: str, said: str, **facts: Any) -> None:
        self.events.tell(kind, said, **facts)


@contextmanager
def kept_run(
    run_dir: str | Path, events: Events, *, every_seconds: float, every_batches: int | None
) -> Iterator["OpenedRun"]:
    """Take hold of a run folder for the time of a training."""
    with RunFolder.opened(run_dir) as folder, Interrupts() as interrupts:
        events.write = folder.log
        opened = OpenedRun(
            folder, interrupts, events, Cadence(every_batches=every_batches, every_seconds=every_seconds)
        )
        try:
            yield opened
        finally:
            if opened.keeper is not None:
                opened.keeper.close()


class OpenedRun:
    """A run folder before it is known what the run is: its seed decides in which order the data come."""

    def __init__(self, folder: RunFolder, interrupts: Interrupts, events: Events, cadence: Cadence) -> None:
        self.folder, self.interrupts, self.events, self.cadence = folder, interrupts, events, cadence
        self.keeper: RunKeeper | None = None

    @property
    def seed(self) -> int | None:
        """Of the run that is there."""
        if self.folder.kept is None:
            return None
        seed = self.folder.kept.get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise InputError(
                f"{self.folder.path / RUN_FILE} cannot be read: `seed` must be a whole number; it is {seed!r:.80}.",
                hint="bring it back from a backup, or give another `run_dir`",
            )
        return seed

    def plan_for(self, budget: Any) -> Plan | None:
        """The plan of the run that is there, if it was made for the same budget."""
        is_same = self.folder.kept is not None and self.folder.kept.get("budget") == budget
        return self.folder.read_plan() if is_same else None

    def begin(
        self,
        *,
        model: Any,
        source: Source,
        transaction: Transaction,
        callbacks: Any,
        epochs: int,
        seed: int,
        recipe: Recipe,
        plan: Plan | None,
        budget: Any,
    ) -> RunKeeper:
        """Say what the run is; refuses a folder of another one."""
        self.folder.begin(
            {
                "model": model_fingerprint(model),
                "data": source.fingerprint,
                "batch_size": source.batch_size,
                "backend": transaction.backend.name,
                "epochs": epochs,
                "seed": seed,
                "recipe": recipe.to_dict(),
                "budget": budget,
                "versions": current_versions(),
                "learning_rate": given_learning_rate(model),
            }
        )
        if plan is not None and self.folder.progress != "finished":
            self.folder.write_plan(plan)
        for note in self.folder.notes:
            self.events.tell("run folder", note)
        self.keeper = RunKeeper(
            self.folder,
            self.interrupts,
            self.cadence,
            self.events,
            model=model,
            source=source,
            transaction=transaction,
            callbacks=callbacks,
            epochs=epochs,
        )
        return self.keeper


def _check_facts(found: Found) -> None:
    """Refuse a checkpoint that is whole and yet not what a run writes."""
    try:
        check_fields(found.checkpoint.facts, _FACTS)
    except ValueError as error:
        raise InputError(
            f"The checkpoint {found.path} cannot be used: {error}.",
            hint="bring it back from a backup, or give another `run_dir`",
        ) from None


def _as_numbers(history: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """On JAX and TensorFlow Keras keeps the frameworks' scalars; a metric may give several, a callback a text."""
    return {name: [_as_number(value) for value in values] for name, values in history.items()}


def _as_number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        if isinstance(value, list):  # of a run that was finished
            return value
        return np.asarray(value).tolist() if hasattr(value, "__array__") else str(value)
