"""Memory of the host that is locked in place, from CUDA's driver: TensorFlow has it, and hands none of it out."""

import contextlib
import ctypes
import weakref
from collections.abc import Iterator

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
