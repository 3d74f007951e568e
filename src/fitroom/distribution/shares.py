"""How the samples of a batch are shared out among devices: each sample to exactly one."""

import itertools
from collections.abc import Sequence
from fractions import Fraction

from fitroom.errors import InputError


def share_out(batch_size: int, weights: Sequence[float]) -> tuple[int, ...]:
    """Share out a batch by weights: whole samples, none lost, none twice, each share next to its exact one.

    What is left after rounding down goes to the largest fractions, the first devices first.

    >>> share_out(10, (1, 1, 1, 1)), share_out(100, (1, 3)), share_out(2, (1, 1, 1))
    ((3, 3, 2, 2), (25, 75), (1, 1, 0))
    """
    total = sum(map(Fraction, weights))
    exact = [Fraction(weight) / total * batch_size for weight in weights]
    sizes = [int(share) for share in exact]
    by_fraction = sorted(range(len(sizes)), key=lambda place: sizes[place] - exact[place])
    for place in by_fraction[: batch_size - sum(sizes)]:
        sizes[place] += 1
    return tuple(sizes)


def share_ranges(batch_size: int, weights: Sequence[float]) -> list[tuple[int, int]]:
    """The samples of each device, as `start, stop` in the batch.

    >>> share_ranges(5, (1, 1))
    [(0, 3), (3, 5)]
    """
    ends = [0, *itertools.accumulate(share_out(batch_size, weights))]
    return list(itertools.pairwise(ends))


def check_weights(weights: Sequence[float] | None, num_devices: int) -> tuple[float, ...]:
    """The weight of each device, equal ones where none were given. Raises InputError where they do not match."""
    if weights is None:
        return (1.0,) * num_devices
    given = tuple(weights)
    is_number = all(isinstance(weight, int | float) and not isinstance(weight, bool) for weight in given)
    if not is_number or len(given) != num_devices or not all(0 < weight < float("inf") for weight in given):
        raise InputError(
            f"`shares` takes a positive number for each of the {num_devices} devices. Received: {weights!r}.",
            hint="such as shares=(1, 2): the second device gets twice as many samples as the first",
        )
    return given


def check_batch(batch_size: int, num_devices: int) -> None:
    """Raise InputError for a batch of which some device would get no sample."""
    if batch_size < num_devices:
        raise InputError(
            f"A batch of {batch_size} cannot be shared out among {num_devices} devices: each needs a sample.",
            hint=f"a larger batch_size, or {batch_size} device{'s' if batch_size > 1 else ''}",
        )
