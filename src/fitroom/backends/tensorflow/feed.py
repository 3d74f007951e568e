"""What a jitted program is given, on the card before the program is called.

TensorFlow copies to the card when a program is called, and has each copy wait for all that the card was given to do
before. So the card has nothing to do while the copy is made and the program launched, every time. Here a thread copies
the next part of a batch, and begins before the card is given the part that comes first: the two go on side by side.
Numbers that come again and again are copied once.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fitroom.backends.tensorflow.host import as_tensors, first_part
from fitroom.train.batch import Batch
from fitroom.train.structure import leaves

_MOST_NUMBERS = 1000
"""Masks make other shares of every batch."""


class Feed:
    """The way to one device; with None for it, all stays on the host until a program takes it."""

    def __init__(self, device: str | None = None) -> None:
        self.device = device
        self._coming: deque[Batch] = deque()
        """Batches that were made ahead, in their order."""
        self._copy: _Copy | None = None
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], Any] = {}

    def expect(self, batch: Batch) -> None:
        """It comes after those that were told of before; from any thread."""
        self._coming.append(batch)

    def after(self, batch: Batch) -> Batch | None:
        """The batch that comes next, if it is there already."""
        for number, each in enumerate(list(self._coming), start=1):
            if each is batch:
                for _ in range(number):
                    self._coming.popleft()
                break
        return self._coming[0] if self._coming else None

    def parts(self, batch: Batch, parts: Sequence[Batch], micro_batch: int) -> Iterator[Batch]:
        """The parts, from the device where they are there; while one is worked on the next is on its way."""
        for number, part in enumerate(parts):
            fed = as_tensors(self.take(batch, number, part))
            if number + 1 < len(parts):
                self.start(batch, number + 1, parts[number + 1])
            elif (following := self.after(batch)) is not None and self.device is not None:
                self.start(following, 0, first_part(following, micro_batch))
            yield fed

    def start(self, batch: Batch, number: int, part: Batch) -> None:
        """Begin to copy a part, the one of this number in its batch, beside what the card is given to do next."""
        self.drop()
        if self.device is not None and _is_dense(part := as_tensors(part)):
            self._copy = _Copy(batch, number, part, self.device)
            self._copy.start()
            self._copy.has_begun.wait()

    def take(self, batch: Batch, number: int, part: Batch) -> Batch:
        """The part on the device if it was copied, else as it is."""
        copy, self._copy = self._copy, None
        if copy is None:
            return part
        copy.join()
        if copy.batch is not batch or copy.number != number or copy.part.size != part.size:
            return part
        return copy.copied or part

    def number(self, value: Any) -> Any:
        """A NumPy number, or a few of them, on the device."""
        if self.device is None:
            return value
        value = np.asarray(value)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._numbers:
            if len(self._numbers) >= _MOST_NUMBERS:
                self._numbers.clear()
            self._numbers[key] = _copied(tf.constant(value), self.device)
        return self._numbers[key]

    def beside(self, part: Batch) -> Batch | None:
        """What is on the device beside a part that is being worked on: as much again."""
        return None if self.device is None or not _is_dense(part) else _batch_copied(part, self.device)

    def drop(self) -> None:
        """Give back what was copied and not taken."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.join()

    def end(self) -> None:
        """None of the batches that were told of comes any more."""
        self._coming.clear()
        self.drop()


class _Copy(threading.Thread):
    """A part on its way."""

    def __init__(self, batch: Batch, number: int, part: Batch, device: str) -> None:
        super().__init__(name="fitroom copy")
        self.batch, self.number, self.part, self.device = batch, number, part, device
        self.copied: Batch | None = None
        self.has_begun = threading.Event()

    def run(self) -> None:
        # Whoever waits for this goes on when this thread lets go of Python, which is within TensorFlow.
        self.has_begun.set()
        with contextlib.suppress(tf.errors.ResourceExhaustedError):  # the step itself may have room, or tells
            self.copied = _batch_copied(self.part, self.device)


def _batch_copied(part: Batch, device: str) -> Batch:
    return part.mapped(lambda array: _copied(array, device))


def _copied(tensor: Any, device: str) -> Any:
    return tensor._copy(device_name=device)  # `tf.identity` leaves whole numbers with the host


def _is_dense(part: Batch) -> bool:
    """Whether all of it is plain tensors of numbers."""
    arrays = [array for each in (part.x, part.y, part.sample_weight) for array in leaves(each)]
    return all(isinstance(array, tf.Tensor) and array.dtype != tf.string for array in arrays)
