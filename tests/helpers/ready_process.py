"""`fitroom` in processes that have imported Keras on JAX already: most of what a short command takes is that.

    python ready_process.py FOLDER

Takes command lines from stdin, a list in JSON each, and forks for each of them: no framework has begun to work here.
Answers with the exit code and the files in FOLDER that stdout and stderr went to.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


class ReadyProcess:
    """Runs commands as `subprocess.run` would."""

    def __init__(self, folder: Path, *, cwd: Path, env: Mapping[str, str]) -> None:
        command = [sys.executable, __file__, str(folder)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, cwd=cwd, env=env, text=True, **pipes)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        status, *files = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(arguments, status, *(Path(file).read_text() for file in files))

    def end(self) -> None:
        self._process.communicate(timeout=60)


def main(folder: str) -> None:
    from fitroom.backends.quiet import quieten_for_estimates
    from fitroom.cli.main import main as fitroom

    quieten_for_estimates("jax")
    os.environ["KERAS_BACKEND"] = "jax"
    import keras  # noqa: F401

    del os.environ["KERAS_BACKEND"]  # as in a shell where nothing is set
    sys.path[0] = os.getcwd()  # as `python -m` has it
    for number, line in enumerate(sys.stdin):
        files = [f"{folder}/{number}.{name}" for name in ("out", "err")]
        if not (child := os.fork()):
            signal.alarm(300)  # ends it, should it ever wait for a thread that no fork takes along
            for descriptor, file in enumerate((os.devnull, *files)):
                os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), descriptor)
            sys.argv[1:] = json.loads(line)
            fitroom()
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), *files]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
