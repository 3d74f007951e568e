"""Whether the device has the free memory that a compiled step needs, checked before it runs.

A step that runs out of memory while it runs may have given up its inputs by then, so nobody may take memory between the
check and the run. What a step that is under way takes beside its results counts as free once all of it was queued on
the card, which does one thing after another.
"""

import time
from typing import Any

import jax

from fitroom.backends.jax.train.spread import current_spread
from fitroom.errors import NoRoomError
from fitroom.units import format_bytes

_WAIT_SECONDS = 0.5
"""The memory of the step before may be given back a moment after its results are there."""


def has_room(needed_bytes: int) -> bool:
    """Whether each device that JAX trains on is known to have as much free now, in one piece."""
    free = [_largest_free_bytes(device.memory_stats()) for device in _devices()]
    return all(free_bytes is not None and needed_bytes <= free_bytes for free_bytes in free)


def has_free(needed_bytes: int) -> bool:
    """Whether each device that JAX trains on is known to have as much free in all, be it in pieces."""
    free = [_free_bytes(device.memory_stats()) for device in _devices()]
    return all(free_bytes is not None and needed_bytes <= free_bytes for free_bytes in free)


def is_fragmented(needed_bytes: int) -> bool:
    """Whether each device that JAX trains on has as much free, but not in one piece."""
    return has_free(needed_bytes) and not has_room(needed_bytes)


def check_room(needed_bytes: int | None) -> None:
    """Raise NoRoomError where a device that JAX trains on has less free than is needed.

    Of several, all are looked at before any of them begins: one that fails in the middle would leave the others waiting
    for it.
    """
    for device in _devices() if needed_bytes else ():
        _check_device(device, needed_bytes or 0)


def _check_device(device: Any, needed_bytes: int) -> None:
    free_bytes = _largest_free_bytes(device.memory_stats())
    until = time.monotonic() + _WAIT_SECONDS
    while free_bytes is not None and needed_bytes > free_bytes and time.monotonic() < until:
        time.sleep(_WAIT_SECONDS / 50)
        free_bytes = _largest_free_bytes(device.memory_stats())
    if free_bytes is not None and needed_bytes > free_bytes:
        raise NoRoomError(
            f"Out of memory: the step needs {format_bytes(needed_bytes)} beside its weights and batch, and "
            f"{format_bytes(free_bytes)} are free on {device.platform}:{device.id}.",
            hint="a smaller micro-batch",
        )


def _devices() -> list[Any]:
    spread = current_spread()
    return [jax.local_devices()[0]] if spread is None else spread.devices


def _largest_free_bytes(counted: dict[str, Any] | None) -> int | None:
    """The largest block that the allocator could give, as far as it tells."""
    free_bytes = _free_bytes(counted)
    if counted is None or free_bytes is None:
        return None
    # XLA takes its temporaries as one block. Where all of the card is taken, no block can be larger than the largest.
    largest_bytes = counted.get("largest_free_block_bytes")
    if largest_bytes and counted.get("pool_bytes") == counted["bytes_limit"]:
        return int(min(free_bytes, largest_bytes))
    return free_bytes


def _free_bytes(counted: dict[str, Any] | None) -> int | None:
    limit_bytes, in_use_bytes = (counted or {}).get("bytes_limit"), (counted or {}).get("bytes_in_use")
    return None if not limit_bytes or in_use_bytes is None else int(limit_bytes - in_use_bytes)
