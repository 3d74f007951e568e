"""Splits of images into training, validation and test, or into folds, by content: identical images stay together."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fitroom.errors import InputError

if TYPE_CHECKING:
    from fitroom.data.opening import Header


@dataclass(frozen=True)
class ImageFile:
    """A file that was found to be an image."""

    path: Path
    label: str
    digest: str
    size_bytes: int
    header: "Header"


def assign_splits(images: Sequence[ImageFile], *, validation: float, test: float, seed: int) -> dict[Path, str]:
    """The split of each image, "train", "validation" or "test", with the asked shares held out of every class.

    The images of a class are held out in the order of a hash of seed and content: names do not matter, nor what other
    classes hold. A class of at least two different images has one in train and one in validation, of at least three
    also one in test, if there is a test split. An image that is in two classes is used for training only: it has no
    right label to measure with.
    """
    copies, labels_of, of_class = _group_by_content(images)
    split_of = dict.fromkeys(copies, "train")
    for digests in of_class.values():
        drawn = sorted((digest for digest in digests if len(labels_of[digest]) == 1), key=lambda one: _key(seed, one))
        number = sum(len(copies[digest]) for digest in digests)
        stays = 0 if len(drawn) < len(digests) else 1  # one of the class is in train already
        for name, share in (("validation", validation), ("test", test)):
            wanted = max(1, round(number * share)) if share else 0
            others = stays + (1 if name == "validation" and test and len(drawn) > 2 else 0)
            while wanted > 0 and len(drawn) > others:
                digest = drawn.pop(0)
                split_of[digest] = name
                wanted -= len(copies[digest])
    return {image.path: split_of[image.digest] for image in images}


@dataclass(frozen=True)
class Fold:
    """Which of several folds is held out as validation: the second of five is written 2/5.

    >>> Fold.parse("2/5")
    Fold(number=2, of=5)
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if self.of < 2 or not 1 <= self.number <= self.of:
            raise InputError(
                f"A fold must be the K-th of N, K from 1 to N and N at least 2. Received: {self}.",
                hint="write 1/5 for the first of five",
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> "Fold":
        """Read a fold such as 2/5."""
        number, slash, of = text.partition("/")
        if not (slash and number.strip().isdecimal() and of.strip().isdecimal()):
            raise InputError(
                f"A fold must be written K/N, in whole numbers. Received: {text!r}.",
                hint="write 1/5 for the first of five",
            )
        return cls(int(number), int(of))


def assign_fold(images: Sequence[ImageFile], fold: Fold, *, seed: int) -> dict[Path, str]:
    """The split of each image, "train" or "validation", where one of several folds is held out.

    Every class is dealt out evenly, by a hash of seed and content. Copies of an image are in one fold, and
    an image that is in two classes is always trained on: it has no right label to measure with.
    """
    copies, labels_of, of_class = _group_by_content(images)
    fold_of: dict[str, int] = {}
    totals = [0] * fold.of
    for label in sorted(of_class):
        counts = [0] * fold.of
        # Those with the most copies first, for which single ones make up.
        certain = [digest for digest in of_class[label] if len(labels_of[digest]) == 1]
        for digest in sorted(certain, key=lambda one: (-len(copies[one]), _key(seed, one))):
            # To the fold with the fewest of the class; among equals with the fewest images, so that all are as large.
            chosen = min(range(fold.of), key=lambda at: (counts[at], totals[at], at))
            fold_of[digest] = chosen + 1
            counts[chosen] += len(copies[digest])
            totals[chosen] += len(copies[digest])
    if not all(totals):
        raise InputError(
            f"There are {len(fold_of)} different images to divide into {fold.of} folds, so that some would be empty.",
            hint="use fewer folds, or more images",
        )
    return {image.path: "validation" if fold_of.get(image.digest) == fold.number else "train" for image in images}


def count_duplicates(images: Iterable[ImageFile]) -> int:
    """How many files are copies of another one."""
    digests = [image.digest for image in images]
    return len(digests) - len(set(digests))


def find_conflicts(images: Iterable[ImageFile]) -> list[list[ImageFile]]:
    """Groups of identical images that have different labels."""
    copies: dict[str, dict[str, ImageFile]] = defaultdict(dict)
    for image in images:
        copies[image.digest].setdefault(image.label, image)
    return [list(found.values()) for found in copies.values() if len(found) > 1]


def _group_by_content(
    images: Iterable[ImageFile],
) -> tuple[dict[str, list[ImageFile]], dict[str, set[str]], dict[str, list[str]]]:
    """By digest: the copies of an image, and the classes that it is in. By class: the digests of its images."""
    copies: dict[str, list[ImageFile]] = defaultdict(list)
    labels_of: dict[str, set[str]] = defaultdict(set)
    for image in images:
        copies[image.digest].append(image)
        labels_of[image.digest].add(image.label)
    of_class: dict[str, list[str]] = defaultdict(list)
    for digest, labels in labels_of.items():
        for label in labels:
            of_class[label].append(digest)
    return copies, labels_of, of_class


def _key(seed: int, digest: str) -> bytes:
    return hashlib.sha256(f"{seed}:{digest}".encode()).digest()
