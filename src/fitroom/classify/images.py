"""The images of a training: loading them with progress messages, and a line that describes them."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitroom.classify.machine import Say
from fitroom.classify.options import TrainOptions

_SECONDS_BETWEEN_LINES = 5.0


def load_images(options: TrainOptions, image_size: int, say: Say) -> Any:
    """Scan the folder, split it into training, validation and test, and say what was found."""
    from fitroom import data

    with _mute_log():
        images = data.images(
            options.folder,
            image_size=image_size,
            batch_size=options.batch_size,
            seed=options.seed,
            validation=options.validation,
            test=options.test,
            fold=options.fold,
            resize=options.resize,
            augment=options.augment or None,
            cache=options.cache,
            cache_limit=options.cache_limit,
            strict=options.strict,
            workers=options.workers,
            progress=_Progress(say),
        )
    for line in (describe_images(images), *images.warnings):
        say(line)
    if images.skipped:
        first = images.skipped[0]
        more = "" if len(images.skipped) == 1 else f", and {len(images.skipped) - 1} more in the report"
        say(f"skipped: {first.file} ({first.reason}){more}")
    return images


def describe_images(images: Any) -> str:
    """The numbers of images and classes in one line, with the smallest and largest class if they differ much."""
    counts = images.counts
    totals = {split: sum(of_class.values()) for split, of_class in counts.items() if of_class}
    parts = ", ".join(f"{number} for {split}" for split, number in totals.items() if number)
    line = f"{sum(totals.values())} images of {len(images.classes)} classes ({parts}; {images.layout})"
    trained = counts["train"]
    least, most = min(trained, key=trained.get), max(trained, key=trained.get)
    if trained[most] >= 2 * trained[least]:
        line += f"; from {trained[least]} of {least!r} to {trained[most]} of {most!r}"
        line += ": --class-weight balanced compensates for this"
    return line


def find_data_root(folder: str) -> Path:
    """The folder that file names are shown relative to."""
    path = Path(folder)
    return path if path.is_dir() else path.parent


@contextmanager
def _mute_log() -> Iterator[None]:
    """Keep warnings out of the log: the view shows them."""
    log = logging.getLogger("fitroom")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class _Progress:
    """Says every few seconds how far the scan of a large folder is."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._last = time.monotonic()

    def __call__(self, text: str, done: int, total: int | None) -> None:
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._say(f"{text}: {done}" + (f" of {total}" if total else ""))
