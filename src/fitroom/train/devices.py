"""`fitroom.devices`: trains on several devices of this machine within a block."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from fitroom.distribution.current import Distribution, current_distribution, in_force
from fitroom.distribution.selection import DeviceSelection
from fitroom.errors import InputError


@contextmanager
def devices(
    selection: DeviceSelection | str | int | Iterable[int] = "all",
    *,
    shares: Sequence[float] | None = None,
    shard_weights: bool = False,
) -> Iterator[Distribution]:
    """Train on several devices of this machine within the block, by the framework's own distribution.

    The batch that the optimizer sees stays the user's: `fitroom.fit` gives each device a share of it, and the result is
    that of one device within rounding. What BatchNormalization sees depends on the framework, and the value that the
    block is given says it.

    Args:
        selection: "all", a number of devices such as 4 for the first four, or their numbers, as "0,1" or [0, 1].
        shares: How much of a batch each device gets, in proportion: (1, 2) gives the second device two thirds. Left
            out, all get the same. JAX allows equal shares only.
        shard_weights: Divide weights and optimizer state among the devices as well, for a model that is too large for
            one of them. JAX only.

    >>> with fitroom.devices("all"):  # doctest: +SKIP
    ...     fitroom.fit(model, x, y, batch_size=512)
    """
    from fitroom.backends.choose import current_backend

    if current_distribution() is not None:
        raise InputError(
            "`fitroom.devices` is in force already, and cannot begin within itself.",
            hint="leave the inner block out; under `fitroom run --devices` the outer one is the command",
        )
    chosen, backend = DeviceSelection.of(selection), current_backend()
    with (
        backend.distribute(chosen, shares, shard_weights=shard_weights) as distribution,
        in_force(distribution),
    ):
        yield distribution
