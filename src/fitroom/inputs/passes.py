"""Which batches of which pass an epoch takes, and the random generator that orders them."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Window:
    """The batches of one pass over the data that make up an epoch."""

    number: int
    """The number of the pass."""

    first: int
    stop: int
    falls_short: bool
    """Whether the pass ends before the epoch has all the steps that were asked for."""


def epoch_window(num_batches: int, steps: int | None, epoch: int) -> Window:
    """The batches of an epoch, as in Keras: from where the last epoch stopped, at most to the end of the pass.

    >>> [(w.number, w.first, w.stop) for w in (epoch_window(5, 3, epoch) for epoch in range(3))]
    [(0, 0, 3), (0, 3, 5), (1, 0, 3)]
    """
    if steps is None:
        return Window(number=epoch, first=0, stop=num_batches, falls_short=False)
    number, part = divmod(epoch, -(-num_batches // steps))
    first = part * steps
    stop = min(first + steps, num_batches)
    return Window(number=number, first=first, stop=stop, falls_short=stop - first < steps)


def warn_of_end(num_batches: int, steps: int) -> None:
    """Warn that the data ended before the epoch had its steps; the epoch ends with them, as in Keras."""
    warnings.warn(
        f"The data ran out after {num_batches} of the {steps} batches that `steps_per_epoch` asks for; the epoch ends "
        "here. They have to last for steps_per_epoch * epochs batches: a tf.data.Dataset can `.repeat()`.",
        stacklevel=2,
    )


def seeded_generator(seed: int, *numbers: int) -> Any:
    """A random generator that depends on nothing but the seed and the place in training that `numbers` name."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed % 2**64, *numbers])))
