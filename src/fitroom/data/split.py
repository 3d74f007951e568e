"""Pictures held out for validation and test: by content, so that identical ones are never on both sides."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fitroom.data.opening import Header


@dataclass(frozen=True)
class Picture:
    """A file that decodes."""

    path: Path
    label: str
    digest: str
    size_bytes: int
    header: "Header"


def assigned(pictures: Sequence[Picture], *, validation: float, test: float, seed: int) -> dict[Path, str]:
    """The split of each picture: "train", "validation" or "test", in each class as many as asked.

    The order in which a class's pictures are held out is that of a hash of seed and content: names do not matter, nor
    what other classes hold. A class of two different pictures or more has one on either side, of three or more also in
    test if there is one. A picture that is in two classes is trained on: nothing can be measured with it.
    """
    labels_of = defaultdict(set)
    copies: dict[str, list[Picture]] = defaultdict(list)
    for picture in pictures:
        labels_of[picture.digest].add(picture.label)
        copies[picture.digest].append(picture)
    of_class: dict[str, list[str]] = defaultdict(list)
    for digest, labels in labels_of.items():
        for label in labels:
            of_class[label].append(digest)
    side = dict.fromkeys(copies, "train")
    for digests in of_class.values():
        drawn = sorted((digest for digest in digests if len(labels_of[digest]) == 1), key=lambda one: _key(seed, one))
        number = sum(len(copies[digest]) for digest in digests)
        stays = 0 if len(drawn) < len(digests) else 1  # one of the class is in train already
        for name, share in (("validation", validation), ("test", test)):
            wanted = max(1, round(number * share)) if share else 0
            others = stays + (1 if name == "validation" and test and len(drawn) > 2 else 0)
            while wanted > 0 and len(drawn) > others:
                digest = drawn.pop(0)
                side[digest] = name
                wanted -= len(copies[digest])
    return {picture.path: side[picture.digest] for picture in pictures}


def num_duplicates(pictures: Iterable[Picture]) -> int:
    """How many files are the same as another one."""
    digests = [picture.digest for picture in pictures]
    return len(digests) - len(set(digests))


def in_two_classes(pictures: Iterable[Picture]) -> list[list[Picture]]:
    """Pictures that are there under several labels."""
    copies: dict[str, dict[str, Picture]] = defaultdict(dict)
    for picture in pictures:
        copies[picture.digest].setdefault(picture.label, picture)
    return [list(found.values()) for found in copies.values() if len(found) > 1]


def _key(seed: int, digest: str) -> bytes:
    return hashlib.sha256(f"{seed}:{digest}".encode()).digest()
