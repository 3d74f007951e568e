"""TensorFlow imported on the side of another backend, without its announcements.

Of whatever Keras writes down, a layer or a schedule, it asks whether that is TensorFlow's, and where TensorFlow is
installed imports it to find out: in the middle of an estimate or a plan on JAX or PyTorch.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_NAME = "tensorflow"


@contextmanager
def tensorflow_unheard() -> Iterator[None]:
    """For this time TensorFlow is imported, if at all, with stderr held back; one that fails is heard."""
    if _NAME in sys.modules:
        yield
        return
    finder = _Finder()
    # Another list each time: a thread that is importing something goes on with the one it began with.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [each for each in sys.meta_path if each is not finder]


class _Finder(MetaPathFinder):
    """Finds TensorFlow where Python would, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _NAME else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader  # it stays what it is but for this: others ask it for sources and files
            loader.exec_module = _silently(loader.exec_module)
        return spec


def _silently(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def executed(module: ModuleType) -> None:
        from fitroom.backends.silence import silenced

        with silenced():
            execute(module)

    return executed
