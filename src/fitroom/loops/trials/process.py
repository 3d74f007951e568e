"""The process of one trial, seen from the loop: started fresh and never forked, and ended with all that it started."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.errors import InputError
from fitroom.loops.trials.child import LENGTH, is_loading

_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
sys.argv[:] = [sys.argv[2]]
from fitroom.loops.trials.child import main
main()
"""
_SECONDS_TO_EXIT = 10.0
"""How long a process may take to exit once its function has returned."""

Answer = Callable[[str, list[Any], dict[str, Any]], Any]
"""Answers what the function asks of the loop: the name of a call, its arguments, and those with names."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A function, pickled, and how its processes are started."""

    function: bytes
    environment: Mapping[str, str]
    time_limit: float | None = None
    """Seconds that a process may take."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What came of one process."""

    state: str
    seconds: float
    result: Any = None
    error: str | None = None
    traceback: str | None = None
    peak_bytes: int | None = None
    host_bytes: int | None = None


def pickle_function(function: Any, what: str = "function", *, inner: Any = None) -> bytes:
    """Pickle a function for another process, one of a notebook or a lambda too. Raises InputError where it cannot.

    Args:
        function: what is to be called there.
        what: its name in an error.
        inner: the user's function, where `function` wraps it.
    """
    import cloudpickle

    if not callable(function):
        raise InputError(
            f"`{what}` must be callable. Received: {function!r:.200}.",
            hint="pass the function itself, without calling it: `train`, not `train(...)`",
        )
    module = _find_unimportable_module(function if inner is None else inner)
    try:
        if module is not None:
            cloudpickle.register_pickle_by_value(module)
        pickled: bytes = cloudpickle.dumps(function)
        return pickled
    except Exception as error:
        raise InputError(
            f"`{what}` cannot be sent to another process: {type(error).__name__}: {error}.",
            hint="make files, locks, connections and the like within the function, and not outside of it",
        ) from error
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)


def refuse_while_loading() -> None:
    """Raise InputError in a process that imports its function's module, where the import starts trials again."""
    if is_loading():
        raise InputError(
            "Trials were started by the import of the module that a trial's function is in.",
            hint='put the call that starts them under `if __name__ == "__main__":`, or into a function',
        )


def _find_unimportable_module(function: Any) -> Any:
    """The module of a function where another process could not import it by its name; None where it could."""
    from importlib.machinery import PathFinder

    name = getattr(function, "__module__", None) or ""
    module = sys.modules.get(name)
    top = name.partition(".")[0]
    if module is None or top in ("__main__", "builtins") or top in sys.builtin_module_names:
        return None
    try:
        return None if PathFinder.find_spec(top) is not None else module
    except (ImportError, ValueError):
        return module


class TrialProcess:
    """A process that carries out a function once. `poll` is to be called until it returns what came of it."""

    def __init__(
        self,
        work: Work,
        *,
        arguments: tuple[Any, ...] = (),
        named: Mapping[str, Any] | None = None,
        log: Path,
        limit_bytes: int | None = None,
        answer: Answer | None = None,
        changed: threading.Event | None = None,
    ) -> None:
        """Start it.

        Args:
            work: the function and how its processes are started.
            arguments: what the function is called with.
            named: the same, by name.
            log: where what it prints goes; appended.
            limit_bytes: its part of the card, context included; None for no limit.
            answer: answers what the function asks.
            changed: set whenever there may be something for `poll`.
        """
        import cloudpickle

        refuse_while_loading()
        request = {"function": work.function, "arguments": arguments, "named": dict(named or {})}
        self._request = cloudpickle.dumps(request | {"limit_bytes": limit_bytes})
        self._time_limit, self._answer = work.time_limit, answer
        self._changed = changed or threading.Event()
        self._messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._ended: dict[str, Any] | None = None
        self._ended_at = 0.0
        self._is_timed_out = self._is_over = False
        self._kernel_kills = _count_kernel_kills()
        self._started = time.monotonic()
        with open(log, "ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, json.dumps(list(map(str, sys.path))), sys.argv[0] if sys.argv else ""],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                env=dict(work.environment) | {"PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # a Ctrl-C is for the loop, which ends its processes itself
            )
        self._pump = threading.Thread(target=self._exchange, name="fitroom trial", daemon=True)
        self._pump.start()

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._started

    def poll(self) -> Ended | None:
        """Answer what was asked; what came of it once the process is gone, else None."""
        self._take_messages()
        if not self._has_exited():
            if self._time_limit is not None and self.seconds > self._time_limit and self._ended is None:
                self._is_timed_out = True
                self.kill()
            elif self._ended is not None and time.monotonic() - self._ended_at > _SECONDS_TO_EXIT:
                self.kill()  # a thread or a tear-down that does not end
            else:
                return None
        seconds = self.seconds if self._ended is None else self._ended_at - self._started
        self.kill()
        self._take_messages()
        if self._ended is not None:
            return Ended(seconds=seconds, **self._ended)
        if self._is_timed_out:
            return Ended(
                state="timed out", seconds=seconds, error=f"It took longer than the limit of {self._time_limit:g} s."
            )
        return self._describe_end(seconds)

    def wait(self) -> Ended:
        """Wait for the end, answering what is asked. Whatever interrupts that ends the process."""
        try:
            while (ended := self.poll()) is None:
                self._changed.wait(0.1)
                self._changed.clear()
            return ended
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the process and all that it started, and wait until it is gone."""
        if self._is_over:  # its id may be another's by now
            return
        self._is_over = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._pump.join(timeout=1.0)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not self._pump.is_alive():  # else a process that got away has the other end
                with contextlib.suppress(OSError):
                    pipe.close()

    def _exchange(self) -> None:
        """Send the request, then pass on messages as they come; in a thread, since either can block."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(OSError):  # it is gone; `poll` finds out how
            stdin.write(LENGTH.pack(len(self._request)))
            stdin.write(self._request)
            stdin.flush()
        self._request = b""
        with contextlib.suppress(OSError, ValueError):
            for line in stdout:
                self._messages.put(json.loads(line))
                self._changed.set()
        self._changed.set()

    def _take_messages(self) -> None:
        while True:
            try:
                message = self._messages.get_nowait()
            except queue.Empty:
                return
            kind = message.pop("kind")
            if kind == "ended":
                self._ended, self._ended_at = message, time.monotonic()
            elif kind == "call":
                self._reply(message)

    def _reply(self, message: dict[str, Any]) -> None:
        try:
            if self._answer is None:
                raise RuntimeError(f"nobody answers {message['name']!r} here")
            reply = {"value": self._answer(message["name"], message["arguments"], message["named"])}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it is gone meanwhile
            stdin.write(json.dumps(reply).encode() + b"\n")
            stdin.flush()

    def _has_exited(self) -> bool:
        """Whether the process is over. Its id is not freed by that, so that its group can be ended after it."""
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else waits for all children of this process
            self._process.poll()
            return True

    def _describe_end(self, seconds: float) -> Ended:
        """What is known of a process that ended without a word."""
        code = self._process.returncode
        if code >= 0:
            return Ended(state="killed", seconds=seconds, error=f"Its process exited with {code} before it was done.")
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        if -code == signal.SIGKILL and _count_kernel_kills() > self._kernel_kills:
            said = f"Its process was killed by {name}: the host's memory was out, and the system ended it."
            return Ended(state="out of host memory", seconds=seconds, error=said)
        why = ", as the system does where the host's memory is out" if -code == signal.SIGKILL else ""
        return Ended(state="killed", seconds=seconds, error=f"Its process was killed by {name}{why}.")


def _count_kernel_kills() -> int:
    """How many processes of this container the system has ended for want of memory; 0 where it does not say."""
    try:
        lines = Path("/sys/fs/cgroup/memory.events").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    except (OSError, ValueError, IndexError):
        return 0
