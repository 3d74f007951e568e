"""Modules whose import is noticed, in whatever order a script imports them.

`fitroom run` has to act after Keras is imported and before the script uses it, and Keras comes in many ways: by the
script, by `tf.keras`, or within `import tensorflow`, which first looks it up and then imports it. Scripts look it up as
well, to see whether it is installed. So a look-up means nothing here. What counts is that a module's code was run to
its end; where that fails, the next try counts.
"""

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_BRINGS_KERAS = "tensorflow"
"""It imports Keras in the middle of its own import, and hides what goes wrong there. Nobody can use either before it
is done: what is to be done waits for that."""


def when_imported(
    names: Collection[str], do: Callable[[ModuleType], None], *, before: Callable[[str], None] = lambda name: None
) -> None:
    """Have `do` called with each module of these names once its import is complete, before the importing code goes on.

    A module that is there already is handed over at once, and one that is imported anew, as by
    `keras.config.set_backend`, again. `before` is called with the name when an import begins.
    """
    sys.meta_path.insert(0, _ImportHook(names, do, before))
    for name in names:
        if (module := sys.modules.get(name)) is not None and not _is_under_way(module):
            do(module)


class _ImportHook(MetaPathFinder):
    """Has the other finders find a module, and the loader that they name say when it is done.

    It keeps no state but that of a thread's own imports: look-ups may come at any time, in any thread, nested.
    """

    def __init__(self, names: Collection[str], do: Callable[[ModuleType], None], before: Callable[[str], None]) -> None:
        self._names, self._do, self._before = frozenset(names), do, before
        self._own = _ThreadsImports()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """What the finders behind this one find."""
        if name not in self._names and name != _BRINGS_KERAS:
            return None
        spec = _ask(self._finders_behind(), name, path, target)
        if spec is not None and spec.loader is not None:
            self._have_it_tell(spec.loader, name)
        return spec

    def _finders_behind(self) -> list[Any]:
        finders = list(sys.meta_path)
        return finders[finders.index(self) + 1 :] if self in finders else finders

    def _have_it_tell(self, loader: Any, name: str) -> None:
        """Put another `exec_module` on this one loader; its class, which others may look at, stays."""
        execute = loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            if module.__name__ != name:  # a loader of several modules, as that of a zip file is
                execute(module)
                return
            vars(loader).pop("exec_module", None)
            self._execute(execute, module)

        loader.exec_module = execute_and_tell

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
    """What one thread is importing."""

    def __init__(self) -> None:
        self.depth = 0
        """How many of the modules in question are under way, one within the other."""

        self.complete: list[ModuleType] = []
        """Those that are done within one that is not."""


def _ask(finders: list[Any], name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    for finder in finders:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find_spec(name, path, target) if find_spec else None
        if spec is not None:
            return spec
    return None


def _is_under_way(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
