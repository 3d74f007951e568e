"""`model.fit`, `evaluate`, `predict` and their like served by fitroom, for scripts and notebooks as they stand."""

import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fitroom.recipe import Recipe

SERVED = ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch")
"""The methods of `keras.Model` that are served."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What became of a call of a method that is served."""

    method: str
    left_to_keras: str | None
    """Why Keras's own method did it, or None where fitroom's did."""


CALLS: Counter[Call] = Counter()
"""How often each method was called in this process, served or left to Keras."""


def protect(*, recipe: Recipe | None = None, run_dir: str | None = None) -> None:
    """Serve `model.fit(...)` by `fitroom.fit(model, ...)` from now on; `evaluate`, `predict`, `train_on_batch` and
    `test_on_batch` likewise. One line says so.

    >>> import fitroom
    >>> fitroom.protect()  # doctest: +SKIP
    fitroom: model.fit is protected: out of memory cuts the batch, nothing else changes.
    """
    serve(recipe=recipe, run_dir=run_dir)
    _say("model.fit is protected: out of memory cuts the batch, nothing else changes.")


def serve(*, recipe: Recipe | None = None, run_dir: str | None = None) -> None:
    """Put fitroom's functions in the place of Keras's methods. Calling it again changes the recipe or the folder."""
    import keras

    from fitroom.backends.choose import current_backend
    from fitroom.train import calls
    from fitroom.train.fit import fit as fit_model

    if too_late := current_backend().fail_at_once():
        _say(too_late)
    count = 0

    def fit(model: Any, **arguments: Any) -> Any:
        nonlocal count
        count += 1
        # Each `fit` of a script is a run of its own: the second goes to a folder beside the first.
        folder = run_dir if run_dir is None or count == 1 else f"{run_dir}-{count}"
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
        setattr(keras.Model, name, _served(name, own, function))


def unprotect() -> None:
    """Give `keras.Model` its own methods back."""
    import keras

    for name in SERVED:
        setattr(keras.Model, name, _keras_own(getattr(keras.Model, name)))


def _served(name: str, own: Callable[..., Any], serve_call: Callable[..., Any]) -> Callable[..., Any]:
    """The method that tries fitroom's function, and leaves to Keras's what fitroom cannot serve."""
    signature = inspect.signature(own)

    @functools.wraps(own)
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        from fitroom.train.unserved import why_left_to_keras

        if "_use_cached_eval_dataset" in options:  # Keras's own `fit` validates
            return own(self, *arguments, **options)
        given = _bound(signature, self, arguments, options)
        why = why_left_to_keras(self, name, given)
        CALLS[Call(method=name, left_to_keras=why)] += 1
        if why is None:
            return serve_call(self, **given)
        _say_once(f"model.{name} is left to Keras, and not protected: {why}.")
        return own(self, *arguments, **options)

    method._keras_own = own  # type: ignore[attr-defined]
    return method


def _bound(signature: inspect.Signature, model: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The arguments by name; those that only fitroom knows (`recipe=`, `run_dir=`) among them."""
    known = {name: value for name, value in options.items() if name in signature.parameters}
    bound = signature.bind(model, *arguments, **known).arguments
    given = dict(list(bound.items())[1:])
    return given | {name: value for name, value in options.items() if name not in known}


def _keras_own(method: Any) -> Any:
    return getattr(method, "_keras_own", method)


_said: set[str] = set()


def _say(message: str) -> None:
    print(f"fitroom: {message}", file=sys.stderr, flush=True)


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _say(message)
