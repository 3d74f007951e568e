"""Reads the images of one split by number: from the cache or the file, augmented, with a substitute for a bad file."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fitroom.data.augment import Augment, augment_image
from fitroom.data.cache import ImageCache
from fitroom.data.decode import decode_image, read_bytes, verify_image
from fitroom.data.files import display_name
from fitroom.data.opening import BadImageError
from fitroom.data.settings import Resize
from fitroom.data.split import ImageFile
from fitroom.errors import InputError
from fitroom.events import EventKind, Events
from fitroom.inputs.passes import seeded_generator


@dataclass(kw_only=True)
class Reader:
    """Reads images as uint8 arrays; threads may share it."""

    images: list[ImageFile]
    image_size: int
    resize: Resize
    seed: int
    augment: Augment | None
    cache: ImageCache | None
    report_bad: Callable[[Path, str], None]
    """Called once for each file that could be read when it was scanned and cannot be read now."""

    events: Events = field(default_factory=Events)
    """Where bad files are announced; `fit` sets its own, so that its listeners hear of them."""

    _reported: set[Path] = field(default_factory=set)

    def read(self, number: int, epoch: int) -> Any:
        """The image with this number, augmented as drawn for this epoch."""
        image = self._read_or_substitute(number)
        if self.augment is None:
            return image
        return augment_image(image, self.augment, seeded_generator(self.seed, epoch, number))

    def _read_or_substitute(self, number: int) -> Any:
        try:
            return self._decode(self.images[number])
        except BadImageError as error:
            return self._substitute(number, error)

    def _decode(self, image: ImageFile) -> Any:
        found = None if self.cache is None else self.cache.get(image.digest)
        if found is None:
            data = read_bytes(image.path)
            header = image.header if len(data) == image.size_bytes else verify_image(data)  # changed since the scan
            found = decode_image(data, header, self.image_size, self.resize)
            if self.cache is not None:
                self.cache.put(image.digest, found)
        return found

    def _substitute(self, number: int, error: BadImageError) -> Any:
        """The next readable image of the same class, so that a batch keeps its size and its labels."""
        bad, total = self.images[number], len(self.images)
        for step in range(1, total):
            other = self.images[(number + step) % total]
            if other.label == bad.label and other.path != bad.path:
                try:
                    found = self._decode(other)
                except BadImageError:
                    continue
                self._report(bad.path, str(error), other.path)
                return found
        raise InputError(
            f"No image of the class {bad.label!r} can be read any more; {display_name(bad.path)}: {error}.",
            hint="check that the folder is still there; a run with a `run_dir` resumes where it was",
        )

    def _report(self, path: Path, reason: str, other: Path) -> None:
        if path in self._reported:
            return
        self._reported.add(path)
        said = f"{display_name(path)} cannot be read any more ({reason}); {display_name(other)} is used in its place."
        self.events.tell(EventKind.IMAGE_WENT_BAD, said, file=display_name(path), reason=reason)
        self.report_bad(path, reason)
