"""A training in one stretch or two: the head alone, then all of it.

Both go on in the same run folder. When the first is over its model becomes `head.keras`, its checkpoints go, and the
second begins with its weights; a kill at any moment of that is made good by doing it again.
"""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.backends.keras_freezing import freeze_first
from fitroom.classify.network import Network
from fitroom.classify.records import MODEL_FILE
from fitroom.train.run.place import RUN_FILE, read_run

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
    """Make the folder ready for a stretch that follows another, and give the network that one's weights."""
    if phase.after is None:
        return
    kept = read_run(folder / RUN_FILE)
    if kept is not None and kept["epochs"] == phase.after.epochs:
        if not (folder / _HEAD).exists():
            os.replace(folder / MODEL_FILE, folder / _HEAD)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        (folder / RUN_FILE).unlink()
    network.model.load_weights(folder / _HEAD)


def earlier_history(folder: Path, phase: Phase) -> dict[str, list[Any]]:
    """The metrics of the epochs before a stretch."""
    if phase.after is None:
        return {}
    try:
        history: dict[str, list[Any]] = json.loads((folder / "history.json").read_text())
    except (OSError, ValueError):
        return {}
    return {name: values[: phase.first_epoch] for name, values in history.items()}
