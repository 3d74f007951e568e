"""Compiled programs, one for each shape of a batch and each size of micro-batches, cached in memory and on disk."""

import weakref
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from fitroom.activity import activity
from fitroom.backends.jax.train.room import check_room
from fitroom.keras_model.jit_choice import TrainingSetup


@dataclass(kw_only=True)
class Program:
    """A step compiled ahead of time."""

    compiled: Any
    needed_bytes: int | None
    """What it takes beside its arguments, or None where the compiler does not tell."""

    peak_bytes: int | None = None
    """What it takes with its arguments, as the compiler laid it out; None where the compiler does not tell."""

    overlaps: bool = False
    """Whether it ran to its end before, on a card that counts its memory: the next step may be given to the card while
    one is still running."""

    def __call__(self, state: Any, data: Any) -> Any:
        """Run the program. Raises NoRoomError before it starts where memory is short."""
        check_room(self.needed_bytes)
        return self.compiled(state, data)


class Programs:
    """Compiles a function for every new shape of a batch, and caches what it compiled.

    Compiling comes before running, so that what fails in it (XLA tries out kernels, and may run out of memory) fails
    while all state is in place.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, Program] = {}

    def get(
        self, name: Hashable, function: Callable[..., Any], state: Any, data: Any, *, donated: bool = False
    ) -> Program:
        """The program of `function(state, data)`; `name` stands for the function and for its micro-batches."""
        leaves, structure = jax.tree.flatten(data)
        key = (name, structure, *((leaf.shape, leaf.dtype) for leaf in leaves))
        if key not in self._kept:
            with activity("compiling for JAX, once per shape"):
                compiled = _trace(function, state, data, donated=donated).lower().compile()
            self._kept[key] = _program_of(compiled)
        return self._kept[key]


_by_model: "weakref.WeakKeyDictionary[Any, tuple[TrainingSetup, Programs]]" = weakref.WeakKeyDictionary()


def cached_programs(model: Any) -> Programs:
    """The programs of an earlier training of this model, where they still hold for it; else an empty cache."""
    kept = _by_model.get(model)
    if kept is None or not kept[0].matches(model):
        kept = _by_model[model] = (TrainingSetup(model), Programs())
    return kept[1]


def _trace(function: Callable[..., Any], state: Any, data: Any, *, donated: bool) -> Any:
    # Unused arguments are kept: they are on the device all the same.
    traced = jax.jit(function, donate_argnums=0 if donated else (), keep_unused=True).trace(state, data)
    if donated and _calls_python(traced.jaxpr.jaxpr):
        # What it calls may raise in the middle of it: then the state must still be there.
        return _trace(function, state, data, donated=False)
    return traced


def _calls_python(jaxpr: Any) -> bool:
    """Whether a program has calls back into Python in it, such as `jax.pure_callback`."""
    return any("callback" in equation.primitive.name for equation in jaxpr.eqns) or any(
        _calls_python(inner) for equation in jaxpr.eqns for inner in jaxprs_in(equation.params.values())
    )


def jaxprs_in(parameters: Iterable[Any]) -> Iterable[Any]:
    """The jaxprs among the parameters of an equation, opened."""
    for parameter in parameters:
        for item in parameter if isinstance(parameter, tuple) else (parameter,):
            opened = getattr(item, "jaxpr", item)
            if hasattr(opened, "eqns"):
                yield opened


def _program_of(compiled: Any) -> Program:
    analysis = compiled.memory_analysis()
    if analysis is None:
        return Program(compiled=compiled, needed_bytes=None)
    new_bytes = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    needed_bytes = int(analysis.temp_size_in_bytes + max(new_bytes, 0))
    peak_bytes = int(analysis.argument_size_in_bytes + needed_bytes)
    return Program(compiled=compiled, needed_bytes=needed_bytes, peak_bytes=peak_bytes)


MOST_BYTES = 4 * 2**30
"""The size of JAX's cache on disk. Programs that have not been used for the longest time are removed first."""


def keep_programs(folder: Path) -> None:
    """Have JAX cache in a folder what it compiles for a card; nothing where the user set a cache, or without a card.

    For a CPU it would store what another machine, sharing the folder, may not be able to run. Each memory limit has a
    folder of its own: XLA compiles with less memory in mind where there is less, and JAX does not look at that when it
    looks for a program.
    """
    if jax.default_backend() == "cpu" or jax.config.jax_compilation_cache_dir:
        return
    counted = jax.local_devices()[0].memory_stats() or {}
    jax.config.update("jax_compilation_cache_dir", str(folder / str(counted.get("bytes_limit", "any"))))
    jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
