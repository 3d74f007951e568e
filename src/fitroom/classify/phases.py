"""The phases of a training: one, or the head alone and then all layers.

Both phases use the same run folder. At the end of the first its model becomes `head.keras`, its checkpoints are
removed, and the second starts from its weights. After a kill at any moment of this, doing it again completes it.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.classify.network import Network
from fitroom.errors import InputError
from fitroom.files.durable import load_weights, read_json, sync_folder
from fitroom.keras_model.freezing import freeze_first
from fitroom.keras_model.loading.keras_file import damage_of
from fitroom.runs.checkpoint import has_checkpoint
from fitroom.runs.layout import CHECKPOINTS, HEAD_FILE, HISTORY_FILE, LOCK_FILE, MODEL_FILE, RUN_FILE
from fitroom.runs.lock import take_lock
from fitroom.runs.place import not_written
from fitroom.runs.record import read_run


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A range of epochs in which the same layers are trained."""

    first_epoch: int
    epochs: int
    """The epoch at which it ends, counted from the start of the run."""

    frozen: bool
    """Whether only the head is trained."""

    frozen_layers: int | None = None
    """How many of the first layers are not trained in any phase."""

    is_last: bool = True
    after: "Phase | None" = None

    def apply(self, network: Network) -> None:
        """Set which layers are trainable. BatchNormalization stays frozen after the first phase."""
        network.model.trainable = True
        for layer in network.body:
            layer.trainable = not self.frozen
            for inner in layer._flatten_layers() if self.after is not None else ():
                if type(inner).__name__ == "BatchNormalization":
                    inner.trainable = False
        if self.frozen_layers:
            freeze_first(network.model, self.frozen_layers)


def build_phases(epochs: int, *, freeze: bool, unfreeze_after: int | None) -> list[Phase]:
    """The phases of a training: with `unfreeze_after`, two."""
    if unfreeze_after is None:
        return [Phase(first_epoch=0, epochs=epochs, frozen=freeze)]
    head = Phase(first_epoch=0, epochs=unfreeze_after, frozen=True, is_last=False)
    return [head, Phase(first_epoch=unfreeze_after, epochs=epochs, frozen=False, after=head)]


def is_over(folder: Path, phase: Phase) -> bool:
    """Whether the phase is done and the next one has begun."""
    return not phase.is_last and (folder / HEAD_FILE).exists()


def begin_phase(folder: Path, network: Network, phase: Phase) -> None:
    """Prepare the folder for a phase that follows another, and load that one's weights into the network.

    The folder's lock is held meanwhile, by the job or else taken here: another process may want to train there.
    """
    if phase.after is None:
        return
    lock = take_lock(folder / LOCK_FILE)
    try:
        record = read_run(folder / RUN_FILE)
        if record is not None and record["epochs"] == phase.after.epochs:
            _close_phase(folder, record)
        _load_head(folder, network)
    finally:
        lock.release()


def _close_phase(folder: Path, record: dict[str, Any]) -> None:
    """Rename the model of a finished phase to `head.keras`, and remove its checkpoints and run record."""
    head = folder / HEAD_FILE
    try:
        if not head.exists():
            if record["state"] != "finished" or damage_of(folder / MODEL_FILE):
                raise not_written(folder / MODEL_FILE, OSError("the model of the phase before is not saved"))
            os.replace(folder / MODEL_FILE, head)
            sync_folder(folder)
        with suppress(FileNotFoundError):
            shutil.rmtree(folder / CHECKPOINTS)  # one that stays could be taken for the next phase's
        (folder / RUN_FILE).unlink()
    except OSError as error:
        raise not_written(Path(error.filename or head), error) from error


def _load_head(folder: Path, network: Network) -> None:
    """Load the weights of the first phase. They may be damaged if the second phase has a checkpoint to resume from."""
    damage = damage_of(folder / HEAD_FILE)
    try:
        if damage is None:
            load_weights(network.model, folder / HEAD_FILE)
    except Exception as error:
        damage = str(error).strip().split("\n")[0][:300]
    if damage is not None and not has_checkpoint(folder / CHECKPOINTS):
        raise InputError(
            f"{folder / HEAD_FILE}, the weights that the second phase starts from, cannot be used: {damage}.",
            hint="restore it from a backup, or start a new run with another --run-dir",
        )


def read_earlier_history(folder: Path, phase: Phase) -> dict[str, list[Any]]:
    """The metrics of the epochs before a phase, by name."""
    if phase.after is None:
        return {}
    try:
        history = read_json(folder / HISTORY_FILE)
        return {str(name): list(values)[: phase.first_epoch] for name, values in history.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
