"""Serves `model.fit`, `evaluate`, `predict` and their like by fitroom: scripts and notebooks need no change.

What fitroom cannot serve is left to Keras's own methods (docs/training.md lists it), and training that bypassed fitroom
is counted.
"""

import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fitroom.recipe import Recipe

SERVED = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch")
"""The methods of `keras.Model` that are served."""

_OWN_LOOPS = {
    "fit": ("make_train_function", "train_function"),
    "train_on_batch": ("make_train_function", "train_function"),
    "evaluate": ("make_test_function", "test_function"),
    "test_on_batch": ("make_test_function", "test_function"),
    "predict": ("make_predict_function", "predict_function"),
}
"""Methods with which a model may run its batches itself, by the method that would use them."""

_TRAINS = ("fit", "train_on_batch")

OLD_KERAS = {
    "tf_keras.src.engine.training": "tf_keras",
    "tensorflow.python.keras.engine.training": "tensorflow.python.keras",
}
"""The modules of Keras 2 that define `Model`, with the names under which scripts import them."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """How a call of a served method was carried out."""

    method: str
    left_to_keras: str | None
    """Why it was left to Keras's own method; None where fitroom served it."""


CALLS: Counter[Call] = Counter()
"""How often each method was called in this process, served or left to Keras."""


def protect(*, recipe: Recipe | None = None, run_dir: str | None = None) -> None:
    """Serve `model.fit(...)` by `fitroom.fit(model, ...)` from now on; `evaluate`, `predict`, `train_on_batch` and
    `test_on_batch` likewise. One line says so.

    >>> import fitroom
    >>> fitroom.protect()  # doctest: +SKIP
    fitroom: model.fit is protected: out of memory splits the batch, nothing else changes.
    """
    serve(recipe=recipe, run_dir=run_dir)
    _say("model.fit is protected: out of memory splits the batch, nothing else changes.")


def serve(*, recipe: Recipe | None = None, run_dir: str | None = None) -> None:
    """Replace Keras's methods by fitroom's functions. Calling it again changes the recipe or the folder."""
    import keras

    from fitroom.backends.choose import current_backend
    from fitroom.train import calls
    from fitroom.train.fit import fit as fit_model
    from fitroom.train.own_fit import own_fit_has_run

    if too_late := current_backend().fail_at_once():
        _say(too_late)
    count = 0

    def fit(model: Any, **arguments: Any) -> Any:
        nonlocal count
        count += 1
        # Each `fit` of a script is a run of its own: the second goes to a folder beside the first.
        folder = run_dir if run_dir is None or count == 1 else f"{run_dir}-{count}"
        with own_fit_has_run():
            return fit_model(model, **{"recipe": recipe, "run_dir": folder} | arguments)

    by_fitroom: tuple[Callable[..., Any], ...] = (
        fit,
        calls.evaluate,
        calls.predict,
        calls.train_on_batch,
        calls.evaluate_on_batch,
    )
    for name, function in zip(SERVED, by_fitroom, strict=True):
        own = _keras_own(getattr(keras.Model, name))
        setattr(keras.Model, name, _make_method(name, own, function))


def unprotect() -> None:
    """Give `keras.Model` its own methods back."""
    import keras

    for name in SERVED:
        setattr(keras.Model, name, _keras_own(getattr(keras.Model, name)))


def _make_method(name: str, own: Callable[..., Any], serve_call: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method that calls fitroom's function, or Keras's own where fitroom cannot serve the call."""
    signature = inspect.signature(own)

    @functools.wraps(own)
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        if "_use_cached_eval_dataset" in options:  # Keras's own `fit` validates
            return own(self, *arguments, **options)
        given = _bind(signature, self, arguments, options)
        why = why_left_to_keras(self, name, given)
        CALLS[Call(method=name, left_to_keras=why)] += 1
        if why is None:
            return serve_call(self, **given)
        _say_once(f"model.{name} is left to Keras, and not protected: {why}.")
        return own(self, *arguments, **options)

    method._keras_own = own  # type: ignore[attr-defined]
    return method


def _bind(signature: inspect.Signature, model: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The arguments of a call by name, with those that only fitroom knows (`recipe=`, `run_dir=`)."""
    known = {name: value for name, value in options.items() if name in signature.parameters}
    bound = signature.bind(model, *arguments, **known).arguments
    given = dict(list(bound.items())[1:])
    return given | {name: value for name, value in options.items() if name not in known}


def _keras_own(method: Any) -> Any:
    return getattr(method, "_keras_own", method)


def why_left_to_keras(model: Any, method: str, arguments: dict[str, Any]) -> str | None:
    """Why a call of `model.fit` or its like cannot be served, or None where it can."""
    import keras

    backend = keras.backend.backend()
    kinds = type(arguments.get("x")).__mro__
    if backend == "tensorflow" and any("Distributed" in kind.__name__ for kind in kinds):
        return "the dataset is a distributed one"
    if getattr(keras.config, "is_nnx_enabled", bool)():
        return "Flax NNX holds the variables of Keras"
    if any("DataAdapter" in kind.__name__ for kind in type(arguments.get("x")).__mro__):
        return "the data are an adapter of Keras's own"
    for name in _OWN_LOOPS[method]:
        own = getattr(type(model), name, None)
        if own is not None and not str(getattr(own, "__module__", "keras.")).startswith("keras."):
            return f"the model brings its own `{name}`"
    return None


class PlainTraining:
    """Counts the calls of Keras's own training methods that bypassed fitroom.

    Keras defines them in a class that `keras.Model` inherits from, and `serve` replaces those of `keras.Model`. So the
    methods of the base class are called only where fitroom was bypassed. `serve` keeps the base's methods to fall back
    on; call `watch` after it, so that such a fallback is not counted.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """How often each was called, by names such as "keras's own fit"."""

    def watch(self, module: ModuleType) -> None:
        """Watch the methods of a module's `Model`, as in `keras` and in those of OLD_KERAS."""
        is_old = module.__name__ in OLD_KERAS
        model: Any = vars(module)["Model"]
        for method in _TRAINS:
            # In Keras 2 they are the model's own, and `serve` does not replace them.
            classes = model.__mro__ if is_old else model.__mro__[1:]
            owner = next((each for each in classes if method in vars(each)), None)
            if owner is not None:
                name = f"{OLD_KERAS.get(module.__name__, module.__name__)}'s own {method}"
                setattr(owner, method, self._count_calls(vars(owner)[method], name))

    def _count_calls(self, own: Any, name: str) -> Any:
        @functools.wraps(own)
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return own(*arguments, **options)

        return call


_said: set[str] = set()


def _say(message: str) -> None:
    print(f"fitroom: {message}", file=sys.stderr, flush=True)


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _say(message)
