"""A process that does one configuration of the corpus after another, until one of them ends it or takes too long."""

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from predict.accuracy import what_went_wrong

ANSWER = "RESULT "


class Child:
    """Reads names from stdin, and answers each with a line that begins with `ANSWER` and goes on in JSON."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.is_alive = True
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (it lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=environment,
        )

    def ask(self, name: str, seconds: float) -> dict[str, Any]:
        """What came of the configuration; `crashed` says why nothing did."""
        took_too_long = threading.Event()

        def stop() -> None:
            took_too_long.set()
            self._kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            found = self._answer(name)
        finally:
            timer.cancel()
        if found is not None:
            return found
        self._kill()
        self._stderr.seek(0)
        why = f"longer than {seconds:g} s" if took_too_long.is_set() else what_went_wrong(self._stderr.read()[-6000:])
        return {"crashed": why or f"the process ended with {self._process.returncode}"}

    def end(self) -> None:
        """End the process, which has nothing more to do."""
        self._kill()
        self._stderr.close()

    def _answer(self, name: str) -> dict[str, Any] | None:
        """What it says, or nothing where it ended."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            print(name, file=self._process.stdin, flush=True)
        except OSError:
            return None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return dict(json.loads(line[len(ANSWER) :]))
        return None

    def _kill(self) -> None:
        self.is_alive = False
        self._process.kill()
        self._process.wait()
