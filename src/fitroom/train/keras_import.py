"""Calls a function when a module has been imported, in whatever order a script imports modules.

`fitroom run` has to act after Keras is imported and before the script uses Keras. The import may come from the script,
from `tf.keras`, or from `import tensorflow`, which first looks Keras up and then imports it. Scripts look Keras up as
well, to see whether it is installed. A look-up is therefore no sign of an import. A module counts as imported when its
code has run to the end; after an error, the next attempt counts.
"""

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_BRINGS_KERAS = "tensorflow"
"""TensorFlow imports Keras in the middle of its own import, and hides errors there. Neither module can be used before
TensorFlow's import is complete, so the calls wait until then."""


def when_imported(
    names: Collection[str], do: Callable[[ModuleType], None], *, before: Callable[[str], None] = lambda name: None
) -> None:
    """Have `do` called with each module of these names once its import is complete, before the importing code runs on.

    For a module that is imported already, `do` is called now. For one that is imported anew, as by
    `keras.config.set_backend`, `do` is called again. `before` is called with the name when an import begins.
    """
    sys.meta_path.insert(0, _ImportHook(names, do, before))
    for name in names:
        if (module := sys.modules.get(name)) is not None and not _is_under_way(module):
            do(module)


class _ImportHook(MetaPathFinder):
    """Asks the finders of modules behind it, and wraps the loader that they return.

    Look-ups may come at any time, in any thread, nested. So the only state is that of each thread's own imports.
    """

    def __init__(self, names: Collection[str], do: Callable[[ModuleType], None], before: Callable[[str], None]) -> None:
        self._names, self._do, self._before = frozenset(names), do, before
        self._own = _ThreadsImports()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec that the finders behind this one return."""
        if name not in self._names and name != _BRINGS_KERAS:
            return None
        spec = _ask(self._finders_behind(), name, path, target)
        if spec is not None and spec.loader is not None:
            self._wrap_loader(spec.loader, name)
        return spec

    def _finders_behind(self) -> list[Any]:
        finders = list(sys.meta_path)
        return finders[finders.index(self) + 1 :] if self in finders else finders

    def _wrap_loader(self, loader: Any, name: str) -> None:
        """Replace `exec_module` of this one loader; its class, which others may check, stays."""
        execute = loader.exec_module

        def execute_and_report(module: ModuleType) -> None:
            if module.__name__ != name:  # a loader of several modules, as that of a zip file is
                execute(module)
                return
            vars(loader).pop("exec_module", None)
            self._execute(execute, module)

        loader.exec_module = execute_and_report

    def _execute(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        own = self._own
        own.depth += 1
        try:
            if module.__name__ in self._names:
                self._before(module.__name__)
            execute(module)
            if module.__name__ in self._names and module not in own.complete:
                own.complete.append(module)
        finally:
            own.depth -= 1
            while own.complete and not own.depth:
                self._do(own.complete.pop(0))


class _ThreadsImports(threading.local):
    """The imports under way in one thread."""

    def __init__(self) -> None:
        self.depth = 0
        """How many of the watched modules are being imported, one within the other."""

        self.complete: list[ModuleType] = []
        """Watched modules that are complete, within one that is not."""


def _ask(finders: list[Any], name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    for finder in finders:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec(name, path, target) if find_spec else None
        if spec is not None:
            return spec
    return None


def _is_under_way(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
