"""Splits of images into training, validation and test, by content: identical images are never in two splits."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
    labels_of = defaultdict(set)
    copies: dict[str, list[ImageFile]] = defaultdict(list)
    for image in images:
        labels_of[image.digest].add(image.label)
        copies[image.digest].append(image)
    of_class: dict[str, list[str]] = defaultdict(list)
    for digest, labels in labels_of.items():
        for label in labels:
            of_class[label].append(digest)
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


def _key(seed: int, digest: str) -> bytes:
    return hashlib.sha256(f"{seed}:{digest}".encode()).digest()
