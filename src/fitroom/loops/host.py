"""Memory of the host that this process has: in all, and in use on its heap."""

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

_PYTHON_BLOCK_BYTES = 72
"""A block of Python's own allocator, on average: measured on processes that had imported Keras and a backend."""


@dataclass(frozen=True, kw_only=True)
class HostReading:
    """What the process has at one moment."""

    resident_bytes: int
    """Of the machine's memory, as `top` shows it; pages that were freed and not given back are in it."""

    heap_bytes: int | None
    """In use by malloc and by Python's allocator; steadier than `resident_bytes`. None without glibc."""


def read_host() -> HostReading:
    """Read what the process has now. Collect garbage before, or that is counted too."""
    heap_bytes = _malloc_bytes()
    if heap_bytes is not None:
        heap_bytes += sys.getallocatedblocks() * _PYTHON_BLOCK_BYTES
    return HostReading(resident_bytes=_resident_bytes(), heap_bytes=heap_bytes)


def collect_garbage() -> None:
    """Collect Python's cycles until a collection finds next to nothing: what one frees may be part of a next."""
    for _ in range(5):
        if gc.collect() < 100:
            return


@contextmanager
def quick_collections() -> Iterator[Callable[[], None]]:
    """Have the collector look only at objects that are made from now on, or from a call of what comes back on.

    A process with a framework in it has a million objects, and going through them takes longer than a small round.
    """
    if gc.get_freeze_count():  # somebody has the collector so already
        yield lambda: None
        return
    gc.collect()
    gc.freeze()
    try:
        yield gc.freeze
    finally:
        gc.unfreeze()


def trim_heap() -> None:
    """Give pages of the heap that are free back to the operating system, where the C library can."""
    if library := _glibc():
        library.malloc_trim(0)


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


@cache
def _glibc() -> Any:
    """The C library, or None where it is another than glibc 2.33 or later."""
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2") or not hasattr(library, "malloc_trim"):
        return None
    library.mallinfo2.restype = _Mallinfo
    return library


def _malloc_bytes() -> int | None:
    library = _glibc()
    if library is None:
        return None
    counted = library.mallinfo2()
    return int(counted.uordblks + counted.hblkhd)


def _resident_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)
