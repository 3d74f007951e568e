"""Who holds an object: the way from it, by what refers to it, to a variable that somebody can name.

Python's collector knows which object refers to which. The locals of functions that are running are not among them and
are read from the frames.
"""

import functools
import gc
import inspect
import os
import sys
import tracemalloc
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_DEEPEST = 14
_WIDEST = 600
"""Where this many objects refer to one, looking further costs more than it tells."""

_FUNCTION_LOCALS = inspect.CO_OPTIMIZED
_LIBRARIES = ("site-packages", "dist-packages", os.path.dirname(os.__file__))
_OWN = os.path.dirname(os.path.dirname(__file__))


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The way from an object to what holds it."""

    root: str
    """What is at the end of the way, as one would name it: "`results`, a list in train.py"."""

    kind: str
    """What the root is: variable, local, notebook, traceback, registry, cache or unknown."""

    by: tuple[str, ...]
    """Objects on the way that have a name in Keras or Python, from the object on: "History", "Sequential"."""


UNKNOWN = Holder(root="something that Python's collector cannot see", kind="unknown", by=())


def find_holder(held: Any, ignore: Iterable[Any] = ()) -> Holder:
    """Who holds an object. Runs through all objects of the process once for each step of the way.

    Args:
        held: The object.
        ignore: Objects of ours that refer to it, too.
    """
    frames = list(_running_frames())
    locals_by_id = _index_locals(frames)
    skip = {id(each) for each in (*ignore, frames, locals_by_id, sys._getframe())}
    parents: dict[int, tuple[Any, Any]] = {id(held): (held, None)}
    level: list[Any] = [held]
    for _ in range(_DEEPEST):
        for each in level:
            if id(each) in locals_by_id:
                return _make_holder(each, parents, *locals_by_id[id(each)])
        skip |= {id(level), id(parents)}
        above = []
        for referrer in gc.get_referrers(*level):
            if id(referrer) in skip or id(referrer) in parents or _is_ours(referrer):
                continue
            child = _child_of(referrer, level)
            if child is None:
                continue
            parents[id(referrer)] = (referrer, child)
            if found := _name_root(referrer, child):
                return _make_holder(child, parents, *found)
            above.append(referrer)
        if not above or len(above) > _WIDEST:
            break
        level = above
    return UNKNOWN


def _child_of(referrer: Any, level: Sequence[Any]) -> Any | None:
    wanted = {id(each) for each in level}
    return next((each for each in gc.get_referents(referrer) if id(each) in wanted), None)


def _is_ours(referrer: Any) -> bool:
    """Whether a frame of this file, or what it uses, is what refers to an object."""
    return isinstance(referrer, types.FrameType) and referrer.f_code.co_filename.startswith(_OWN)


def _make_holder(child: Any, parents: dict[int, tuple[Any, Any]], kind: str, root: str) -> Holder:
    by: list[str] = []
    at: Any = child
    while at is not None:
        at_object, at = parents[id(at)]
        if name := _name_on_the_way(at_object):
            by.append(name)
    return Holder(root=root, kind=kind, by=tuple(dict.fromkeys(reversed(by))))


def _name_root(referrer: Any, child: Any) -> tuple[str, str] | None:
    """Kind and name where the way ends at an object: a module, a traceback, a registry, a cache."""
    if isinstance(referrer, types.TracebackType):
        return "traceback", _name_traceback(referrer)
    if isinstance(referrer, functools._lru_cache_wrapper):
        function = referrer.__wrapped__
        return "cache", f"the cache of `{function.__qualname__}` in {_place(function)}"
    if isinstance(referrer, types.FrameType) and not _is_library(referrer.f_code.co_filename):
        return "local", f"a variable of `{referrer.f_code.co_name}` in {_short(referrer.f_code.co_filename)}"
    if not isinstance(referrer, dict):
        return None
    module = _module_of(referrer)
    if module is None:
        return None
    name = next((str(key) for key, value in list(referrer.items()) if value is child), "?")
    return _name_global(module, name, child)


def _name_global(module: types.ModuleType, name: str, child: Any) -> tuple[str, str]:
    if module is sys and name in ("last_exc", "last_value", "last_traceback"):
        return "traceback", f"`sys.{name}`, the last error that nobody caught"
    if module.__name__ == "__main__" and (name == "Out" or set(name) == {"_"} or _is_numbered_output(name)):
        return "notebook", f"`{name}`, in which the notebook keeps what cells ended with"
    file = getattr(module, "__file__", None) or ""
    if "gradient_registry" in name:
        return "registry", "TensorFlow's registry of gradients"
    place = module.__name__ if _is_library(file) or not file else _short(file)
    what = type(child).__name__
    return "variable", f"`{name}`, a {what} in {place}"


def _is_numbered_output(name: str) -> bool:
    return name.startswith("_") and name[1:].isdigit()


def _name_traceback(traceback: types.TracebackType) -> str:
    """A traceback by the line at which it starts, and as the last uncaught error where it is that."""
    for name in ("last_exc", "last_value"):
        error = getattr(sys, name, None)
        if isinstance(error, BaseException) and _chain_has(error.__traceback__, traceback):
            return f"`sys.{name}`, the last error that nobody caught"
    code = traceback.tb_frame.f_code
    return f"the traceback of an error, through `{code.co_name}` in {_short(code.co_filename)}:{traceback.tb_lineno}"


def _chain_has(start: types.TracebackType | None, wanted: types.TracebackType) -> bool:
    while start is not None:
        if start is wanted:
            return True
        start = start.tb_next
    return False


def _name_on_the_way(each: Any) -> str | None:
    """The name of an object that a reader knows, or None for dictionaries, cells and the like."""
    kind = type(each)
    module = kind.__module__ or ""
    if kind.__name__ in ("list", "dict", "tuple", "cell", "set", "module", "frame", "type", "ReferenceType"):
        return None
    if isinstance(each, types.FunctionType):
        return f"function `{each.__qualname__}`"
    if isinstance(each, types.MethodType | types.BuiltinFunctionType):
        return None
    if isinstance(each, BaseException):
        return f"{kind.__name__} (an error)"
    label = getattr(each, "name", None) if module.startswith(("keras", "tensorflow")) else None
    named = f" {label!r}" if isinstance(label, str) and "Tracked" not in kind.__name__ else ""
    return None if kind.__name__.startswith("Tracked") else f"{kind.__name__}{named}"


def _module_of(namespace: dict[str, Any]) -> types.ModuleType | None:
    name = namespace.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if isinstance(module, types.ModuleType) and vars(module) is namespace:
        return module
    return None


def _running_frames() -> Iterator[types.FrameType]:
    """The frames of all threads that are running, without those of fitroom itself."""
    for frame in sys._current_frames().values():
        at: types.FrameType | None = frame
        while at is not None:
            if not at.f_code.co_filename.startswith(_OWN):
                yield at
            at = at.f_back


def _index_locals(frames: Iterable[types.FrameType]) -> dict[int, tuple[str, str]]:
    """The objects that running functions have in variables, with kind and name."""
    found: dict[int, tuple[str, str]] = {}
    for frame in frames:
        if not frame.f_code.co_flags & _FUNCTION_LOCALS:
            continue  # the variables of a module are found by its namespace
        code = frame.f_code
        for name, value in read_locals(frame).items():
            place = f"`{name}`, a variable of `{code.co_name}` in {_short(code.co_filename)}"
            found.setdefault(id(value), ("local", place))
    return found


def read_locals(frame: types.FrameType) -> dict[str, Any]:
    """The variables of a running function, without a trace of having been read.

    Before Python 3.13 a frame keeps the dictionary that it was asked for, and so everything in it, until it ends.
    """
    asked = frame.f_locals
    found = dict(asked)
    if sys.version_info < (3, 13):
        asked.clear()
    return found


def find_user_line(traceback: tracemalloc.Traceback | None) -> str | None:
    """The innermost line of an allocation's traceback that is in the user's own files: "train.py:31"."""
    for frame in reversed(traceback or ()):
        if not _is_library(frame.filename) and not frame.filename.startswith((_OWN, "<")):
            return f"{_short(frame.filename)}:{frame.lineno}"
    return None


def name_line(traceback: tracemalloc.Traceback) -> str | None:
    """The innermost line of an allocation's traceback, or None where that is in Python or in fitroom itself."""
    frame = traceback[-1]
    if (
        frame.filename.startswith((_OWN, "<", os.path.dirname(os.__file__) + os.sep))
        and "-packages" not in frame.filename
    ):
        return None
    return f"{_short(frame.filename)}:{frame.lineno}"


def _place(function: Any) -> str:
    return _short(inspect.getfile(function)) if inspect.isfunction(function) else "Python"


def _is_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES) or file.startswith("<frozen")


def _short(file: str) -> str:
    """A file as a reader knows it: relative to the current folder where it lies there."""
    inside = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
    return inside if len(inside) < 60 else os.path.basename(file)
