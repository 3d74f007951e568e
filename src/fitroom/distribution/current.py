"""The distribution in force in this process: what `fitroom.devices` began."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fitroom.distribution.shares import share_out


@dataclass(kw_only=True)
class StopVote:
    """Whether to stop after the batch under way: asked for in this process, and agreed on by all of them."""

    requested: bool = False
    agreed: bool = False


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Several devices that train one model together, as this process sees them."""

    devices: tuple[str, ...]
    """Their names, such as "gpu:0"; one name alone where nothing is distributed."""

    weights: tuple[float, ...]
    """The share of each in a batch, in proportion to the others."""

    engine: str
    """What reduces their gradients: the framework's own, for people."""

    batch_statistics: str
    """What BatchNormalization sees, in a sentence."""

    replicates_rest: bool = False
    """Whether samples that cannot be shared out evenly are computed by every device, and counted once."""

    process: int = 0
    """The number of this process, where each device has its own."""

    num_processes: int = 1

    share: Callable[[Any], Any] = field(default=lambda value: value, repr=False)
    """Returns the first process's value of what every process gives; all processes must call it."""

    any_of: Callable[[bool], bool] = field(default=bool, repr=False)
    """Whether it is true in any process; all processes must call it."""

    wait: Callable[[], None] = field(default=lambda: None, repr=False)
    """Returns when all processes have called it."""

    claim: Callable[[str], bool] = field(default=lambda what: True, repr=False)
    """Whether this process is the first to claim something; others need not be alive."""

    stop: StopVote = field(default_factory=StopVote, repr=False)

    @property
    def is_first_process(self) -> bool:
        """Whether this process prints and saves."""
        return self.process == 0

    @property
    def num_devices(self) -> int:
        """How many devices train."""
        return len(self.devices)


def describe(distribution: Distribution, batch_size: int, *, batch_statistics: bool) -> str:
    """Say for people which devices train, by what, and what each gets of a batch.

    >>> two = Distribution(devices=("gpu:0", "gpu:1"), weights=(1, 1), engine="DDP", batch_statistics="its own samples")
    >>> describe(two, 63, batch_statistics=True)
    'training on gpu:0 and gpu:1 by DDP: 32 and 31 samples of a batch of 63. BatchNormalization sees its own samples.'
    """
    rest = batch_size % distribution.num_devices if distribution.replicates_rest else 0
    shares = share_out(batch_size - rest, distribution.weights)
    *names, last = distribution.devices
    sizes = f"{shares[0]} samples each" if len(set(shares)) == 1 else f"{_listed(shares)} samples"
    said = f"training on {', '.join(names)} and {last} by {distribution.engine}: {sizes} of a batch of {batch_size}"
    undivided = "1 that does not divide" if rest == 1 else f"{rest} that do not divide"
    said += f", and {undivided} computed by all, counted once." if rest else "."
    return said + (f" BatchNormalization sees {distribution.batch_statistics}." if batch_statistics else "")


def _listed(numbers: Sequence[int]) -> str:
    *first, last = numbers
    return f"{', '.join(map(str, first))} and {last}"


_in_force: list[Distribution] = []


def current_distribution() -> Distribution | None:
    """The distribution that `fitroom.devices` began and that has not ended; None where one device trains."""
    return _in_force[-1] if _in_force else None


@contextmanager
def in_force(distribution: Distribution) -> Iterator[None]:
    """Have this distribution in force during the block."""
    _in_force.append(distribution)
    try:
        yield
    finally:
        _in_force.remove(distribution)
