"""The optimizer: its rate warms up and then falls along a cosine, over all updates."""

import inspect
from dataclasses import dataclass
from typing import Any

from fitroom.keras_model.optimizers import optimizer_class

_FINE_TUNING = 0.1
_WARM_UP = 0.05
_LOWEST = 0.01
"""Parts: of the usual rate for a network that knows something, of the updates, and of the rate at the end."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """One rise and one fall of the learning rate."""

    optimizer: str
    rate: float
    updates: int

    def build(self) -> Any:
        """The optimizer of Keras."""
        import keras

        warm_up = min(max(1, round(_WARM_UP * self.updates)), self.updates - 1)
        rates = keras.optimizers.schedules.CosineDecay(
            self.rate / max(1, warm_up),
            decay_steps=max(1, self.updates - warm_up),
            alpha=_LOWEST,
            warmup_target=self.rate if warm_up else None,
            warmup_steps=warm_up,
        )
        return optimizer_class(self.optimizer)(learning_rate=rates)


def usual_rate(optimizer: str, *, fine_tuning: bool) -> float:
    """Keras's own for this optimizer; a tenth of it for a network that has learnt before."""
    rate = inspect.signature(optimizer_class(optimizer).__init__).parameters["learning_rate"].default
    return float(rate) * (_FINE_TUNING if fine_tuning else 1.0)
