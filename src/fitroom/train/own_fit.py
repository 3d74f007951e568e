"""Models whose class brings a `fit` of its own, which does more than Keras's: `fitroom.fit` would leave that out."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from fitroom.errors import ModelError

_has_run: ContextVar[bool] = ContextVar("the model's own fit has run", default=False)


@contextlib.contextmanager
def own_fit_has_run() -> Iterator[None]:
    """Mark that the model's own `fit` calls us in place of Keras's: what it adds is done."""
    token = _has_run.set(True)
    try:
        yield
    finally:
        _has_run.reset(token)


def check_own_fit(model: Any) -> None:
    """Raise ModelError where training would leave out what the model's own `fit` does, such as preprocessing."""
    kind = next((one for one in type(model).__mro__ if "fit" in vars(one)), None)
    if kind is None or _has_run.get() or kind.__module__.startswith("keras."):
        return
    protected = "after `fitroom.protect()` its own `model.fit(...)` survives out-of-memory, too"
    if not hasattr(model, "preprocess_samples"):
        raise ModelError(
            f"{type(model).__name__} has a `fit` of its own, in {kind.__name__}: `fitroom.fit` would leave it out.",
            hint=protected,
        )
    if getattr(model, "preprocessor", None) is not None:
        raise ModelError(
            f"{type(model).__name__} preprocesses its data in its own `fit`, by {type(model.preprocessor).__name__}; "
            "`fitroom.fit` would leave that out.",
            hint=f"{protected}. Or give data that went through `model.preprocess_samples`, after "
            "`model.preprocessor = None`",
        )
