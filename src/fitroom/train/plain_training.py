"""Training that went past fitroom: Keras's own methods, called although something else was put in their place."""

import functools
from collections import Counter
from types import ModuleType
from typing import Any

_TRAINS = ("fit", "train_on_batch")

OLD_KERAS = {
    "tf_keras.src.engine.training": "tf_keras",
    "tensorflow.python.keras.engine.training": "tensorflow.python.keras",
}
"""Where the `Model` of a Keras 2 is, which scripts train with without knowing; by the names they import it under."""


class PlainTraining:
    """Counts the calls of Keras's own training methods that came past `fitroom`.

    Keras has them in a class that `keras.Model` inherits from, and what serves a script is put on `keras.Model`. So the
    ones of the base class are called by what was not served alone. What serves keeps the base's methods to fall back
    on, so that a fallback is not counted: `watch` comes after it.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """How often each was called, by names such as "keras's own fit"."""

    def watch(self, module: ModuleType) -> None:
        """Watch the methods of a module's `Model`, as in `keras` and in those of OLD_KERAS."""
        is_old = module.__name__ in OLD_KERAS
        model: Any = vars(module)["Model"]
        for method in _TRAINS:
            # In Keras 2 they are the model's own, and served by nobody.
            classes = model.__mro__ if is_old else model.__mro__[1:]
            owner = next((each for each in classes if method in vars(each)), None)
            if owner is not None:
                name = f"{OLD_KERAS.get(module.__name__, module.__name__)}'s own {method}"
                setattr(owner, method, self._counted(vars(owner)[method], name))

    def _counted(self, own: Any, name: str) -> Any:
        @functools.wraps(own)
        def call(*arguments: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return own(*arguments, **options)

        return call
