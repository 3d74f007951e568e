"""The learning rate of an optimizer as it is now."""

from typing import Any

import keras


class LearningRate:
    """Tells the rate of the next update. A schedule is compiled where that is what makes asking cheap."""

    def __init__(self, optimizer: Any) -> None:
        # Mixed precision has an optimizer around the one that counts and knows the schedule.
        self._optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        # No public name for the schedule itself: `learning_rate` is what it gives.
        schedule = getattr(self._optimizer, "_learning_rate", None)
        is_schedule = isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule)
        self._schedule = _compiled(schedule) if is_schedule else None

    def now(self) -> float | None:
        """None where there is none, or a schedule of the user's own fails."""
        try:
            if self._schedule is not None:
                return float(self._schedule(self._optimizer.iterations.value))
            return float(self._optimizer.learning_rate)
        except Exception:
            return None


def _compiled(schedule: Any) -> Any:
    """On JAX a schedule that branches is compiled anew each time it is asked outside of a compiled function: 80 ms."""
    if keras.backend.backend() != "jax":
        return schedule
    import jax

    return jax.jit(schedule.__call__)
