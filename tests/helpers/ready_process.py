"""Python in forks of processes that have imported Keras already: most of what a short command takes is that.

    python ready_process.py BACKEND MODULE

Takes command lines and their surroundings from stdin, a line of JSON each, and forks for each of them: no framework has
begun to work here. Commands run side by side. Files get what each wrote to stdout and stderr, and its exit code.
Without a backend only fitroom's command line is imported, for commands that are refused before any framework is needed.
"""

import atexit
import contextlib
import gc
import importlib
import itertools
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from processes import hide_tensorflow
from ready_compiler import ReadyCompiler

_MOST_SECONDS = 900
_processes: dict[tuple[str, bool], "ReadyProcess"] = {}
_lock = threading.Lock()


def run_forked(
    *arguments: str,
    backend: str | None,
    cwd: Path,
    env: Mapping[str, str],
    with_tensorflow: bool = False,
    own_compiler: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run Python as `subprocess.run` would, to its end, in a fork of a process with a backend.

    Args:
        arguments: `-m fitroom` and its arguments, `-c` and a program, or a script.
        backend: The one that the command will choose, or None where it will import none.
        cwd: Where it runs.
        env: Its environment. What a framework reads at its import has been read.
        with_tensorflow: Whether Keras will import TensorFlow too, as it does to save, load and augment. If not, it
            seems not to be installed.
        own_compiler: Whether XLA's GPU compiler is started anew, with that environment, too.
    """
    name = backend or "", with_tensorflow or backend == "tensorflow"
    with _lock:
        if name not in _processes:
            _processes[name] = ReadyProcess(*name)
    return _processes[name].run(*arguments, cwd=cwd, env=env, own_compiler=own_compiler)


def end_processes() -> None:
    """End those that `run_forked` has started."""
    while _processes:
        _processes.popitem()[1].end()


class ReadyProcess:
    """Runs commands as `subprocess.run` would."""

    def __init__(self, backend: str, with_tensorflow: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fitroom-ready-")
        self._numbers = itertools.count()
        quiet = {
            "CUDA_VISIBLE_DEVICES": "",
            "KERAS_HOME": f"{self._folder.name}/keras",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_ENABLE_ONEDNN_OPTS": "0",  # its kernels crash when memory runs out
        }
        environment = os.environ | quiet
        self._process = subprocess.Popen(
            [sys.executable, __file__, backend, "tensorflow" if with_tensorflow else ""],
            env=environment if with_tensorflow or not backend else hide_tensorflow(environment),
            text=True,
            stdin=subprocess.PIPE,
        )

    def run(
        self, *arguments: str, cwd: Path, env: Mapping[str, str], own_compiler: bool
    ) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        files = [Path(self._folder.name, f"{next(self._numbers)}.{name}") for name in ("out", "err", "code")]
        call = [list(map(str, arguments)), str(cwd), dict(env), own_compiler, list(map(str, files))]
        with _lock:
            print(json.dumps(call), file=self._process.stdin, flush=True)
        while not files[-1].exists():
            assert self._process.poll() is None, "the process that commands are forked from has ended"
            time.sleep(0.02)
        out, err, code = (file.read_text(errors="surrogateescape") for file in files)
        return subprocess.CompletedProcess(arguments, int(code), out, err)

    def end(self) -> None:
        self._process.communicate(timeout=60)
        self._folder.cleanup()


def main(backend: str, also: str) -> None:
    gc.disable()  # while half a million objects are made that stay
    import fitroom.cli.main  # noqa: F401

    compiler = ReadyCompiler()
    if backend:
        from fitroom.backends.quiet import quieten_for_estimates
        from fitroom.backends.xla import process

        quieten_for_estimates(backend)
        os.environ["KERAS_BACKEND"] = backend
        import keras  # noqa: F401

        if also:
            importlib.import_module(also)
        own_start = process._start
        if backend == "jax":
            compiler.start()
            process._start = compiler.begin
    gc.freeze()  # no fork looks at them, and so none copies the pages that they are on
    gc.set_threshold(700, 10, 10)  # Python's own
    gc.enable()
    for line in sys.stdin:
        arguments, cwd, env, own_compiler, files = json.loads(line)
        if not os.fork():
            if not (child := os.fork()):
                signal.alarm(_MOST_SECONDS)  # ends it, should it ever wait for a thread that no fork takes along
                for descriptor, file in enumerate((os.devnull, *files[:2])):
                    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), descriptor)
                os.chdir(cwd)
                os.environ.clear()
                os.environ.update(env)
                if own_compiler:
                    process._start = own_start
                _end(_exit_code(arguments))
            _, status = os.waitpid(child, 0)
            Path(f"{files[2]}.partial").write_text(str(os.waitstatus_to_exitcode(status)))
            os.rename(f"{files[2]}.partial", files[2])
            os._exit(0)
    compiler.end()
    with contextlib.suppress(ChildProcessError):
        while True:  # so that what they took counts as this process's
            os.wait()


def _exit_code(arguments: list[str]) -> int:
    """Run a command line to its end; a traceback is printed as Python prints it."""
    try:
        _run(arguments)
    except KeyboardInterrupt:
        raise  # of which Python ends as of the signal
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(exit_code: int) -> NoReturn:
    """Do what Python does at its end, but for taking apart all modules of the frameworks, which takes 1.4 seconds."""
    threading._shutdown()  # threads, and what they registered
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(exit_code)


def _run(arguments: list[str]) -> None:
    """As Python runs its command line."""
    first, *rest = arguments
    if first == "-m":
        from fitroom.cli.main import main as fitroom

        sys.argv[:], sys.path[0] = ["fitroom", *rest[1:]], os.getcwd()
        fitroom()
    elif first == "-c":
        sys.argv[:], sys.path[0] = ["-c", *rest[1:]], os.getcwd()
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[:], sys.path[0] = arguments, os.path.dirname(first)
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
