"""How pictures are to be made into batches, as `images` was asked."""

import os
from dataclasses import dataclass
from typing import Literal, cast

from fitroom.data.augment import Augment
from fitroom.errors import InputError

Resize = Literal["crop", "pad", "stretch", "whole"]
"""`whole` is for looking at: no square, its longer side is the size."""

_MOST_WORKERS = 16


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All of it."""

    image_size: int
    batch_size: int
    seed: int
    resize: Resize
    augment: Augment | None
    cache: Literal["ram", "disk"] | None
    cache_limit_bytes: int
    workers: int

    def __post_init__(self) -> None:
        for name in ("image_size", "batch_size", "workers"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"`{name}` must be a whole number, at least 1. Received: {value!r}.")
        if self.cache not in (None, "ram", "disk"):
            raise InputError(f"`cache` must be 'ram', 'disk' or None. Received: {self.cache!r}.")
        check_resize(self.resize)

    @property
    def picture_bytes(self) -> int:
        """Of one picture, decoded and resized."""
        return self.image_size * self.image_size * 3


def check_resize(resize: str) -> Resize:
    """The word itself, if it makes a square."""
    if resize not in ("crop", "pad", "stretch"):
        raise InputError(f"`resize` must be 'crop', 'pad' or 'stretch'. Received: {resize!r}.")
    return cast(Resize, resize)


def check_share(validation: float, test: float) -> None:
    """Raise InputError unless something is left to train on."""
    if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
        raise InputError(
            "`validation` and `test` are the parts of the pictures held out, from 0 to below 1 together. "
            f"Received: validation={validation}, test={test}."
        )


def usual_workers() -> int:
    """One thread for each core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS)
