"""A way into the losses that a model was compiled with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Served:
    """Stands in for one of the compiled losses."""

    def __init__(self, index: int, loss: Any, serve: Callable[..., Any]) -> None:
        self.index, self.loss, self.serve = index, loss, serve

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return self.serve(self.index, self.loss, y_true, y_pred, sample_weight)


class _Untold:
    """Stands in for a loss tracker: it is told of the whole batch at the end, not of its parts."""

    def update_state(self, *_: Any, **__: Any) -> None:
        """Nothing."""


@contextmanager
def losses_served_by(compile_loss: Any, serve: Callable[..., Any]) -> Iterator[None]:
    """Have `serve(index, loss, y_true, y_pred, weight)` called in place of each loss.

    Keras pairs targets, outputs and weights with the losses by rules of its own, which are not repeated here. There is
    no public way in, hence the underscores.
    """
    losses, metrics = compile_loss._flat_losses, compile_loss._metrics
    compile_loss._flat_losses = [
        each._replace(loss=_Served(index, each.loss, serve)) for index, each in enumerate(losses)
    ]
    compile_loss._metrics = [_Untold() for _ in metrics]
    try:
        yield
    finally:
        compile_loss._flat_losses, compile_loss._metrics = losses, metrics
