"""A run folder opened for one training: from its lock to the checkpointer that writes into it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitroom.errors import FitroomError, InputError, message_of
from fitroom.events import EventKind, Events
from fitroom.inputs import Source
from fitroom.keras_model.fingerprint import current_versions, given_learning_rate, model_fingerprint
from fitroom.planning.result import Plan
from fitroom.recipe import Recipe
from fitroom.runs.folder import RunFolder
from fitroom.runs.interrupts import Interrupts
from fitroom.runs.layout import RUN_FILE
from fitroom.runs.writer import Cadence
from fitroom.train.checkpointer import RunCheckpointer
from fitroom.train.transaction import Transaction


@contextmanager
def open_run_folder(
    run_dir: str | Path, events: Events, cadence: Cadence, *, follows: Path | None = None
) -> Iterator["OpenRun"]:
    """Lock a run folder and handle signals for the time of a training.

    `follows` is the folder of the run where another process writes it, and `run_dir` this process's copy of it.
    """
    with RunFolder.acquire(run_dir) as folder, Interrupts() as interrupts:
        events.write = folder.log
        opened = OpenRun(folder, interrupts, events, cadence, follows=follows)
        try:
            yield opened
        except Exception as error:
            if opened.checkpointer is not None:  # before that, the folder may hold another run
                folder.log({"kind": EventKind.FAILED, "message": _describe(error), **events.where})
            raise
        finally:
            if opened.checkpointer is not None:
                opened.checkpointer.close()


class OpenRun:
    """A locked run folder whose run is not described yet: its seed is needed first, for the order of the data."""

    def __init__(
        self,
        folder: RunFolder,
        interrupts: Interrupts,
        events: Events,
        cadence: Cadence,
        *,
        follows: Path | None = None,
    ) -> None:
        self.follows = follows
        self.folder, self.interrupts, self.events, self.cadence = folder, interrupts, events, cadence
        self.checkpointer: RunCheckpointer | None = None

    @property
    def seed(self) -> int | None:
        """The seed of the run that the folder holds; None for a new one."""
        if self.folder.record is None:
            return None
        seed = self.folder.record.get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise InputError(
                f"{self.folder.path / RUN_FILE} cannot be read: `seed` must be a whole number; it is {seed!r:.80}.",
                hint="restore it from a backup, or give another `run_dir`",
            )
        return seed

    def plan_for(self, budget: Any) -> Plan | None:
        """The plan that the folder holds, if it was made for the same budget."""
        is_same = self.folder.record is not None and self.folder.record.get("budget") == budget
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
    ) -> RunCheckpointer:
        """Describe the run in the folder, and return its checkpointer. Raises InputError where it holds another run."""
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
            self.events.tell(EventKind.RUN_FOLDER, note)
        self.checkpointer = RunCheckpointer(
            self.folder,
            self.interrupts,
            self.cadence,
            self.events,
            model=model,
            source=source,
            transaction=transaction,
            callbacks=callbacks,
            epochs=epochs,
            follows=self.follows,
        )
        return self.checkpointer


def _describe(error: Exception) -> str:
    """Say in one sentence which error ended a run."""
    said = message_of(error).strip().partition("\n")[0][:300]
    if not isinstance(error, FitroomError):
        said = ": ".join(filter(None, (type(error).__name__, said)))
    return said if said.endswith(".") else f"{said}."
