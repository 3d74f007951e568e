"""How far a training is and how much longer it will take, from its readings alone."""

from typing import Any

from fitroom.report.progress.words import get_memory_bytes

Reading = dict[str, Any]


class Progress:
    """Follows one training. None is what cannot be known yet.

    >>> progress = Progress()
    >>> totals = {"epochs": 2, "batches": 100, "pictures_per_batch": 32}
    >>> progress.read({"time": 60.0, "epoch": 0, "batch": 25, "pictures_per_second": 64.0} | totals)
    >>> progress.epoch_share, progress.share, progress.epoch_seconds_left, progress.seconds_left
    (0.25, 0.125, 37.5, 87.5)
    """

    def __init__(self) -> None:
        self.epochs: int | None = None
        """Of the whole training, where that is known better than readings tell: they are of one call of `fit`."""
        self.last: Reading | None = None
        self.epoch_seconds: float | None = None
        """How long the epoch before took, validation and all."""
        self.epoch_most_bytes: int | None = None
        """The most memory in use in the epoch, of training: validation, whose reading comes last, takes less."""
        self._since: Reading | None = None
        """Where the epoch under way was first seen."""
        self._has_ended = False

    def read(self, reading: Reading) -> None:
        """Take a reading into account."""
        reading = reading | {"epochs": self.epochs or reading["epochs"]}
        self._since = self._since or reading
        used_bytes = [self.epoch_most_bytes if not self._has_ended else None, get_memory_bytes(reading)]
        self.epoch_most_bytes = max((size for size in used_bytes if size is not None), default=None)
        self.last, self._has_ended = reading, False

    def epoch_ended(self) -> None:
        """Note that the last reading was that of an epoch's end."""
        if self.last is None or self._since is None:
            return
        # Compiling came before the first reading: its batches count with the time that such batches take.
        unseen_seconds = self._since["batch"] * (self._batch_seconds or 0.0)
        self.epoch_seconds = self.last["time"] - self._since["time"] + unseen_seconds
        self._since, self._has_ended = self.last | {"batch": 0}, True

    @property
    def is_validating(self) -> bool:
        """Whether the last batch of an epoch is done, and the epoch is not."""
        return self.epoch_share == 1.0 and not self._has_ended

    @property
    def epoch_share(self) -> float | None:
        """How much of the epoch's training is done, from 0 to 1."""
        if self.last is None or not self.last["batches"]:
            return None
        return min(float(self.last["batch"] / self.last["batches"]), 1.0)

    @property
    def share(self) -> float | None:
        """How much of all epochs is done, from 0 to 1."""
        if self.last is None or not self.last["epochs"]:
            return None
        return min(float((self.last["epoch"] + (self.epoch_share or 0.0)) / self.last["epochs"]), 1.0)

    @property
    def epoch_seconds_left(self) -> float | None:
        """Until the last batch of the epoch is done."""
        if self.last is None or not self.last["batches"] or self._batch_seconds is None:
            return None
        return float(max(self.last["batches"] - self.last["batch"], 0) * self._batch_seconds)

    @property
    def seconds_left(self) -> float | None:
        """Until all is done: the epochs to come take as long as the one before, validation and all."""
        here = self.epoch_seconds_left
        if self.last is None or here is None or self._batch_seconds is None or not self.last["epochs"]:
            return None
        training = self.last["batches"] * self._batch_seconds
        epoch = self.epoch_seconds or training
        validation = 0.0 if self._has_ended else max(epoch - training, 0.0)
        return float(here + validation + max(self.last["epochs"] - self.last["epoch"] - 1, 0) * epoch)

    @property
    def _batch_seconds(self) -> float | None:
        speed = self.last and self.last["pictures_per_second"]
        return self.last["pictures_per_batch"] / speed if self.last and speed else None
