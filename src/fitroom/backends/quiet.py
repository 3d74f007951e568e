"""Keeping what frameworks write to stderr of themselves away from people, and showing it where something fails.

Three ways: settings that a framework reads when it is imported (`quieten`), stderr held back during a block
(`hold_stderr`), and TensorFlow's announcements held back whenever another backend has it imported
(`quiet_tensorflow_imports`).
"""

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from io import TextIOWrapper
from types import ModuleType
from typing import Any, BinaryIO

from fitroom.backends.light_import import import_keras_lightly
from fitroom.backends.torch.compiler_stand_in import leave_out_compiler

_STDERR = 2
_ONE_AT_A_TIME = threading.RLock()
"""There is one stderr: of two threads that hold it back, the later to end would put back the file of the other."""

_TENSORFLOW = "tensorflow"


def quieten(backend: str) -> None:
    """Set the log levels of the frameworks, before a backend is imported, so that only errors reach stderr."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if backend != "tensorflow":
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # Keras imports it to save a model, and it announces itself
    logging.getLogger("jax_plugins").setLevel(logging.ERROR)
    if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its kernels crash where memory runs out


def quieten_for_estimates(backend: str) -> None:
    """`quieten` for a process that only estimates.

    It also keeps JAX from taking the memory of a live card, and Keras from importing what an estimate does not use.
    """
    quieten(backend)
    import_keras_lightly(backend)
    if backend == "torch":
        leave_out_compiler()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # it announces itself
    if backend == "jax":
        os.environ["JAX_PLATFORMS"] = "cpu"


class HeldText:
    """What was written to stderr while it was held back."""

    def __init__(self) -> None:
        self.text = ""
        """All of it, once the block is over."""

    def read(self, file: BinaryIO) -> None:
        """Take the text from the file that stood in for stderr."""
        file.seek(0)
        self.text = file.read().decode(errors="replace").strip()


@contextmanager
def hold_stderr() -> Iterator[HeldText]:
    """Hold back what this process writes to stderr, C++ included. After an error it is written all the same.

    >>> with hold_stderr() as held:
    ...     _ = os.write(2, b"oneDNN custom operations are on")
    >>> held.text
    'oneDNN custom operations are on'
    """
    held = HeldText()
    with _ONE_AT_A_TIME:
        if sys.stderr is not None:
            sys.stderr.flush()
        try:
            own = os.dup(_STDERR)
        except OSError:  # closed, as `2>&-` does: nobody would read it
            yield held
            return
        with tempfile.TemporaryFile() as file, _python_stderr_on_descriptor():
            os.dup2(file.fileno(), _STDERR)
            try:
                yield held
            except BaseException:
                os.dup2(own, _STDERR)
                held.read(file)
                os.write(_STDERR, held.text.encode() + b"\n" if held.text else b"")
                raise
            finally:
                if sys.stderr is not None:
                    sys.stderr.flush()
                os.dup2(own, _STDERR)
                os.close(own)
                held.read(file)


@contextmanager
def _python_stderr_on_descriptor() -> Iterator[None]:
    """Have `sys.stderr` write to file descriptor 2 where something else has taken its place.

    A live view of rich puts its own object there and prints what it is given on a handle of its own, past the
    descriptor: a logger's traceback would be seen. A handler that a framework makes meanwhile keeps the file, so it is
    never closed.
    """
    replaced = sys.stderr
    if replaced is None or _writes_to_descriptor(replaced):
        yield
        return
    own = open(_STDERR, "w", closefd=False, buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    sys.stderr = own
    try:
        yield
    finally:
        own.flush()
        if sys.stderr is own:
            sys.stderr = replaced


def _writes_to_descriptor(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == _STDERR) and isinstance(stream, TextIOWrapper)
    except (AttributeError, OSError, ValueError):
        return False


@contextmanager
def quiet_tensorflow_imports() -> Iterator[None]:
    """Hold stderr back whenever TensorFlow is imported during the block; an import that fails is still heard.

    Of whatever Keras writes down, a layer or a schedule, it asks whether that is TensorFlow's, and where TensorFlow is
    installed imports it to find out: in the middle of an estimate or a plan on JAX or PyTorch.
    """
    if _TENSORFLOW in sys.modules:
        yield
        return
    finder = _TensorFlowFinder()
    # Another list each time: a thread that is importing something goes on with the one it began with.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [each for each in sys.meta_path if each is not finder]


class _TensorFlowFinder(MetaPathFinder):
    """Finds TensorFlow where Python would, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _TENSORFLOW else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader  # the object stays the same: others ask it for sources and files
            loader.exec_module = _with_stderr_held(loader.exec_module)
        return spec


def _with_stderr_held(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def execute_quietly(module: ModuleType) -> None:
        with hold_stderr():
            execute(module)

    return execute_quietly
