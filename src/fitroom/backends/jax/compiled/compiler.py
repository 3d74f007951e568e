"""XLA's GPU compiler on a machine without a GPU: found, run in a process of its own, its answer kept."""

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from fitroom.backends.jax.compiled.attribution import timeline_of
from fitroom.backends.jax.compiled.dump import read_dump
from fitroom.backends.jax.step import JaxStep
from fitroom.errors import CompilerError
from fitroom.estimating import cache
from fitroom.estimating.cards import Card
from fitroom.estimating.targets import target_description
from fitroom.estimating.timeline import Timeline

COMPILER_PACKAGES = ("jax-cuda13-pjrt", "jax-cuda12-pjrt")
"""The packages that carry the compiler, the preferred one first."""

_CHATTER = "cuda_plugin_extension is not found"
_FORMAT = "5"
"""Raised when what is read from a dump changes, so that older entries of the cache are not found."""


def compiler_version() -> str | None:
    """Name and version of the installed GPU compiler, or None."""
    for package in COMPILER_PACKAGES:
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


class StepCompiler:
    """Compiles one step for a card."""

    def __init__(self, step: JaxStep, card: Card) -> None:
        self._step = step
        self._card = card
        self._exported = step.exported()

    def timeline(self, limit_bytes: int) -> Timeline:
        """The step's memory as XLA lays it out under the limit."""
        target = target_description(self._card, limit_bytes)
        key = self._key(target)
        try:
            return Timeline.from_dict(cache.load(key))
        except (KeyError, TypeError, ValueError):
            pass  # not there, or not as we write it
        timeline = self._compile(target)
        cache.store(key, timeline.to_dict())
        return timeline

    def _key(self, target: str) -> str:
        # The program as text has no source lines in it: moving a line of the user's file changes nothing.
        program = self._exported.mlir_module()
        names = json.dumps([sorted(self._step.layer_names), [(a.kind, a.layer) for a in self._step.arguments]])
        versions = [compiler_version() or "", *(importlib.metadata.version(name) for name in ("jax", "jaxlib"))]
        return cache.digest("jax step", _FORMAT, *versions, target, names, program)

    def _compile(self, target: str) -> Timeline:
        with tempfile.TemporaryDirectory(prefix="fitroom-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            (folder / "step").write_bytes(self._exported.serialize())
            (folder / "target").write_text(target)
            (folder / "dump").mkdir()
            exit_code = _run_child(folder)
            if exit_code != 0:
                raise _compiler_error(exit_code, (folder / "stderr").read_text(errors="replace"), self._card)
            return timeline_of(read_dump(folder / "dump"), self._step.arguments, self._step.layer_names)


def _run_child(folder: Path) -> int:
    """Compile what lies in the folder; all that the compiler leaves behind lies there as well."""
    files = [str(folder / name) for name in ("step", "target", "dump")]
    # It must not look for a GPU here, nor check the CUDA libraries it would need to run on one.
    settings = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": str(folder)}
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "fitroom.backends.jax.compiled.child", *files],
            env=os.environ | settings,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            process_group=0,
        )
        try:
            return process.wait()
        finally:
            # With all that it started: the assembler may still be at work on what nobody needs.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _compiler_error(exit_code: int, stderr: str, card: Card) -> CompilerError:
    lines = [line.strip() for line in stderr.splitlines() if line.strip() and _CHATTER not in line]
    said = f" Its last words: {lines[-1][:300]}" if lines else ""
    if exit_code == -signal.SIGKILL:
        return CompilerError(
            "The XLA compiler was killed, most likely for the memory of this machine." + said,
            hint="close other programs, or estimate a smaller batch: memory is linear in it",
        )
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        return CompilerError(
            f"The XLA compiler crashed ({name}) on this step for {card.name}." + said,
            hint="try another card of the same generation with this card's memory as --limit",
        )
    return CompilerError(
        f"The XLA compiler ({compiler_version()}) could not compile this step for {card.name}." + said,
        hint="jax, jaxlib and the compiler must be of one version: `pip list` shows them",
    )
