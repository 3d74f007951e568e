"""Pictures of one split by their number: kept or decoded, varied, and another in place of one that has gone bad."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fitroom.data.augment import Augment
from fitroom.data.decode import decoded, read_bytes, verified
from fitroom.data.kept import Kept
from fitroom.data.opening import BadPictureError
from fitroom.data.settings import Resize
from fitroom.data.split import Picture
from fitroom.data.varied import varied
from fitroom.data.walk import shown
from fitroom.errors import InputError
from fitroom.events import Events
from fitroom.inputs.passes import seeded_generator


@dataclass(kw_only=True)
class Reader:
    """Gives uint8 arrays; threads may share it."""

    pictures: list[Picture]
    image_size: int
    resize: Resize
    seed: int
    augment: Augment | None
    kept: Kept | None
    went_bad: Callable[[Path, str], None]
    """Told of a file that could be read when it was scanned and cannot be now, once for each."""

    events: Events = field(default_factory=Events)
    """Where that is said; a training brings its own, for those who listen to it."""

    _told: set[Path] = field(default_factory=set)

    def read(self, number: int, epoch: int) -> Any:
        """The picture with this number, as it is in this epoch."""
        picture = self._unvaried(number)
        if self.augment is None:
            return picture
        return varied(picture, self.augment, seeded_generator(self.seed, epoch, number))

    def _unvaried(self, number: int) -> Any:
        try:
            return self._one(self.pictures[number])
        except BadPictureError as error:
            return self._stand_in(number, error)

    def _one(self, picture: Picture) -> Any:
        found = None if self.kept is None else self.kept.get(picture.digest)
        if found is None:
            data = read_bytes(picture.path)
            header = picture.header if len(data) == picture.size_bytes else verified(data)  # changed since the scan
            found = decoded(data, header, self.image_size, self.resize)
            if self.kept is not None:
                self.kept.put(picture.digest, found)
        return found

    def _stand_in(self, number: int, error: BadPictureError) -> Any:
        """The next picture of the same class that can be read: a batch keeps its size and its labels."""
        bad, total = self.pictures[number], len(self.pictures)
        for step in range(1, total):
            other = self.pictures[(number + step) % total]
            if other.label == bad.label and other.path != bad.path:
                try:
                    found = self._one(other)
                except BadPictureError:
                    continue
                self._tell(bad.path, str(error), other.path)
                return found
        raise InputError(
            f"No picture of the class {bad.label!r} can be read any more; {shown(bad.path)}: {error}.",
            hint="look whether the folder is still there; a run in a `run_dir` goes on where it was",
        )

    def _tell(self, path: Path, reason: str, other: Path) -> None:
        if path in self._told:
            return
        self._told.add(path)
        said = f"{shown(path)} went bad ({reason}): {shown(other)} takes its place."
        self.events.tell("picture went bad", said, file=shown(path), reason=reason)
        self.went_bad(path, reason)
