"""The compiler as a process of its own: it may crash or be killed, and whoever asked lives on and says why."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fitroom.cards.catalogue import Card
from fitroom.errors import CompilerError

_ERROR = re.compile(r"\b\w*Error: ")
_CHATTER = ("cuda_plugin_extension is not found", "cudart_stub.cc", "absl::InitializeLog")


def run_compiler(
    module: str, arguments: Sequence[str], folder: Path, *, card: Card, compiler: str, settings: Mapping[str, str]
) -> None:
    """Run `python -m module arguments`; all that it leaves behind lies in the folder. Raises CompilerError."""
    CompilerProcess(module, arguments, folder, settings).wait(card=card, compiler=compiler)


class CompilerProcess:
    """`python -m module arguments`, under way; all that it leaves behind lies in the folder."""

    def __init__(self, module: str, arguments: Sequence[str], folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._process = _start(module, arguments, folder, settings)

    def wait(self, *, card: Card, compiler: str) -> None:
        """Wait for its end. Raises CompilerError where it failed."""
        try:
            exit_code = self._process.wait()
        finally:
            self.end()
        if exit_code != 0:
            raise _error(exit_code, (self._folder / "stderr").read_text(errors="replace"), card, compiler)

    def end(self) -> None:
        """End it with all that it started: the assembler may still be at work on what nobody needs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _start(
    module: str, arguments: Sequence[str], folder: Path, settings: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    with (folder / "stderr").open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": str(folder)} | dict(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            process_group=0,
        )


def _error(exit_code: int, stderr: str, card: Card, compiler: str) -> CompilerError:
    lines = [line.strip() for line in stderr.splitlines()]
    lines = [line for line in lines if line and not any(chatter in line for chatter in _CHATTER)]
    telling = [line for line in lines if _ERROR.search(line)] or lines  # below an error stand the calls that led to it
    said = f" Its last words: {telling[-1][:300]}" if lines else ""
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
        f"The XLA compiler ({compiler}) could not compile this step for {card.name}." + said,
        hint="is the compiler of the framework's own version? `pip list` shows them",
    )
