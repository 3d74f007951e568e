"""XLA's GPU compiler on a machine without a GPU: run in a process of its own, its answers cached."""

import importlib.metadata
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fitroom.activity import activity
from fitroom.backends.jax.shards import largest_axis
from fitroom.backends.jax.trace.card_attention import uses_fused_attention
from fitroom.backends.jax.trace.step import JaxStep
from fitroom.backends.xla.attribution import Argument
from fitroom.backends.xla.dump import read_dump
from fitroom.backends.xla.library import installed_compiler
from fitroom.backends.xla.on_card import added_on_card
from fitroom.backends.xla.process import CompilerProcess
from fitroom.backends.xla.timeline import timeline_of
from fitroom.cards.catalogue import Card
from fitroom.cards.targets import target_description
from fitroom.memory import cache
from fitroom.memory.timeline import Timeline

COMPILER_PACKAGES = ("jax-cuda13-pjrt", "jax-cuda12-pjrt")
"""The packages that carry the compiler, the preferred one first."""

_LOCATION = re.compile(r" loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|^#loc.*\n?", re.MULTILINE)
"""Where an operation of a program comes from: source lines, and the calls that led there."""

_FORMAT = "14"
"""Raised when what is read from a dump changes, so that older entries of the cache are not found."""


def compiler_version() -> str | None:
    """Name and version of the installed GPU compiler, or None."""
    for package in COMPILER_PACKAGES:
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@dataclass(frozen=True, kw_only=True)
class PendingTimeline:
    """A step's memory that the compiler, in a process of its own, is still at work on."""

    result: Callable[[], Timeline]
    cancel: Callable[[], None]


class StepCompiler:
    """Compiles one step for a card."""

    def __init__(self, step: JaxStep, card: Card, *, devices: int = 1, shard_weights: bool = False) -> None:
        """With `devices` the step is compiled for as many such cards, and its memory is that of one."""
        self._step = step
        self._devices, self._shard_weights = devices, shard_weights
        self._arguments = tuple(self._on_one_device(argument) for argument in step.arguments)
        self._card = card
        self._exported = step.export()

    @property
    def uses_fused_attention(self) -> bool:
        """Whether the step gives attention to cuDNN."""
        return uses_fused_attention(self._exported.mlir_module())

    def timeline(self, limit_bytes: int) -> Timeline:
        """The step's memory as XLA lays it out under the limit."""
        return self.begin(limit_bytes).result()

    def begin(self, limit_bytes: int) -> "PendingTimeline":
        """Have the step compiled under the limit, or take what the cache has; `result` is its memory."""
        target = target_description(self._card, limit_bytes)
        key = self._key(target)
        try:
            known = Timeline.from_dict(cache.load(key))
            return PendingTimeline(result=lambda: known, cancel=lambda: None)
        except (KeyError, TypeError, ValueError):
            return self._compile(target, key)  # not there, or not as we write it

    def _key(self, target: str) -> str:
        program = _without_locations(self._exported.mlir_module())
        names = json.dumps([sorted(self._step.layer_names), [(a.kind, a.layer) for a in self._step.arguments]])
        versions = [compiler_version() or "", *(importlib.metadata.version(name) for name in ("jax", "jaxlib"))]
        spread = [] if self._devices == 1 else [f"{self._devices} devices", str(self._shard_weights)]
        return cache.digest("jax step", _FORMAT, *versions, target, names, program, *spread)

    def _compile(self, target: str, key: str) -> "PendingTimeline":
        place = tempfile.TemporaryDirectory(prefix="fitroom-", ignore_cleanup_errors=True)
        folder = Path(place.name)
        library = installed_compiler()
        files = [str(folder / name) for name in ("step", "target", "dump")]
        (folder / "target").write_text(target)
        (folder / "dump").mkdir()
        if self._devices == 1 and library is not None:
            # The program alone: the process need not import JAX, nor lower the step once more.
            (folder / "step").write_bytes(self._exported.mlir_module_serialized)
            module, arguments = "fitroom.backends.xla.child", [str(library.path), "mlir", *files]
        else:
            (folder / "step").write_bytes(self._exported.serialize())
            module = "fitroom.backends.jax.trace.compiler_child"
            arguments = [*files, str(self._devices), "sharded" if self._shard_weights else "replicated"]
        process = CompilerProcess(
            module,
            arguments,
            folder,
            # It must not look for a GPU here, nor check the CUDA libraries it would need to run on one.
            settings={"JAX_PLATFORMS": "cpu"},
        )

        def wait() -> Timeline:
            with place, activity("compiling for JAX, once per shape"):
                process.wait(card=self._card, compiler=compiler_version() or "none")
                dump = read_dump(folder / "dump")
                found = timeline_of(dump, self._arguments, self._step.scope_reader, added_on_card(dump, self._card))
            cache.store(key, found.to_dict())
            return found

        def cancel() -> None:
            with place:
                process.end()

        return PendingTimeline(result=wait, cancel=cancel)

    def _on_one_device(self, argument: Argument) -> Argument:
        """What an argument of the step takes on one device."""
        is_divided = argument.kind == "input"
        if self._shard_weights and argument.kind != "input":
            is_divided = largest_axis(argument.shape, self._devices) is not None
        return replace(argument, size_bytes=argument.size_bytes // self._devices) if is_divided else argument


def _without_locations(program: str) -> str:
    """The program alone: moving a line of the user's file, or calling from elsewhere, makes no other program.

    >>> _without_locations('#loc1 = loc("a.py":3:0)\\n%0 = add %1, %2 : f32 loc(callsite(#loc1 at "b"(#loc2)))')
    '%0 = add %1, %2 : f32'
    """
    return _LOCATION.sub("", program)
