"""The pictures of a training, and what is said of them."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitroom.classify.machine import Say
from fitroom.classify.options import TrainOptions

_SECONDS_BETWEEN_LINES = 5.0


def load_pictures(options: TrainOptions, image_size: int, say: Say) -> Any:
    """Look through the folder and cut it into training, validation and test."""
    from fitroom import data

    with _unsaid():
        pictures = data.images(
            options.folder,
            image_size=image_size,
            batch_size=options.batch_size,
            seed=options.seed,
            validation=options.validation,
            test=options.test,
            resize=options.resize,
            augment=options.augment or None,
            cache=options.cache,
            cache_limit=options.cache_limit,
            strict=options.strict,
            workers=options.workers,
            progress=_Progress(say),
        )
    for line in (described(pictures), *pictures.warnings):
        say(line)
    if pictures.skipped:
        first = pictures.skipped[0]
        more = "" if len(pictures.skipped) == 1 else f", and {len(pictures.skipped) - 1} more in the report"
        say(f"skipped: {first.file} ({first.reason}){more}")
    return pictures


def described(pictures: Any) -> str:
    """How many there are of what, in a line; with the smallest and the largest class where they are unlike."""
    counts = pictures.counts
    totals = {split: sum(of_class.values()) for split, of_class in counts.items() if of_class}
    parts = ", ".join(f"{number} for {split}" for split, number in totals.items() if number)
    line = f"{sum(totals.values())} pictures of {len(pictures.classes)} classes ({parts}; {pictures.layout})"
    trained = counts["train"]
    least, most = min(trained, key=trained.get), max(trained, key=trained.get)
    if trained[most] >= 2 * trained[least]:
        line += (
            f"; from {trained[least]} of {least!r} to {trained[most]} of {most!r}: --class-weight balanced evens it out"
        )
    return line


def root_of(folder: str) -> Path:
    """What names of files are relative to."""
    path = Path(folder)
    return path if path.is_dir() else path.parent


@contextmanager
def _unsaid() -> Iterator[None]:
    """Keep warnings out of the log: the view says them."""
    log = logging.getLogger("fitroom")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class _Progress:
    """Says how far the look through a large folder is, now and then."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._last = time.monotonic()

    def __call__(self, text: str, done: int, total: int | None) -> None:
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._say(f"{text}: {done}" + (f" of {total}" if total else ""))
