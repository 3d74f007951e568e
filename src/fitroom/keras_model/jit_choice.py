"""`jit_compile` as a model was compiled with it.

Keras stores the outcome, not the argument: on a machine without a GPU `jit_compile="auto"` and
`jit_compile=False` are both False afterwards on TensorFlow, and on a card they differ. So what `compile` is given is
remembered from the import of fitroom on. Of models compiled before, it is unknown.

`TrainingSetup` tells whether programs that were compiled for a model still fit it.
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

from fitroom.keras_model.private import all_layers, compiled_loss, compiled_metrics, loss_tracker

Choice = bool | Literal["auto"] | None
"""What `compile` was given; None where it is unknown."""

AUTO: Literal["auto"] = "auto"
_TRAINER = "keras.src.trainers.trainer"
"""The module of Keras's `compile`. There is no public module that is imported with it."""

_choices: "weakref.WeakKeyDictionary[Any, Choice]" = weakref.WeakKeyDictionary()


def jit_choice(model: Any) -> Choice:
    """The `jit_compile` that a model was compiled with; before that Keras's default."""
    if not model.compiled:
        return AUTO
    if model.run_eagerly:
        return False
    # Of models compiled before the import: True stays True, and False may have been "auto".
    return _choices.get(model) if model in _choices else bool(model.jit_compile) or None


def set_choice(model: Any, choice: Choice) -> None:
    """Record a choice for a model that was compiled on the user's behalf."""
    if choice is None:
        _choices.pop(model, None)
    else:
        _choices[model] = choice


def remember_choices() -> None:
    """Record what models are compiled with from now on, also where Keras is imported later."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    if module := sys.modules.get(_TRAINER):
        _patch_compile(module)


class _Finder(MetaPathFinder):
    """Finds Keras's trainer where Python would, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == _TRAINER else None
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = _patch_after(loader.exec_module)
        return spec


def _patch_after(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def execute_and_patch(module: ModuleType) -> None:
        execute(module)
        _patch_compile(module)

    return execute_and_patch


def _patch_compile(module: ModuleType) -> None:
    for trainer in list(vars(module).values()):  # Keras has renamed the class
        if isinstance(trainer, type) and "compile" in vars(trainer):
            own: Any = trainer
            if not hasattr(own.compile, "records_choice"):
                own.compile = _record_choice(own.compile)


def _record_choice(compile_model: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(compile_model)

    @functools.wraps(compile_model)
    def compile_and_record(model: Any, *args: Any, **kwargs: Any) -> Any:
        result = compile_model(model, *args, **kwargs)
        _choices[model] = signature.bind(model, *args, **kwargs).arguments.get("jit_compile", AUTO)
        return result

    compile_and_record.records_choice = True  # type: ignore[attr-defined]
    return compile_and_record


class TrainingSetup:
    """What compiled programs of a model depend on, as it was when they were made. It does not keep the model alive."""

    def __init__(self, model: Any) -> None:
        self._parts = [weakref.ref(part) for part in _list_parts(model)]
        self._settings = _list_settings(model)

    def matches(self, model: Any) -> bool:
        """Whether the model still has the same optimizer, loss, metrics, variables and settings."""
        then, now = [reference() for reference in self._parts], _list_parts(model)
        is_same = len(then) == len(now) and all(map(lambda one, other: one is other, then, now))
        return is_same and self._settings == _list_settings(model)


def _list_parts(model: Any) -> list[Any]:
    optimizer = getattr(model, "optimizer", None)  # a model that only predicts is not compiled
    compiled = (optimizer, loss_tracker(model), compiled_loss(model), compiled_metrics(model))
    variables = (model.trainable_variables, model.non_trainable_variables, model.metrics_variables)
    slots = optimizer.variables if optimizer is not None else ()
    return [*(each for each in compiled if each is not None), *(each for group in variables for each in group), *slots]


def _list_settings(model: Any) -> list[Any]:
    """How its steps are run, and of each layer the precision and whether it is trained."""
    layers = ((layer.dtype_policy.name, layer.trainable) for layer in all_layers(model))
    return [model.run_eagerly, model.jit_compile, *layers]
