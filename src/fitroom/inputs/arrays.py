"""Arrays as a source of batches, and the split of arrays into training and validation."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from fitroom.batch import Batch, is_nested, leaves, map_structure
from fitroom.errors import InputError
from fitroom.inputs.batches import Batches
from fitroom.inputs.columns import columns_of, is_array
from fitroom.inputs.contract import Resumes
from fitroom.inputs.keras_loader import draw_as_loader, keras_backend
from fitroom.inputs.passes import Window, epoch_window, seeded_generator, warn_of_end
from fitroom.inputs.weights import weights_of_classes, weights_of_outputs

Parts = tuple[Any, Any, Any]
"""x, y and sample_weight."""


def split_validation(x: Any, y: Any, sample_weight: Any, validation_split: float) -> tuple[Parts, Parts]:
    """Split arrays into those to train on, and the last of the samples, before any shuffling, to validate on."""
    if not 0 < validation_split < 1:
        raise InputError(f"`validation_split` must be between 0 and 1. Received: {validation_split}.")
    if not (isinstance(x, dict | list | tuple) or is_array(x)):
        raise InputError(
            f"`validation_split` is for arrays. Received: x of type {type(x).__name__}.",
            hint="split the dataset beforehand and give `validation_data`",
        )
    parts = columns_of(x), columns_of(y), columns_of(sample_weight)
    num_samples = next(leaves(parts)).shape[0]
    first = int(num_samples * (1.0 - validation_split))
    if first in (0, num_samples):
        raise InputError(
            f"{num_samples} samples are too few to hold out a share of {validation_split} for validation.",
            hint="more data, or another `validation_split`",
        )
    trained = tuple(map_structure(lambda column: column.slice(0, first), part) for part in parts)
    held_out = tuple(map_structure(lambda column: column.slice(first, column.shape[0]), part) for part in parts)
    return (trained[0], trained[1], trained[2]), (held_out[0], held_out[1], held_out[2])


class ArraySource:
    """Arrays in memory, on disk behind a memory map, or on a device. The order is drawn from (seed, epoch) alone."""

    resumes: Resumes = "exactly"
    resume_note = ""

    def __init__(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        *,
        batch_size: int | None,
        shuffle: Any,
        class_weight: dict[int, float] | None,
        steps_per_epoch: int | None,
        seed: int,
    ) -> None:
        self._x, self._y = _pack(columns_of(x)), _pack(columns_of(y))
        weights = weights_of_outputs(self._y, _pack(columns_of(sample_weight)))
        # Without targets Keras drops the weights: only its losses of targets take them.
        self._sample_weight = None if self._y is None else weights
        if class_weight is not None and self._sample_weight is not None:
            raise InputError(
                "`class_weight` and `sample_weight` cannot be given together.",
                hint="multiply the sample weights by those of their classes and leave `class_weight` out",
            )
        if class_weight is not None and is_nested(self._y):
            raise InputError(
                "`class_weight` is for models with a single output. Received: several targets.",
                hint="give `sample_weight` in the structure of the targets",
            )
        self.num_samples = _num_samples(x=self._x, y=self._y, sample_weight=self._sample_weight)
        if batch_size is None and steps_per_epoch is not None:
            batch_size = -(-self.num_samples // steps_per_epoch)
        self.batch_size = 32 if batch_size is None else batch_size
        self._class_weight, self._shuffle, self._seed = class_weight, shuffle, seed
        self._steps = steps_per_epoch
        self._pass_batches = -(-self.num_samples // self.batch_size)
        self._order: tuple[int, Any] = (-1, None)
        self._last_epoch, self._is_last = -1, False

    @property
    def num_batches(self) -> int:
        """The number of batches in an epoch."""
        return self._steps or self._pass_batches

    @property
    def fingerprint(self) -> dict[str, Any]:
        """Shapes and dtypes of the arrays, and how they are split into batches."""
        parts = {"x": self._x, "y": self._y, "sample_weight": self._sample_weight}
        described = {
            name: [[list(column.shape[1:]), column.dtype] for column in leaves(part)] for name, part in parts.items()
        }
        counts = {"num_samples": self.num_samples, "batch_size": self.batch_size, "steps_per_epoch": self._steps}
        return {"kind": "arrays", **described, **counts, "shuffle": str(self._shuffle)}

    def peek(self) -> Batch:
        """The first batch of the first epoch."""
        return self._batch(0, 0)

    def epoch(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch `start` on."""
        found = epoch_window(self._pass_batches, self._steps, epoch)
        self._is_last = found.stop == self._pass_batches
        if start == 0 and (self._steps is None or epoch <= self._last_epoch or self._last_epoch < 0):
            draw_as_loader()
        self._last_epoch = epoch
        made = self._made(found, start)
        return Batches(made, first=start, batch_size=self.batch_size, state=self.state)

    def look(self) -> None:
        """Draw the random numbers that Keras draws when it reads a batch to build a model, in a pass of its own."""
        draw_as_loader()

    def on_epoch_end(self) -> None:
        """Draw what Keras draws at the end of a pass; the order of the next one depends on its number alone."""
        if self._is_last:
            draw_as_loader()

    def state(self) -> dict[str, Any]:
        """The last epoch that was begun; the batches themselves depend on their position alone."""
        return {"last_epoch": self._last_epoch}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the last epoch that was begun; older checkpoints lack it."""
        self._last_epoch = int(state.get("last_epoch", -1))

    def _made(self, found: Window, start: int) -> Iterator[Batch]:
        for number in range(found.first + start, found.stop):
            yield self._batch(found.number, number)
        if found.falls_short and self._steps is not None:
            warn_of_end(found.stop - found.first, self._steps)

    def _batch(self, pass_number: int, number: int) -> Batch:
        which = self._samples(pass_number, number)
        read = partial(map_structure, lambda column: column.rows(which))
        y = read(self._y)
        sample_weight = read(self._sample_weight)
        if self._class_weight is not None and y is not None:
            sample_weight = weights_of_classes(y, self._class_weight)
        return Batch(x=read(self._x), y=y, sample_weight=sample_weight)

    def _samples(self, pass_number: int, number: int) -> Any:
        """The samples of a batch; a slice where they are adjacent, so that rows are not copied."""
        start = number * self.batch_size
        stop = min(start + self.batch_size, self.num_samples)
        if not self._shuffle:
            return slice(start, stop)
        if isinstance(self._shuffle, str) and self._shuffle == "batch":
            return start + seeded_generator(self._seed, pass_number, number).permutation(stop - start)
        known, order = self._order
        if known != pass_number:
            order = seeded_generator(self._seed, pass_number).permutation(self.num_samples)
            self._order = (pass_number, order)
        return order[start:stop]


def num_rows(x: Any) -> int:
    """The number of samples in a structure of arrays."""
    return _num_samples(x=columns_of(x))


def _pack(structure: Any) -> Any:
    """The structure in which a step gets arrays: on TensorFlow Keras uses tf.data, which has tuples for lists."""
    if keras_backend() != "tensorflow" or not isinstance(structure, dict | list | tuple):
        return structure
    if isinstance(structure, dict):
        return {key: _pack(value) for key, value in structure.items()}
    if hasattr(structure, "_fields"):
        return type(structure)(*map(_pack, structure))
    return tuple(map(_pack, structure))


def _num_samples(**parts: Any) -> int:
    lengths = {name: [column.shape[0] for column in leaves(part)] for name, part in parts.items()}
    different = {length for found in lengths.values() for length in found}
    if not lengths["x"]:
        raise InputError("There are no data to train on. Received: no array in `x`.")
    if len(different) > 1:
        told = "; ".join(f"{name}: {', '.join(map(str, found))}" for name, found in lengths.items() if found)
        raise InputError(
            f"All arrays must have the same number of samples, one row each. Received: {told}.",
            hint="look at the shapes: the first axis is the sample",
        )
    if different == {0}:
        raise InputError("There are no samples in the data. Received: arrays of length 0.")
    return int(different.pop())
