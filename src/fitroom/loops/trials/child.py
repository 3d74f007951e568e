"""The process of one trial, seen from inside.

It reads the function and its arguments from stdin and writes messages to stdout, one JSON object a line, before either
is given to the function: what that prints goes to the log. When stdin ends, the loop that started the process is gone,
and the process and all that it started end as well.
"""

import contextlib
import io
import json
import os
import queue
import signal
import struct
import sys
import threading
import traceback
from typing import Any, BinaryIO

from fitroom.errors import FitroomError, HostMemoryError, OutOfMemoryError, message_of
from fitroom.files.json_lines import finite

LENGTH = struct.Struct("<Q")
"""How many bytes of pickled request follow on stdin."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_LONGEST_TEXT = 20_000


class Channel:
    """The two pipes to the loop: messages up, answers down."""

    def __init__(self, down: BinaryIO, up: BinaryIO) -> None:
        self._down, self._up = down, up
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def read_request(self) -> bytes:
        """Read what is to be carried out, and start to listen for answers."""
        (length,) = LENGTH.unpack(self._down.read(LENGTH.size))
        request = self._down.read(length)
        threading.Thread(target=self._listen, name="fitroom trial", daemon=True).start()
        return request

    def send(self, message: dict[str, Any]) -> None:
        """Send a message. A forked copy of the process sends none: it is not the trial."""
        if os.getpid() == self._pid:
            line = json.dumps(message).encode() + b"\n"
            with self._lock:
                self._up.write(line)
                self._up.flush()

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        """Have the loop call something, and return its answer. Raises RuntimeError with the text of what it raised."""
        if os.getpid() != self._pid:
            raise RuntimeError(f"{name} was called in a forked copy of the trial, which cannot ask the loop")
        self.send({"kind": "call", "name": name, "arguments": arguments, "named": named})
        answer = self._answers.get()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("value")

    def _listen(self) -> None:
        for line in self._down:
            self._answers.put(json.loads(line))
        end_group()


_channel: Channel | None = None
_is_loading = False


def get_channel() -> Channel:
    """The channel to the loop, within a trial's process."""
    assert _channel is not None, "only within a trial's process"
    return _channel


def main() -> None:
    """Carry out one trial. Called by the program that `process.py` starts."""
    global _channel
    _channel = Channel(*_take_pipes())
    pid = os.getpid()
    ended = _carry_out(_channel.read_request())
    _flush()
    if os.getpid() != pid:  # forked by the function, and returned from it too
        os._exit(0)
    _channel.send({"kind": "ended", **ended})


def end_group() -> None:
    """End this process and all that it started."""
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Take the pipes away from stdin and stdout: stdin becomes empty, and stdout goes where stderr goes."""
    down, up = os.dup(_STDIN), os.dup(_STDOUT)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, _STDIN)
    os.dup2(_STDERR, _STDOUT)
    return os.fdopen(down, "rb"), os.fdopen(up, "wb")


def _carry_out(request: bytes) -> dict[str, Any]:
    """Call the function; what came of it, for the table."""
    import cloudpickle

    from fitroom.loops.trials.plain import NotPlainError, convert_to_plain

    try:
        wanted = cloudpickle.loads(request)
        if wanted["limit_bytes"] is not None:
            _limit_memory(wanted["limit_bytes"])
        function = _load_function(wanted["function"])
        returned = function(*wanted["arguments"], **wanted["named"])
        try:
            result = finite(convert_to_plain(returned, "it"))
        except NotPlainError as error:
            return {
                "state": "failed",
                "error": f"A trial must return numbers, texts, and lists and dicts of these; {error}. Return "
                "`history.history` for a History, `array.tolist()` for an array, the path for what is saved in a file.",
                **_read_memory(),
            }
        return {"state": "finished", "result": result, **_read_memory()}
    except BaseException as error:
        described = _describe(error)
        _print_trace(described)
        return described | _read_memory()


def is_loading() -> bool:
    """Whether this is a trial's process that is about to import what its function is made of."""
    return _is_loading


def _load_function(pickled: bytes) -> Any:
    global _is_loading
    import cloudpickle

    _is_loading = True
    try:
        return cloudpickle.loads(pickled)
    finally:
        _is_loading = False


def _limit_memory(device_bytes: int) -> None:
    """Keep the framework to its part of the card, where there is one: JAX and TensorFlow take most of it otherwise."""
    from fitroom.backends.choose import choose_backend, limit_memory
    from fitroom.backends.quiet import hold_stderr
    from fitroom.cards.catalogue import find_card
    from fitroom.cards.nvml import live_gpus
    from fitroom.cards.overhead import context_bytes
    from fitroom.errors import UnknownNameError

    gpus = live_gpus()
    if not gpus:
        return
    try:
        card = find_card(gpus[0].name)
    except UnknownNameError:
        card = None
    is_set = "KERAS_BACKEND" in os.environ
    backend = choose_backend(None)
    if not is_set:  # the function may choose another one, and Keras its own default
        del os.environ["KERAS_BACKEND"]
    with hold_stderr():
        limit_memory(backend, max(1, device_bytes - context_bytes(card, backend)))


def _describe(error: BaseException) -> dict[str, Any]:
    """What an error says, with its kind: out of memory is told apart from all others."""
    state = "failed"
    try:
        state = _find_state(error)
        said = message_of(error).strip()
        if not isinstance(error, FitroomError):
            said = f"{type(error).__name__}: {said}" if said else type(error).__name__
        elif error.hint:
            said = f"{said} (hint: {error.hint})"
        if isinstance(error, SystemExit):
            said = f"The function ended the process: sys.exit({error.code!r})."
        elif _is_pruned(error):
            state = "pruned"
        trace = "".join(traceback.format_exception(error))
    except BaseException as again:  # as when the memory is out for this, too
        said, trace = f"{type(error).__name__}, and its text could not be read: {type(again).__name__}", ""
    return {"state": state, "error": said[:_LONGEST_TEXT], "traceback": trace[-_LONGEST_TEXT:] or None}


def _find_state(error: BaseException) -> str:
    from fitroom.backends.out_of_memory import error_and_causes, recognise

    if any(isinstance(one, MemoryError | HostMemoryError) for one in error_and_causes(error)):
        return "out of host memory"
    is_out = any(isinstance(one, OutOfMemoryError) for one in error_and_causes(error))
    if not is_out and "keras" in sys.modules:
        from fitroom.backends.choose import current_backend

        is_out = current_backend().is_out_of_memory(error)
    return "out of memory" if is_out or recognise(error, by_class=lambda one: False) else "failed"


def _is_pruned(error: BaseException) -> bool:
    """Whether a tuner's own exception ended the trial. Its package need not be imported to know."""
    return any(kind.__name__ == "TrialPruned" and kind.__module__.startswith("optuna") for kind in type(error).__mro__)


def _read_memory() -> dict[str, Any]:
    """The most memory that this process had, of the host and of the device; None where nobody counts."""
    found: dict[str, Any] = {"host_bytes": None, "peak_bytes": None}
    with contextlib.suppress(Exception):  # figures for people: a trial is not lost for want of them
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        found["host_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        if "keras" in sys.modules:
            from fitroom.backends.choose import current_backend

            backend = current_backend()
            found["peak_bytes"] = backend.read_memory(backend.devices()[0]).peak_bytes
    return found


def _print_trace(described: dict[str, Any]) -> None:
    """Print the traceback into the log, below what the function printed."""
    with contextlib.suppress(Exception):
        print(described["traceback"] or described["error"], file=sys.stderr)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOBase):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
