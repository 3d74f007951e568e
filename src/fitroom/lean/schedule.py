"""How the share of weights at zero grows over a training."""

from dataclasses import dataclass

from fitroom.errors import InputError


@dataclass(frozen=True, kw_only=True)
class PolynomialSchedule:
    """Sparsity that rises from `initial` at step `begin` to its end at step `end`: fast first, then slowly.

    Steps are updates since the callback was first used: what the model was trained before does not count.

    >>> schedule = PolynomialSchedule(end=100)
    >>> [round(schedule.sparsity_at(step, 0.8), 2) for step in (0, 50, 100, 200)]
    [0.0, 0.7, 0.8, 0.8]
    """

    begin: int = 0
    """The first update at which weights are set to zero."""

    end: int
    """The update from which the sparsity stays; it should leave time to train on."""

    frequency: int = 100
    """Updates between two choices of the weights that are set to zero."""

    initial: float = 0.0
    power: float = 3.0

    def __post_init__(self) -> None:
        for name in ("begin", "end", "frequency"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < (name == "frequency"):
                raise InputError(f"`{name}` must be a whole number of updates. Received: {name}={value!r}.")
        if self.end <= self.begin:
            raise InputError(
                f"`end` must come after `begin`. Received: begin={self.begin}, end={self.end}.",
                hint="give the number of updates after which the sparsity stays, e.g. end=3 * steps_per_epoch",
            )
        if not 0 <= self.initial < 1 or self.power <= 0:
            raise InputError(
                "`initial` must be from 0 to below 1, and `power` above 0. "
                f"Received: initial={self.initial!r}, power={self.power!r}."
            )

    def sparsity_at(self, step: int, final: float) -> float:
        """The share of weights at zero after `step` updates."""
        if step < self.begin:
            return 0.0
        left = 1 - min(1.0, (step - self.begin) / (self.end - self.begin))
        return float(final + (self.initial - final) * left**self.power)

    def is_due(self, step: int, last: int) -> bool:
        """Whether the weights are to be chosen anew after `step` updates, if that was last asked after `last`."""
        return self._choices(step) > self._choices(last)

    def _choices(self, step: int) -> int:
        """How many choices have been due after so many updates."""
        until = 1 + (min(step, self.end) - self.begin - (step >= self.end)) // self.frequency
        return max(0, until) + (step >= self.end)
