"""`keras.Model.fit` served by `fitroom.fit`, for scripts and notebooks as they stand."""

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fitroom.recipe import Recipe


def protect(*, recipe: Recipe | None = None, run_dir: str | None = None) -> None:
    """From now on `model.fit(...)` is `fitroom.fit(model, ...)`. One line says so.

    >>> import fitroom
    >>> fitroom.protect()  # doctest: +SKIP
    fitroom: model.fit is protected: out of memory cuts the batch, nothing else changes.
    """
    serve(recipe=recipe, run_dir=run_dir)
    print(
        "fitroom: model.fit is protected: out of memory cuts the batch, nothing else changes.",
        file=sys.stderr,
        flush=True,
    )


def serve(*, recipe: Recipe | None = None, run_dir: str | None = None) -> None:
    """Put `fitroom.fit` in the place of `keras.Model.fit`. Calling it again changes the recipe or the folder."""
    import keras

    import fitroom
    from fitroom.backends.choose import current_backend

    current_backend().fail_at_once()
    own = getattr(keras.Model.fit, "_kerass_own", keras.Model.fit)
    count = 0

    @functools.wraps(own)
    def fit(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        # Each `fit` of a script is a run of its own: the second goes to a folder beside the first.
        folder = run_dir if run_dir is None or count == 1 else f"{run_dir}-{count}"
        return fitroom.fit(self, *arguments, **{"recipe": recipe, "run_dir": folder} | options)

    fit._kerass_own = own  # type: ignore[attr-defined]
    keras.Model.fit = fit


def unprotect() -> None:
    """`model.fit` is Keras's own again."""
    import keras

    keras.Model.fit = getattr(keras.Model.fit, "_kerass_own", keras.Model.fit)


def when_keras_is_imported(do: Callable[[], None]) -> None:
    """Have `do` called right after Keras is imported, which is left to the script: it may choose the backend first."""
    if "keras" in sys.modules:
        do()
    else:
        sys.meta_path.insert(0, _KerasFinder(do))


class _KerasFinder(importlib.abc.MetaPathFinder):
    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if name != "keras":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenDo(spec.loader, self.do)
        return spec


class _ThenDo(importlib.abc.Loader):
    """Loads as the loader it stands for, and does one thing more."""

    def __init__(self, loader: Any, do: Callable[[], None]) -> None:
        self.loader, self.do = loader, do

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loader.exec_module(module)
        module.__spec__.loader = self.loader
        self.do()
