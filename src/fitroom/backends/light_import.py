"""Importing Keras without what an estimate never uses: plots, data frames, other frameworks.

Keras imports matplotlib, OpenCV, pandas and JAX wherever they are installed, whatever its backend is: a third of the
time that its import takes; TensorFlow, among others, the interface of its first version. In a process that only
estimates, stand-ins take their places while Keras is imported. A stand-in imports the real module when it is first
used, and afterwards whoever imports the module gets the real one.
"""

import functools
import gc
import importlib
import importlib.util
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_SPLASH = "jax.experimental.pallas.ops.tpu.splash_attention"
_PLOTS = ("matplotlib", "matplotlib.patches", "matplotlib.pyplot")

_TENSORFLOW = tuple(
    f"tensorflow._api.v2.{name}"
    for name in (
        *("compat", "experimental.dtensor", "feature_column", "lite", "test", "tpu"),
        *("__internal__.feature_column", "__internal__.test"),
        *("__internal__.distribute.combinations", "__internal__.distribute.multi_process_runner"),
    )
)
"""Parts of TensorFlow's interface that bring packages along which nothing else imports."""

_LATER = {
    "jax": (
        *_PLOTS,
        "cv2",
        "pandas",
        _SPLASH,
        f"{_SPLASH}.splash_attention_kernel",
        f"{_SPLASH}.splash_attention_mask",
    ),
    "tensorflow": (*_PLOTS, "cv2", "pandas", *_TENSORFLOW),
    "torch": (*_PLOTS, "cv2", "pandas"),
}
"""By backend: what Keras imports and an estimate does not use. A module comes after the package that it is in."""

_ABSENT = {"jax": ("sklearn",), "tensorflow": ("jax", "sklearn"), "torch": ("jax", "sklearn")}
"""By backend: what Keras asks for at once when it is there, and does without where it is not."""


def import_keras_lightly(backend: str) -> None:
    """Have the next import of Keras leave out what an estimate does not use. Nothing happens where it is imported."""
    if "keras" not in sys.modules and not any(isinstance(each, _KerasFinder) for each in sys.meta_path):
        # Another list each time: a thread that is importing something goes on with the one it began with.
        sys.meta_path = [_KerasFinder(backend), *sys.meta_path]


class _KerasFinder(MetaPathFinder):
    """Finds Keras where Python would, once, and nothing else."""

    def __init__(self, backend: str) -> None:
        self._backend = backend

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "keras":
            return None
        sys.meta_path = [each for each in sys.meta_path if each is not self]
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _with_stand_ins(loader.exec_module, self._backend)
        return spec


def _with_stand_ins(execute: Callable[[ModuleType], None], backend: str) -> Callable[[ModuleType], None]:
    def execute_lightly(module: ModuleType) -> None:
        with (
            _stand_ins(_LATER.get(backend, ()), _ABSENT.get(backend, ())),
            _uncollected(),
            _annotations_compiled_once(),
        ):
            execute(module)

    return execute_lightly


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage among what is imported, now and later: nearly all of it stays."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def _annotations_compiled_once() -> Iterator[None]:
    """Have `typing` compile each annotation in text once: TensorFlow's operations have the same few 18,000 times.

    It finds the built-in function as it finds any name, and its own names come first.
    """
    names = vars(typing)
    names["compile"] = functools.cache(compile)
    try:
        yield
    finally:
        names.pop("compile", None)


@contextmanager
def _stand_ins(later: Sequence[str], absent: Sequence[str]) -> Iterator[None]:
    """Put stand-ins in the places of modules for the time of the block."""
    modules: dict[str, Any] = sys.modules  # None says that a module is absent
    put: dict[str, Any] = {}
    for name in later:
        if name not in modules and _is_there(name):
            stand_in = _StandIn(name)
            package, _, last = name.rpartition(".")
            if package in put:
                vars(put[package])[last] = stand_in
            put[name] = stand_in
    put |= {name: None for name in absent if name not in modules}
    modules.update(put)
    try:
        yield
    finally:
        for name, stand_in in put.items():
            if name in modules and modules[name] is stand_in:
                del modules[name]


def _is_there(name: str) -> bool:
    """Whether the outermost package of a module is installed."""
    try:
        return importlib.util.find_spec(name.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


class _StandIn(ModuleType):
    """Becomes the real module when something of it is asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package: modules in it may be imported

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real(self), name)


def _real(stand_in: ModuleType) -> ModuleType:
    """The module itself, even in the middle of the import of Keras, when stand-ins still have the places."""
    name = stand_in.__name__
    if sys.modules.get(name) is stand_in:
        outermost = name.partition(".")[0]
        for each in [one for one, module in sys.modules.items() if isinstance(module, _StandIn)]:
            if each.partition(".")[0] == outermost:
                del sys.modules[each]
    return importlib.import_module(name)
