"""`jit_compile` as a model was compiled with it.

Keras keeps what it made of it, not what it was given: on a machine without a GPU `jit_compile="auto"` and
`jit_compile=False` are both False afterwards on TensorFlow, and on a card they differ. So what `compile` is given is
remembered from the import of fitroom on. Of models compiled before that nobody knows.
"""

import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Literal

Choice = bool | Literal["auto"] | None
"""What was asked for; None where nobody knows."""

AUTO: Literal["auto"] = "auto"
_TRAINER = "keras.src.trainers.trainer"
"""Where Keras's `compile` is. No public name is imported by itself, so that one could wait for it."""

_choices: "weakref.WeakKeyDictionary[Any, Choice]" = weakref.WeakKeyDictionary()


def jit_choice(model: Any) -> Choice:
    """What the user wants of a model. A model that is not compiled yet is taken to be compiled as Keras does it."""
    if not model.compiled:
        return AUTO
    if model.run_eagerly:
        return False
    # Of models compiled before anybody listened: Keras never says yes to what was given as no.
    return _choices.get(model) if model in _choices else bool(model.jit_compile) or None


def set_choice(model: Any, choice: Choice) -> None:
    """Have a model that was compiled on the user's behalf count as compiled so by the user."""
    if choice is None:
        _choices.pop(model, None)
    else:
        _choices[model] = choice


def remember_choices() -> None:
    """Remember what models are compiled with from now on, and be there when Keras is imported later."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    if module := sys.modules.get(_TRAINER):
        _listen(module)


class _Finder(MetaPathFinder):
    """Finds Keras's trainer where Python would, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _TRAINER else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _then_listen(loader.exec_module)
        return spec


def _then_listen(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def executed(module: ModuleType) -> None:
        execute(module)
        _listen(module)

    return executed


def _listen(module: ModuleType) -> None:
    trainer = getattr(module, "Trainer", None)
    if trainer is not None and not hasattr(trainer.compile, "remembers"):
        trainer.compile = _remembering(trainer.compile)


def _remembering(compile_model: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(compile_model)

    @functools.wraps(compile_model)
    def remembered(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = compile_model(model, *args, **kwargs)
        _choices[model] = signature.bind(model, *args, **kwargs).arguments.get("jit_compile", AUTO)
        return result

    remembered.remembers = True  # type: ignore[attr-defined]
    return remembered
