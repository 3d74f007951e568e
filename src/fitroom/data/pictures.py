"""The pictures of a folder, ready to train on."""

from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitroom.data.settings import Settings
from fitroom.data.skipped import Skipped
from fitroom.data.split import Picture
from fitroom.data.walk import shown

if TYPE_CHECKING:
    from fitroom.data.picture_set import PictureSet


class Pictures:
    """What `fitroom.data.images` gives: `train`, `validation` and `test` are what `fit` takes."""

    def __init__(
        self,
        *,
        place: Path,
        layout: str,
        settings: Settings,
        splits: dict[str, list[Picture]],
        skipped: list[Skipped],
        duplicates: int,
        conflicts: list[list[Path]],
        warnings: list[str],
    ) -> None:
        self.place = place
        """The folder or CSV file."""
        self.layout = layout
        """In words: "a folder per class"."""
        self.settings = settings
        self.seed = settings.seed
        self.classes = sorted({picture.label for split in splits.values() for picture in split})
        """Names, in the order of their numbers."""
        self.counts = {name: self._counted(split) for name, split in splits.items()}
        """Pictures of each class in each split that there is."""
        self.skipped = skipped
        """Files that are left out, with the reason. One that goes bad during training is added when it does."""
        self.duplicates = duplicates
        """Files that are identical to another one."""
        self.conflicts = conflicts
        """Identical pictures in several classes."""
        self.warnings = warnings
        """What a user should know, a sentence each."""
        self._splits = splits

    def __repr__(self) -> str:
        numbers = ", ".join(f"{name} {sum(counts.values()):,}" for name, counts in self.counts.items())
        return f"<Pictures of {len(self.classes)} classes in {shown(self.place)}: {numbers}>"

    @property
    def train(self) -> "PictureSet":
        """What to train on, in a new order each epoch."""
        found = self._set("train")
        assert found is not None
        return found

    @property
    def validation(self) -> "PictureSet | None":
        """What to validate on, never varied; None where there is none."""
        return self._set("validation")

    @property
    def test(self) -> "PictureSet | None":
        """What to test on in the end, never varied; None where there is none."""
        return self._set("test")

    def class_weight(self) -> dict[int, float]:
        """Weights with which every class counts the same in training, 1 on average over the pictures."""
        counts = self.counts["train"]
        present = {number: counts[name] for number, name in enumerate(self.classes) if counts[name]}
        return {number: sum(present.values()) / (len(present) * count) for number, count in present.items()}

    def summary(self) -> dict[str, Any]:
        """What a report says of the data, as JSON."""
        return {
            "folder": shown(self.place),
            "layout": self.layout,
            "seed": self.seed,
            "counts": self.counts,
            "duplicates": self.duplicates,
            "conflicts": len(self.conflicts),
            "skipped": len(self.skipped),
            "warnings": self.warnings,
        }

    def _counted(self, pictures: list[Picture]) -> dict[str, int]:
        counts = Counter(picture.label for picture in pictures)
        return {name: counts[name] for name in self.classes}

    def _set(self, name: str) -> "PictureSet | None":
        return self._sets.get(name)

    @cached_property
    def _sets(self) -> dict[str, "PictureSet"]:
        """Made when first asked for: it takes Keras, and looking at a folder does not."""
        from fitroom.data.making import picture_sets

        return picture_sets(self._splits, self.classes, self.settings, self.skipped)
