"""Along which axis a weight is divided among devices."""

from collections.abc import Sequence


def largest_axis(shape: Sequence[int], num_devices: int) -> int | None:
    """The largest axis that the devices divide evenly; None where there is none, and the weight is replicated.

    >>> largest_axis((3, 3, 64, 128), 4), largest_axis((5,), 4)
    (3, None)
    """
    divisible = [place for place, size in enumerate(shape) if size and size % num_devices == 0]
    return max(divisible, key=lambda place: shape[place]) if divisible else None
