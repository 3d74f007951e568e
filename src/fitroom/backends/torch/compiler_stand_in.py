"""PyTorch without its compiler, `torch._dynamo`, whose import takes a quarter of the time that Keras's import takes.

Keras imports it to keep functions out of it, and fake tensors for its settings. In a process that only estimates a
stand-in takes its place. As soon as anything else of the compiler is used, all of it is imported.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_NAME = "torch._dynamo"
_TRIED = ("2.13.",)
"""How the versions of PyTorch begin that this was tried with: others import their compiler."""

_FOR_FAKE_TENSORS = ("config", "source", "utils", "metrics_context", "graph_utils", "bytecode_")
"""How the names of those of its modules begin that fake tensors import; they need none of the others."""


def leave_out_compiler() -> None:
    """Have PyTorch's compiler imported only when it is used. Nothing happens where it is imported."""
    spec = importlib.util.find_spec("torch") if _NAME not in sys.modules else None
    if spec is not None and spec.submodule_search_locations and _is_tried():
        stand_in = _StandIn(Path(spec.submodule_search_locations[0]) / "_dynamo")
        sys.modules[_NAME] = stand_in
        sys.meta_path = [_Finder(stand_in), *sys.meta_path]


def _is_tried() -> bool:
    try:
        return importlib.metadata.version("torch").startswith(_TRIED)
    except importlib.metadata.PackageNotFoundError:
        return False


class _StandIn(ModuleType):
    """Has the modules that fake tensors need, and becomes the compiler when something else of it is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__(_NAME)
        self.__path__ = [str(folder)]

    def disable(self, function: Any = None, *arguments: Any, **options: Any) -> Any:
        """Keep a function out of compiled code, once there is any."""
        if function is None:
            return lambda function: _kept_out(function, arguments, options)
        return _kept_out(function, arguments, options)

    def reset(self) -> None:
        """Forget what was compiled: nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith(_FOR_FAKE_TENSORS):
            return importlib.import_module(f"{_NAME}.{name}")
        return getattr(_import_compiler(self), name)


def _kept_out(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        compiler: Any = sys.modules[_NAME]
        if isinstance(compiler, _StandIn):
            return function(*args, **kwargs)
        return compiler.disable(function, *arguments, **options)(*args, **kwargs)

    return call


def _import_compiler(stand_in: _StandIn) -> ModuleType:
    """The compiler itself, with those of its modules that are imported already."""
    if sys.modules.get(_NAME) is stand_in:
        sys.meta_path = [each for each in sys.meta_path if not isinstance(each, _Finder)]
        del sys.modules[_NAME]
        spec = importlib.util.find_spec(_NAME)
        if spec is None or spec.loader is None:
            raise ImportError(f"No module named {_NAME!r}", name=_NAME)
        module = importlib.util.module_from_spec(spec)
        vars(module).update((name, value) for name, value in vars(stand_in).items() if isinstance(value, ModuleType))
        sys.modules[_NAME] = module
        spec.loader.exec_module(module)
    return sys.modules[_NAME]


class _Finder(MetaPathFinder):
    """Imports the whole compiler before any of its modules that fake tensors do not need."""

    def __init__(self, stand_in: _StandIn) -> None:
        self._stand_in = stand_in

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{_NAME}.") or fullname.removeprefix(f"{_NAME}.").startswith(_FOR_FAKE_TENSORS):
            return None
        _import_compiler(self._stand_in)
        return ModuleSpec(fullname, _Imported()) if fullname in sys.modules else None


class _Imported(Loader):
    """Gives what the import of the compiler has imported."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        pass
