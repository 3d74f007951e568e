"""Settings of `fitroom.data.images`, checked."""

import os
from dataclasses import dataclass
from typing import Literal, cast

from fitroom.data.augment import Augment
from fitroom.errors import InputError

Resize = Literal["crop", "pad", "stretch", "whole"]
"""How an image is brought to its size. `whole` is for thumbnails: not square, the longer side has the size."""

_MAX_WORKERS = 16


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How images become batches."""

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
    def image_bytes(self) -> int:
        """The size of one decoded and resized image."""
        return self.image_size * self.image_size * 3


def check_resize(resize: str) -> Resize:
    """Return `resize` if it is one of the modes that give a square; else raise InputError."""
    if resize not in ("crop", "pad", "stretch"):
        raise InputError(f"`resize` must be 'crop', 'pad' or 'stretch'. Received: {resize!r}.")
    return cast(Resize, resize)


def check_shares(validation: float, test: float) -> None:
    """Raise InputError unless the shares of validation and test leave something to train on."""
    if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
        raise InputError(
            "`validation` and `test` are shares of the images; each and their sum must be at least 0 and below 1. "
            f"Received: validation={validation}, test={test}."
        )


def default_workers() -> int:
    """The default of `workers`: one thread for each core that this process may use, at most 16."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MAX_WORKERS)
