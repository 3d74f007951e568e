"""A training in one stretch or two: the head alone, then all of it.

Both go on in the same run folder. When the first is over its model becomes `head.keras`, its checkpoints go, and the
second begins with its weights; a kill at any moment of that is made good by doing it again.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.classify.network import Network
from fitroom.classify.records import MODEL_FILE
from fitroom.errors import InputError
from fitroom.files.durable import load_weights, read_json, sync_folder
from fitroom.keras_model.freezing import freeze_first
from fitroom.keras_model.loading.keras_file import damage_of
from fitroom.runs.checkpoint import has_checkpoint
from fitroom.runs.lock import take_lock
from fitroom.runs.place import LOCK_FILE, RUN_FILE, not_written, read_run

_HEAD = "head.keras"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One stretch of a training."""

    first_epoch: int
    epochs: int
    """Where it ends, counted from the run's beginning."""

    frozen: bool
    """Whether the head is trained alone."""

    frozen_layers: int | None = None
    """How many of the first layers are not trained in any case."""

    is_last: bool = True
    after: "Phase | None" = None

    def apply(self, network: Network) -> None:
        """Say which layers are trained. What has batch statistics keeps them from the first stretch on."""
        network.model.trainable = True
        for layer in network.body:
            layer.trainable = not self.frozen
            for inner in layer._flatten_layers() if self.after is not None else ():
                if type(inner).__name__ == "BatchNormalization":
                    inner.trainable = False
        if self.frozen_layers:
            freeze_first(network.model, self.frozen_layers)


def phases_of(epochs: int, *, freeze: bool, unfreeze_after: int | None) -> list[Phase]:
    """The stretches of a training."""
    if unfreeze_after is None:
        return [Phase(first_epoch=0, epochs=epochs, frozen=freeze)]
    head = Phase(first_epoch=0, epochs=unfreeze_after, frozen=True, is_last=False)
    return [head, Phase(first_epoch=unfreeze_after, epochs=epochs, frozen=False, after=head)]


def is_over(folder: Path, phase: Phase) -> bool:
    """Whether the next stretch has begun."""
    return not phase.is_last and (folder / _HEAD).exists()


def turn(folder: Path, network: Network, phase: Phase) -> None:
    """Make the folder ready for a stretch that follows another, and give the network that one's weights.

    The folder's lock is held here, by the job that this is part of or else taken: another process may train there.
    """
    if phase.after is None:
        return
    lock = take_lock(folder / LOCK_FILE)
    try:
        kept = read_run(folder / RUN_FILE)
        if kept is not None and kept["epochs"] == phase.after.epochs:
            _close_stretch(folder, kept)
        _load_head(folder, network)
    finally:
        lock.release()


def _close_stretch(folder: Path, kept: dict[str, Any]) -> None:
    """The model of a finished stretch becomes `head.keras`; what else is of that stretch goes."""
    head = folder / _HEAD
    try:
        if not head.exists():
            if kept["state"] != "finished" or damage_of(folder / MODEL_FILE):
                raise not_written(folder / MODEL_FILE, OSError("the stretch before is not saved"))
            os.replace(folder / MODEL_FILE, head)
            sync_folder(folder)
        with suppress(FileNotFoundError):
            shutil.rmtree(folder / "checkpoints")  # one that stays could be taken for the next stretch's
        (folder / RUN_FILE).unlink()
    except OSError as error:
        raise not_written(Path(error.filename or head), error) from error


def _load_head(folder: Path, network: Network) -> None:
    """The weights of the first stretch; they do not matter where the second has a checkpoint."""
    damage = damage_of(folder / _HEAD)
    try:
        if damage is None:
            load_weights(network.model, folder / _HEAD)
    except Exception as error:
        damage = str(error).strip().split("\n")[0][:300]
    if damage is not None and not has_checkpoint(folder / "checkpoints"):
        raise InputError(
            f"{folder / _HEAD}, with which all layers begin to train, cannot be used: {damage}.",
            hint="bring it back from a backup, or begin anew in another --run-dir",
        )


def earlier_history(folder: Path, phase: Phase) -> dict[str, list[Any]]:
    """The metrics of the epochs before a stretch."""
    if phase.after is None:
        return {}
    try:
        history = read_json(folder / "history.json")
        return {str(name): list(values)[: phase.first_epoch] for name, values in history.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}
