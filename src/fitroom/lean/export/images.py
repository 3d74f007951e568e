"""Real images to calibrate a quantized file with, and others to check any file on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitroom.data import read_picture
from fitroom.data.files import files_below
from fitroom.data.layout import IMAGE_SUFFIXES
from fitroom.errors import InputError

CHECKED, CALIBRATED = 64, 128


@dataclass(frozen=True, kw_only=True)
class Images:
    """Arrays of float32 images, 0 to 255."""

    check: Any
    calibration: Any
    files: tuple[Path, ...]
    """The files of the images to check with; empty for noise."""


def read_images(folder: Path | None, size: int, resize: str) -> Images:
    """Images spread over a folder, one in three to check with; noise where there is no folder."""
    if folder is None:
        noise = np.random.default_rng(0).integers(0, 256, (CHECKED, size, size, 3)).astype("float32")
        return Images(check=noise, calibration=noise, files=())
    files = sorted(file for file in files_below(folder) if file.suffix.lower() in IMAGE_SUFFIXES)
    read = []
    for file in _spread(files, CHECKED + CALIBRATED):
        try:
            read.append((file, read_picture(file, size, resize)))
        except Exception:  # broken files are told by `fitroom train`
            continue
    if not read:
        raise InputError(f"No image in {folder} could be read.", hint="give another folder with --images")
    calibration = [image for number, (_, image) in enumerate(read) if number % 3] or [read[0][1]]
    return Images(
        check=np.stack([image for _, image in read[::3]]).astype("float32"),
        calibration=np.stack(calibration).astype("float32"),
        files=tuple(file for file, _ in read[::3]),
    )


def _spread(files: Sequence[Path], count: int) -> list[Path]:
    """Some of the files, evenly spread."""
    step = max(1.0, len(files) / count)
    return [files[int(number * step)] for number in range(min(count, len(files)))]
