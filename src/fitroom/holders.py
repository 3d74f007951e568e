"""Who holds an object: the shortest way to it from a variable that somebody can name.

The search starts at the variables of running functions and of modules, the user's first, and follows what each object
refers to, as Python's collector knows it, until the objects are found.
"""

import functools
import gc
import inspect
import os
import sys
import tracemalloc
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_MOST_OBJECTS = 500_000
"""The modules of three frameworks reach millions; what is a hundred thousand objects away tells nobody anything."""

_FUNCTION_LOCALS = inspect.CO_OPTIMIZED
_LIBRARIES = ("site-packages", "dist-packages", os.path.dirname(os.__file__))
_OWN = os.path.dirname(__file__)
_LRU_CACHE = type(functools.lru_cache(len))
_LAST_ERROR = ("last_exc", "last_value", "last_traceback")
_NOT_FOLLOWED = (types.ModuleType, type, types.CodeType, types.BuiltinFunctionType, str, bytes, int, float)
_NOT_NAMED = (list, dict, tuple, set, types.CellType, types.MethodType, types.TracebackType, types.FrameType)


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The way to an object from what holds it."""

    root: str
    """Where the way starts, as one would name it: "`results`, a list in train.py"."""

    kind: str
    """What that is: variable, local, notebook, traceback, keras, registry, cache, layer, or unknown. A layer holds the
    models that it was called for, by a node for each call."""

    by: tuple[str, ...] = ()
    """Objects on the way that have a name in Keras or Python, from the root on: "History", "Sequential 'net'"."""


UNKNOWN = Holder(root="something that Python's collector cannot see", kind="unknown")


@dataclass(frozen=True)
class _Root:
    kind: str
    name: str
    value: Any


def find_holders(targets: Sequence[Any], *, in_libraries: bool = True) -> list[Holder]:
    """Who holds each of some objects, in their order.

    Args:
        targets: The objects.
        in_libraries: Whether to look at the variables of libraries, too, which takes seconds.
    """
    found: dict[int, Holder] = {}
    for roots in (_user_roots, _registry_roots, *((_library_roots,) if in_libraries else ())):
        missing = {id(each) for each in targets} - set(found)
        if missing:
            found |= _search(list(roots()), missing)
    return [found.get(id(each), UNKNOWN) for each in targets]


def list_held(kind: type) -> list[Any]:
    """All objects of a type that the user's variables hold, in whatever they are; the collector lists not all types."""
    return [each for each in _walk(list(_user_roots()), {}) if type(each) is kind]


def find_user_line(traceback: tracemalloc.Traceback | None) -> str | None:
    """The innermost line of an allocation's traceback that is in the user's own files: "train.py:31"."""
    for frame in reversed(traceback or ()):
        if not _is_library(frame.filename) and not frame.filename.startswith((_OWN, "<")):
            return f"{_short(frame.filename)}:{frame.lineno}"
    return None


def name_line(traceback: tracemalloc.Traceback) -> str | None:
    """The innermost line of an allocation's traceback, or None where that is in Python or in fitroom itself.

    A file of a library is named from its package on: "keras/src/ops/core.py:31".
    """
    file = traceback[-1].filename
    if file.startswith((_OWN, "<")) or (_is_library(file) and "-packages" not in file):
        return None
    in_package = file.rpartition(f"-packages{os.sep}")[2] if "-packages" in file else _short(file)
    return f"{in_package}:{traceback[-1].lineno}"


def _search(roots: Sequence[_Root], missing: set[int]) -> dict[int, Holder]:
    """Go out from the roots until all are found or nothing is left to look at."""
    parents: dict[int, tuple[Any, Any]] = {}
    start: dict[int, _Root] = {}
    for root in roots:
        start.setdefault(id(root.value), root)
    found: dict[int, Holder] = {}
    for each in _walk(roots, parents):
        if id(each) in missing:
            found[id(each)] = _make_holder(each, parents, start)
            if len(found) == len(missing):
                break
    return found


def _walk(roots: Sequence[_Root], parents: dict[int, tuple[Any, Any]]) -> Iterator[Any]:
    """All objects that can be reached from the roots, nearest first, each once.

    Args:
        roots: Where to begin.
        parents: Filled in: by `id`, each object and the one that it was reached from, or None.
    """
    namespaces = {id(vars(module)) for module in list(sys.modules.values()) if isinstance(module, types.ModuleType)}
    level: list[Any] = []
    for root in roots:
        if id(root.value) not in parents:
            parents[id(root.value)] = (root.value, None)
            level.append(root.value)
    while level and len(parents) < _MOST_OBJECTS:
        yield from level
        next_level = []
        for each in level:
            for inner in gc.get_referents(each):
                if id(inner) in parents or id(inner) in namespaces or issubclass(type(inner), _NOT_FOLLOWED):
                    continue
                parents[id(inner)] = (inner, each)
                next_level.append(inner)
        level = next_level


def _make_holder(target: Any, parents: dict[int, tuple[Any, Any]], start: dict[int, _Root]) -> Holder:
    way, at = [], target
    while at is not None:
        way.append(at)
        _, at = parents[id(at)]
    root = start[id(way[-1])]
    names = [name for each in way[:0:-1] if (name := _name_object(each)) is not None]
    if any(type(each) is _LRU_CACHE for each in way):
        kind = "cache"
    else:
        kind = "layer" if _is_layer(way[-1]) and "Node" in names else root.kind
    return Holder(root=root.name, kind=kind, by=tuple(dict.fromkeys(names)))


def _is_layer(value: Any) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.Layer)


def _user_roots() -> Iterator[_Root]:
    """The last error, what a notebook keeps, the variables of running functions and of the user's modules."""
    for name in _LAST_ERROR:
        if (value := getattr(sys, name, None)) is not None:
            yield _Root("traceback", f"`sys.{name}`, the last error that nobody caught", value)
    for frame in _running_frames():
        code = frame.f_code
        place = f"a variable of `{code.co_name}` in {_short(code.co_filename)}"
        for name, value in read_locals(frame).items():
            yield _Root("local", f"`{name}`, {place}", value)
    for module in _modules(of_user=True):
        for name, value in list(vars(module).items()):
            if not name.startswith("__") and not issubclass(type(value), _NOT_FOLLOWED):
                yield _name_global(module, name, value)


def _registry_roots() -> Iterator[_Root]:
    """Registries that are known to keep things of a user's for good."""
    if keras := sys.modules.get("keras"):
        yield _Root("keras", "Keras's registry of custom objects", keras.saving.get_custom_objects())
    if tensorflow := sys.modules.get("tensorflow.python.framework.ops"):
        yield _Root("registry", "TensorFlow's registry of gradients", tensorflow.gradient_registry)


def _library_roots() -> Iterator[_Root]:
    """The variables of all other modules, such as registries."""
    for module in _modules(of_user=False):
        for name, value in list(vars(module).items()):
            if not name.startswith("__") and not issubclass(type(value), _NOT_FOLLOWED):
                yield _name_global(module, name, value)


def _modules(*, of_user: bool) -> Iterator[types.ModuleType]:
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType):
            file = getattr(module, "__file__", None)
            is_own = isinstance(file, str) and file.startswith(_OWN)
            is_user = module.__name__ == "__main__" or (isinstance(file, str) and not _is_library(file) and not is_own)
            if is_user == of_user and not is_own:
                yield module


def _name_global(module: types.ModuleType, name: str, value: Any) -> _Root:
    if module.__name__ == "__main__" and (name == "Out" or set(name) == {"_"} or _is_numbered_output(name)):
        return _Root("notebook", f"`{name}`, in which the notebook keeps what cells ended with", value)
    file = getattr(module, "__file__", None) or ""
    place = module.__name__ if _is_library(file) or not file else _short(file)
    return _Root("variable", f"`{name}`, a {type(value).__name__} in {place}", value)


def _is_numbered_output(name: str) -> bool:
    return name.startswith("_") and name[1:].isdigit()


def _name_object(each: Any) -> str | None:
    """The name of an object that a reader knows, or None for dictionaries, cells and the like."""
    kind = type(each)
    if issubclass(kind, _NOT_NAMED) or kind.__name__.startswith("Tracked"):
        return None
    if kind is types.FunctionType:
        return f"function `{each.__qualname__}`"
    if issubclass(kind, BaseException):
        return f"{kind.__name__} (an error)"
    label = getattr(each, "name", None) if (kind.__module__ or "").startswith("keras") else None
    return f"{kind.__name__} {label!r}" if isinstance(label, str) else kind.__name__


def _running_frames() -> Iterator[types.FrameType]:
    """The functions that are running in all threads, without those of fitroom and of libraries."""
    for frame in sys._current_frames().values():
        at: types.FrameType | None = frame
        while at is not None:
            code = at.f_code
            is_function = bool(code.co_flags & _FUNCTION_LOCALS)  # a module's variables are found by its name
            if is_function and not code.co_filename.startswith(_OWN) and not _is_library(code.co_filename):
                yield at
            at = at.f_back


def read_locals(frame: types.FrameType) -> dict[str, Any]:
    """The variables of a running function, without a trace of having been read.

    Before Python 3.13 a frame keeps the dictionary that it was asked for, and so everything in it, until it ends.
    """
    asked = frame.f_locals
    found = dict(asked)
    if sys.version_info < (3, 13):
        asked.clear()
    return found


@functools.cache
def _is_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES) or file.startswith("<frozen")


def _short(file: str) -> str:
    """A file as a reader knows it: relative to the current folder where it lies there."""
    inside = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
    return inside if len(inside) < 60 else os.path.basename(file)
