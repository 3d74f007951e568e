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


class MadeWith:
    """What a model was trained with when something was made for it. It does not keep the model alive."""

    def __init__(self, model: Any) -> None:
        self._parts = [weakref.ref(part) for part in _parts(model)]
        self._settings = _settings(model)

    def holds_for(self, model: Any) -> bool:
        """Whether the model was not compiled anew, has the same variables, and computes as it did."""
        then, now = [reference() for reference in self._parts], _parts(model)
        is_same = len(then) == len(now) and all(map(lambda one, other: one is other, then, now))
        return is_same and self._settings == _settings(model)


def _parts(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)  # a model that only predicts is not compiled
    compiled = (optimizer, model._loss_tracker, model._compile_loss, model._compile_metrics)
    variables = (model.trainable_variables, model.non_trainable_variables, model.metrics_variables)
    slots = optimizer.variables if optimizer is not None else ()
    return [*(each for each in compiled if each is not None), *(each for group in variables for each in group), *slots]


def _settings(model: Any) -> list[Any]:
    """How its steps are run, and of each layer the precision and whether it is trained."""
    layers = ((layer.dtype_policy.name, layer.trainable) for layer in model._flatten_layers())
    return [model.run_eagerly, model.jit_compile, *layers]
