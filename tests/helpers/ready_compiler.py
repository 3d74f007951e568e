"""XLA's GPU compiler in forks of a process that has imported JAX already: most of what a small step takes is that.

    python ready_compiler.py

Takes calls of `run_compiler` from stdin, a line of JSON each, and forks for each of them. Answers with the exit code.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import threading


class ReadyCompiler:
    """Runs the compiler's modules as processes of their own, as `fitroom.backends.xla.process` does."""

    def __init__(self):
        self._process = None
        self._lock = threading.Lock()

    def begin(self, module, arguments, folder, settings):
        """`python -m module arguments`, which runs when it is waited for."""
        return Forked(lambda: self._exit_code(module, arguments, folder, settings))

    def _exit_code(self, module, arguments, folder, settings):
        environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "TMPDIR": str(folder)} | dict(settings)
        with self._lock:
            if self._process is None:
                self.start()
            call = json.dumps([module, list(arguments), str(folder), environment])
            print(call, file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def start(self):
        """Start the process now; else the first call does. Forks of this process share it."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        command = [sys.executable, __file__]
        self._process = subprocess.Popen(command, env=environment, text=True, process_group=0, **pipes)

    def end(self):
        if self._process is not None:
            self._process.communicate(timeout=60)


class Forked:
    """What stands for a process: it has ended when `wait` returns."""

    def __init__(self, run):
        self._run, self._exit_code = run, None

    @property
    def pid(self):
        """Larger than any there is. Who asks ends the process, and where it has not run it never will."""
        self._exit_code = -signal.SIGKILL if self._exit_code is None else self._exit_code
        return 2**22 + 1

    def wait(self):
        if self._exit_code is None:
            self._exit_code = self._run()
        return self._exit_code


def main():
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        module, arguments, folder, environment = json.loads(line)
        importlib.import_module(module)  # and with it JAX, for all forks to come
        gc.freeze()  # no fork looks at its objects
        if not (child := os.fork()):
            os.setpgid(0, 0)
            os.environ.clear()
            os.environ.update(environment)
            for descriptor, file in enumerate((os.devnull, os.devnull, f"{folder}/stderr")):
                os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), descriptor)
            sys.argv[1:] = arguments
            del sys.modules[module]
            runpy.run_module(module, run_name="__main__")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    main()
