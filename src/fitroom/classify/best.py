"""The best epoch so far: its weights are the ones that stay, and after too many worse ones training stops."""

from typing import Any

import keras  # noqa: TID253 - whoever imports this trains


class BestEpoch(keras.callbacks.Callback):  # type: ignore[misc]
    """Keeps the weights of the epoch with the highest accuracy in validation, of equals the one with the lowest loss.

    What it knows is part of every checkpoint, so that a run which goes on ends with the same weights.
    """

    def __init__(self, patience: int | None = None) -> None:
        super().__init__()
        self.patience = patience
        self.epoch: int | None = None
        """The best one, from 0."""
        self._score: tuple[float, float] | None = None
        self._weights: list[Any] | None = None
        self._worse = 0

    def get_state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"epoch": self.epoch, "score": self._score, "weights": self._weights, "worse": self._worse}

    def set_state(self, state: dict[str, Any]) -> None:
        """A run goes on."""
        self.epoch, self._weights, self._worse = state["epoch"], state["weights"], state["worse"]
        self._score = tuple(state["score"]) if state["score"] is not None else None

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Look whether it is the best."""
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
        """The best weights are the ones that stay."""
        if self._weights is not None:
            self.model.set_weights(self._weights)
