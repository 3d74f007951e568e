"""What a trained classifier gets right: its confusion matrix, each class, and sample images."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One image with the classes that the model predicts for it."""

    file: str
    label: str
    """The true class."""

    top: tuple[tuple[str, float], ...]
    """Predicted classes, most likely first, each with its probability."""

    thumbnail: str | None
    """A small image as a `data:` address."""

    @property
    def is_right(self) -> bool:
        """Whether the most likely class is the true one."""
        return bool(self.top) and self.top[0][0] == self.label


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """How often one class was taken for another."""

    label: str
    taken_for: str
    count: int


@dataclass(frozen=True, kw_only=True)
class Results:
    """A classifier evaluated on images that it was not trained on."""

    split: str
    """Which of them: "validation" or "test"."""

    metrics: dict[str, float]
    classes: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    """A row for each true class, a column for each predicted one."""

    samples: tuple[Sample, ...]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Results":
        """Read what `results.json` holds. Raises ValueError where it does not fit together."""
        classes = tuple(map(str, data["classes"]))
        confusion = tuple(tuple(map(int, row)) for row in data["confusion"])
        if [len(row) for row in confusion] != [len(classes)] * len(classes):
            raise ValueError(f"a confusion matrix of {len(classes)} classes must have as many rows and columns")
        return cls(
            split=str(data["split"]),
            metrics={str(name): float(value) for name, value in data["metrics"].items() if value is not None},
            classes=classes,
            confusion=confusion,
            samples=tuple(_parse_sample(sample) for sample in data.get("samples") or ()),
        )

    @property
    def num_images(self) -> int:
        """How many images it was evaluated on."""
        return sum(map(sum, self.confusion))

    @property
    def num_right(self) -> int:
        """How many of them it got right."""
        return sum(row[index] for index, row in enumerate(self.confusion))

    @property
    def is_guessing(self) -> bool:
        """Whether naming the most frequent class for every image would do as well."""
        return self.num_right <= max(map(sum, self.confusion), default=0)

    def recall(self, index: int) -> float | None:
        """Of the images of a class, the share that was predicted as it."""
        return _divide(self.confusion[index][index], sum(self.confusion[index]))

    def precision(self, index: int) -> float | None:
        """Of the images predicted as a class, the share that is of it."""
        return _divide(self.confusion[index][index], sum(row[index] for row in self.confusion))

    def confusions(self) -> list[Confusion]:
        """Every mistake that was made, the most frequent first."""
        found = [
            Confusion(label=self.classes[row], taken_for=self.classes[column], count=count)
            for row, counts in enumerate(self.confusion)
            for column, count in enumerate(counts)
            if count and row != column
        ]
        return sorted(found, key=lambda confusion: -confusion.count)


def _parse_sample(data: Mapping[str, Any]) -> Sample:
    thumbnail = data.get("thumbnail")
    is_image = isinstance(thumbnail, str) and thumbnail.startswith("data:image/")
    return Sample(
        file=str(data["file"]),
        label=str(data["label"]),
        top=tuple((str(name), float(probability)) for name, probability in data["top"]),
        thumbnail=thumbnail if is_image else None,
    )


def _divide(part: int, whole: int) -> float | None:
    return part / whole if whole else None
