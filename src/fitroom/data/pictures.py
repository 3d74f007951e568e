"""The data set that `fitroom.data.images` makes of a folder."""

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitroom.data.files import Skipped, display_name
from fitroom.data.settings import Settings
from fitroom.data.split import ImageFile

if TYPE_CHECKING:
    from fitroom.data.image_set import ImageSet


class Pictures:
    """The images of a folder. Pass `train`, and `validation` or `test`, to `fitroom.fit` or `model.fit`."""

    def __init__(
        self,
        *,
        place: Path,
        layout: str,
        settings: Settings,
        splits: dict[str, list[ImageFile]],
        skipped: list[Skipped],
        duplicates: int,
        conflicts: list[list[Path]],
        warnings: list[str],
    ) -> None:
        self.place = place
        """The folder or CSV file."""
        self.layout = layout
        """The layout in words: "a folder per class"."""
        self.settings = settings
        self.seed = settings.seed
        self.classes = sorted({image.label for split in splits.values() for image in split})
        """Names of the classes, in the order of their numbers."""
        self.counts = {name: self._count(split) for name, split in splits.items()}
        """How many images of each class each split has."""
        self.skipped = skipped
        """Files that are left out, with the reason. One that becomes unreadable during training is added."""
        self.duplicates = duplicates
        """How many files are copies of another one."""
        self.conflicts = conflicts
        """Groups of identical images in different classes."""
        self.warnings = warnings
        """Warnings about the data, one sentence each."""
        self._splits = splits

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {sum(counts.values()):,}" for name, counts in self.counts.items())
        return f"<Pictures of {len(self.classes)} classes in {display_name(self.place)}: {numbers}>"

    @property
    def train(self) -> "ImageSet":
        """The training images, in a new order each epoch."""
        found = self._set("train")
        assert found is not None
        return found

    @property
    def validation(self) -> "ImageSet | None":
        """The validation images, not augmented; None where there are none."""
        return self._set("validation")

    @property
    def test(self) -> "ImageSet | None":
        """The test images, not augmented; None where there are none."""
        return self._set("test")

    def class_weight(self) -> dict[int, float]:
        """Weights by class number with which every class counts the same; their mean over the training images is 1."""
        counts = self.counts["train"]
        present = {number: counts[name] for number, name in enumerate(self.classes) if counts[name]}
        return {number: sum(present.values()) / (len(present) * count) for number, count in present.items()}

    def summary(self) -> dict[str, Any]:
        """What a report shows of the data, as plain values for JSON."""
        return {
            "folder": display_name(self.place),
            "layout": self.layout,
            "seed": self.seed,
            "counts": self.counts,
            "duplicates": self.duplicates,
            "conflicts": len(self.conflicts),
            "skipped": len(self.skipped),
            "warnings": self.warnings,
        }

    def _count(self, images: list[ImageFile]) -> dict[str, int]:
        counts = Counter(image.label for image in images)
        return {name: counts[name] for name in self.classes}

    def _set(self, name: str) -> "ImageSet | None":
        return self._sets.get(name)

    @cached_property
    def _sets(self) -> dict[str, "ImageSet"]:
        """Built on first use, because it imports Keras, which scanning a folder does not."""
        from fitroom.data.image_set import build_image_sets

        return build_image_sets(self._splits, self.classes, self.settings, self.skipped)
