"""A round of a loop on JAX: which arrays are alive, and what its end gives back.

A model that nobody refers to takes its compiled functions with it; they lie in cycles, so a collection of garbage is
enough. Functions of the user's and of `jax.numpy` stay compiled, since the next round will want them.

Some caches of JAX's own grow with every model all the same: one keeps a program for each `argmax` that was traced, as
Keras's accuracy does. Those that have grown in each of eight rounds are emptied; `jax.clear_caches()` would empty all
of them, and have everything compiled again.
"""

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import jax

_CACHES = ("WeakrefLRUCache", "MultiWeakrefLRUCache", "StrongLRUCache")
_PYTHONS_CACHE = type(functools.cache(len))
_MAKER = "jax._src.util"
"""Where JAX makes the caches that `jax.clear_caches()` empties. Others of Python's kind, the user's or JAX's own, may
hold what somebody relies on."""

_ROUNDS_TO_GROW = 8

_rounds_grown: dict[int, int] = {}
"""By `id` of a cache, in how many rounds in a row it has grown. JAX's caches live as long as the process."""

_known: dict[int, Callable[[], Any]] = {}
"""By `id`, references to the caches that were found. The collector does not list what was frozen since."""


def live_arrays() -> list[tuple[Any, int]]:
    """The arrays that JAX holds and the bytes of each."""
    return [(array, array.nbytes) for array in jax.live_arrays() if not array.is_deleted()]


def count_programs() -> dict[tuple[int, str], int]:
    """By `id` and name of each jitted function: how many versions of it are compiled."""
    kind = type(jax.jit(len))
    return {
        (id(each), getattr(each, "__qualname__", repr(each))): each._cache_size()
        for each in gc.get_objects()
        if type(each) is kind
    }


def begin_round() -> Callable[[], tuple[str, ...]]:
    """Note what is there; the function that comes back ends the round."""
    if not _known:
        _find_caches()
    before = _cache_sizes()

    def end_round() -> tuple[str, ...]:
        gc.collect()
        gc.collect()
        _find_caches()
        _empty_growing_caches(before)
        return _describe_pool()

    return end_round


def _find_caches() -> None:
    """Remember the caches of JAX's functions that are listed now."""
    for each in gc.get_objects():
        if _is_cache(each):
            _known[id(each)] = _refer_to(each)


def _refer_to(cache: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(cache)
    except TypeError:  # a kind that cannot be referred to weakly
        return lambda: cache


def _cache_sizes() -> dict[int, tuple[Any, int]]:
    """The caches of JAX's functions by `id`, with how many entries each has."""
    alive = {key: cache for key, refer in list(_known.items()) if (cache := refer()) is not None}
    for key in _known.keys() - alive.keys():
        del _known[key]
    return {key: (cache, cache.cache_info().currsize) for key, cache in alive.items()}


def _is_cache(value: Any) -> bool:
    """Whether it is a cache that `jax.clear_caches()` would empty, of JAX's own kind or of Python's."""
    kind = type(value)
    if kind is _PYTHONS_CACHE:
        return getattr(value, "__module__", None) == _MAKER
    return kind.__name__ in _CACHES and kind.__module__.startswith("jaxlib")


def _empty_growing_caches(before: dict[int, tuple[Any, int]]) -> None:
    emptied = False
    for key, (kept, size) in before.items():
        grew = kept.cache_info().currsize > size
        _rounds_grown[key] = _rounds_grown.get(key, 0) + 1 if grew else 0
        if _rounds_grown[key] >= _ROUNDS_TO_GROW:
            kept.cache_clear()
            _rounds_grown[key] = 0
            emptied = True
    if emptied:
        gc.collect()


def _describe_pool() -> tuple[str, ...]:
    if all(device.platform == "cpu" for device in jax.local_devices()):
        return ()
    return ("JAX keeps its memory pool until the process ends; what is free in it serves the next round.",)
