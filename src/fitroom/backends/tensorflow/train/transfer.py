"""Transfers to the card: what a program is given is copied before the program is called.

TensorFlow copies to the card when a program is called, and has each copy wait for all that the card was given to do
before. So the card has nothing to do while the copy is made and the program launched, every time. Here threads copy the
next micro-batch, and begin before the card is given the one before it: copying and computing run side by side. Numbers
that are used again and again are copied once.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from fitroom.backends.prefetch import PrefetchQueue
from fitroom.backends.tensorflow.train.host import HOST, as_tensor, as_tensors, first_micro_batch
from fitroom.backends.tensorflow.train.pinned import PinnedMemory, card_in_use
from fitroom.batch import Batch, leaves

_MOST_NUMBERS = 1000
"""Masks make other shares of every batch."""


class Transfer:
    """Copies micro-batches to one device ahead of their use; without a device all stays on the host."""

    def __init__(
        self, device: str | None = None, pinned: PinnedMemory | None = None, *, is_jitted: bool = True
    ) -> None:
        self.device, self._pinned, self._is_jitted = device, pinned, is_jitted
        self.queue = PrefetchQueue()
        self._copy: _MicroBatchCopy | None = None
        self._numbers: dict[tuple[str, tuple[int, ...], bytes], Any] = {}

    def set_device(self, device: str | None, *, is_jitted: bool) -> None:
        """Transfer to this device from now on."""
        card = None if device is None else card_in_use()
        self.device, self._pinned = device, None if card is None else PinnedMemory(card.allocate)
        self._is_jitted = is_jitted

    def expect(self, batch: Batch) -> Batch:
        """The batch as the host should hold it until its turn comes, after those that were expected before."""
        with contextlib.suppress(tf.errors.ResourceExhaustedError, MemoryError):
            batch = batch.map(self._held)
        self.queue.add(batch)
        return batch

    def prefetch(self, batch: Batch, micro_batches: Sequence[Batch], size: int) -> Iterator[Batch]:
        """The micro-batches, on the device where they were copied; while one is computed the next is copied."""
        for number, micro_batch in enumerate(micro_batches):
            ready = as_tensors(self.take(batch, number, micro_batch))
            if number + 1 < len(micro_batches):
                self.start(batch, number + 1, micro_batches[number + 1])
            elif (following := self.queue.next_after(batch)) is not None and self.device is not None:
                self.start(following, 0, first_micro_batch(following, size))
            yield ready

    def start(self, batch: Batch, number: int, micro_batch: Batch) -> None:
        """Begin to copy the micro-batch of this number, beside what the card is given to do next."""
        self.drop()
        if self.device is not None and _is_dense(tensors := as_tensors(micro_batch)):
            self._copy = _MicroBatchCopy(batch, number, tensors.map(self._on_its_way))

    def take(self, batch: Batch, number: int, micro_batch: Batch) -> Batch:
        """The micro-batch on the device if it was copied, else as it is."""
        copy, self._copy = self._copy, None
        if copy is None:
            return micro_batch
        arrived = copy.arrived()
        is_asked_for = copy.batch is batch and copy.number == number
        return arrived if arrived is not None and is_asked_for and arrived.size == micro_batch.size else micro_batch

    def number(self, value: Any) -> Any:
        """A NumPy number, or a few of them, on the device."""
        if self.device is None:
            return value
        value = np.asarray(value)
        if self._stays(value.dtype):
            return value
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._numbers:
            if len(self._numbers) >= _MOST_NUMBERS:
                self._numbers.clear()
            self._numbers[key] = _copy(tf.constant(value), self.device)
        return self._numbers[key]

    def beside(self, micro_batch: Batch) -> Batch | None:
        """What is on the device beside the micro-batch that is computed: the next one, as large."""
        device = self.device
        if device is None or not _is_dense(micro_batch):
            return None
        return micro_batch.map(lambda array: _copy(_share_memory(array), device))

    def drop(self) -> None:
        """Give back what was copied and not taken."""
        copy, self._copy = self._copy, None
        if copy is not None:
            copy.arrived()

    def end(self) -> None:
        """No batch follows."""
        self.queue.clear()
        self.drop()

    def _on_its_way(self, array: Any) -> "_OnHost | _ArrayCopy":
        assert self.device is not None, "asked before"
        return _OnHost(array) if self._stays(array.dtype) else _ArrayCopy(array, self.device)

    def _stays(self, dtype: Any) -> bool:
        """Whether it belongs on the host: of whole numbers of 32 bits a graph would fetch back what lies on the card,
        and wait for all that the card has to do until then."""
        return not self._is_jitted and tf.as_dtype(dtype) == tf.int32

    def _held(self, array: Any) -> Any:
        pinned = None if self._pinned is None else self._pinned.copied(array)
        return as_tensor(array) if pinned is None else pinned


class _MicroBatchCopy:
    """A micro-batch on its way."""

    def __init__(self, batch: Batch, number: int, arriving: Batch) -> None:
        """`arriving`: each array by a thread of its own. The second would otherwise begin when the first is there, and
        by then wait for all that the card was given meanwhile."""
        self.batch, self.number, self._arriving = batch, number, arriving

    def arrived(self) -> Batch | None:
        """All of it, as soon as it is there; None where the card has no room."""
        arrived = [array.arrived() for array in _arrays_of(self._arriving)]
        has_room = all(array is not None for array in arrived)
        return self._arriving.map(lambda array: array.arrived()) if has_room else None


class _OnHost:
    """An array that stays where it is."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def arrived(self) -> Any:
        """The array."""
        return self._array


class _ArrayCopy(threading.Thread):
    """An array on its way."""

    def __init__(self, array: Any, device: str) -> None:
        super().__init__(name="fitroom copy")
        self._array, self._device = _share_memory(array), device
        self._copied: Any = None
        self._has_begun = threading.Event()
        self.start()
        self._has_begun.wait()

    def run(self) -> None:
        """Copy it."""
        # Whoever waits for this continues when this thread lets go of Python, which is within TensorFlow.
        self._has_begun.set()
        with contextlib.suppress(tf.errors.ResourceExhaustedError):  # the step itself may have room, or tells
            self._copied = _copy(self._array, self._device)
        self._array = None

    def arrived(self) -> Any:
        """What was copied, or None."""
        self.join()
        return self._copied


def _share_memory(tensor: Any) -> Any:
    """The same memory of the host. A tensor holds on to what was copied of it for as long as it lives itself."""
    if not tensor.device.endswith(HOST):
        return tensor
    with tf.device(HOST):
        return tf.raw_ops.Identity(input=tensor)


def _copy(tensor: Any, device: str) -> Any:
    """On the device. By an operation: while it waits for the card other threads run Python, unlike with `_copy`."""
    with tf.device(device):
        if tensor.dtype.is_bool:
            return tf.raw_ops.Identity(input=tensor)
        # Of whole numbers `Identity` would leave those of 32 bits with the host.
        return tf.raw_ops.Bitcast(input=tensor, type=tensor.dtype)


def _is_dense(batch: Batch) -> bool:
    """Whether all of it is plain tensors of numbers."""
    return all(isinstance(array, tf.Tensor) and array.dtype != tf.string for array in _arrays_of(batch))


def _arrays_of(batch: Batch) -> list[Any]:
    return [array for each in (batch.x, batch.y, batch.sample_weight) for array in leaves(each)]
