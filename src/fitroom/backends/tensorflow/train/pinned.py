"""Batches in memory of the host that the card reads by itself.

A copy from other memory is made by the driver, piece by piece: until it is done nobody else can give the card anything
to do, and it is not begun before the card has done all that it was given. From memory that is locked in place the copy
runs beside the card's work, and nobody waits.
"""

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Callable, Iterator
from ctypes import c_char
from typing import Any, Protocol

import numpy as np
import psutil
import tensorflow as tf

_MOST_BYTES = min(4 * 2**30, psutil.virtual_memory().total // 8)
"""In all. Such memory is never swapped out, so that others have less."""
_ALIGNED_BYTES = 64
_AMPLE = 2
"""Times the size of an array: larger buffers are for others."""


class PinnedArray(np.ndarray):
    """An array in such memory; what is cut from it lies there as well."""

    memory: "PinnedMemory"

    def __array_finalize__(self, cut_from: Any) -> None:
        """Hand on where it lies."""
        if isinstance(cut_from, PinnedArray):
            self.memory = cut_from.memory

    def as_tensor(self) -> Any:
        """The same memory as a tensor; or a copy, if it begins where TensorFlow takes no tensor to begin."""
        here = self if self.ctypes.data % _ALIGNED_BYTES == 0 else self.memory.copied(self)
        if here is None:
            return tf.convert_to_tensor(np.asarray(self))
        return tf.experimental.dlpack.from_dlpack(here.__dlpack__())


class Memory(Protocol):
    """Some memory of the host, held by whoever holds this."""

    num_bytes: int
    address: int


class PinnedMemory:
    """Buffers that are used again and again: to lock memory takes longer than to fill it."""

    def __init__(self, allocate: Callable[[int], Memory]) -> None:
        self._allocate = allocate
        self._free: list[Memory] = []
        self._lock = threading.Lock()
        self._total_bytes = 0

    def copied(self, array: Any) -> PinnedArray | None:
        """A copy of an array of the host, NumPy's or TensorFlow's; None where that cannot be."""
        numbers = _numbers_of(array)
        memory = None if numbers is None else self._take(numbers.nbytes)
        if numbers is None or memory is None:
            return None
        # Views of an array may outlive it, but all of them hold on to this.
        held = (c_char * numbers.nbytes).from_address(memory.address)
        weakref.finalize(held, self._give_back, memory).atexit = False
        pinned: PinnedArray = np.frombuffer(held, numbers.dtype).reshape(numbers.shape).view(PinnedArray)
        pinned.memory = self
        np.copyto(pinned, numbers)
        return pinned

    def _take(self, num_bytes: int) -> Memory | None:
        with self._lock:
            fitting = [each for each in self._free if num_bytes <= each.num_bytes <= _AMPLE * num_bytes]
            if fitting:
                memory = min(fitting, key=lambda each: each.num_bytes)
                self._free.remove(memory)
                return memory
            while self._free and self._total_bytes + num_bytes > _MOST_BYTES:  # sizes that do not come any more
                self._total_bytes -= self._free.pop().num_bytes
            if self._total_bytes + num_bytes > _MOST_BYTES:
                return None
            try:
                memory = self._allocate(num_bytes)
            except MemoryError:
                return None
            self._total_bytes += num_bytes
            return memory

    def _give_back(self, memory: Memory) -> None:
        # No lock: a finalizer may run in the middle of anything, with the lock held.
        self._free.append(memory)


def _numbers_of(array: Any) -> np.ndarray | None:
    """What is to be copied, if it lies on the host and is of plain numbers."""
    is_tensor = isinstance(array, tf.Tensor)
    if is_tensor and "CPU" not in array.device:
        return None
    dtype = np.dtype(array.dtype.as_numpy_dtype) if is_tensor else np.asarray(array).dtype
    if dtype.kind not in "fiu" or not dtype.isnative:
        return None
    numbers = np.asarray(memoryview(array) if is_tensor else array)
    return numbers if numbers.size else None


_PORTABLE = 1
"""CU_MEMHOSTALLOC_PORTABLE: any card may read it."""


class HostMemory:
    """Some of it, for as long as somebody holds this object."""

    def __init__(self, card: "Card", num_bytes: int, address: int) -> None:
        self.num_bytes, self.address = num_bytes, address
        # With the process all of it goes anyway, and the driver may be gone before.
        weakref.finalize(self, card.free, address).atexit = False


class Card:
    """A card that this process is using already."""

    def __init__(self, driver: ctypes.CDLL, device: int) -> None:
        self._driver = driver
        self._context = ctypes.c_void_p()
        _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), device))

    def allocate(self, num_bytes: int) -> HostMemory:
        """Raises MemoryError where there is no more."""
        address = ctypes.c_void_p()
        with self._in_context():
            _check(self._driver.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(num_bytes), _PORTABLE))
        return HostMemory(self, num_bytes, address.value or 0)

    def free(self, address: int) -> None:
        """Give it back."""
        with self._in_context():
            self._driver.cuMemFreeHost(ctypes.c_void_p(address))

    @contextlib.contextmanager
    def _in_context(self) -> Iterator[None]:
        _check(self._driver.cuCtxPushCurrent_v2(self._context))
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def card_in_use() -> Card | None:
    """Whichever card this process is using, if any: to begin with another would cost memory on it."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    try:
        _check(driver.cuInit(0))
        _check(driver.cuDeviceGetCount(ctypes.byref(count)))
        for device in range(count.value):
            _check(driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(is_active)))
            if is_active.value:
                return Card(driver, device)
    except MemoryError:
        return None
    return None


def _check(code: int) -> None:
    if code:
        raise MemoryError(f"CUDA's driver has no such memory (error {code}).")
