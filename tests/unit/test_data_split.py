"""What is held out, and what never is on both sides."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from fitroom.data import images
from fitroom.data.split import ImageFile, assign_splits
from sample_pictures import class_folders, drawn, encoded


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path / "cache"))


def pictures_of(contents):
    """Pictures by class; equal numbers are equal pictures."""
    return [
        ImageFile(Path(f"{label}/{place}.jpg"), label, f"{number:05}", 1, None)
        for label, numbers in contents.items()
        for place, number in enumerate(numbers)
    ]


def sides_of(contents, *, seed=0, validation=0.2, test=0.0):
    pictures = pictures_of(contents)
    found = assign_splits(pictures, validation=validation, test=test, seed=seed)
    counts = defaultdict(Counter)
    sides = defaultdict(set)
    for picture in pictures:
        counts[found[picture.path]][picture.label] += 1
        sides[picture.digest].add(found[picture.path])
    assert all(len(side) == 1 for side in sides.values()), "an identical picture is on both sides"
    return found, counts


@pytest.mark.parametrize("seed", range(20))
def test_each_class_is_held_out_in_its_proportion(seed):
    contents = {"daisy": range(100), "rose": range(1000, 1037), "tulip": range(2000, 2004)}
    _, counts = sides_of(contents, seed=seed, test=0.1)
    assert counts["validation"] == {"daisy": 20, "rose": 7, "tulip": 1}
    assert counts["test"] == {"daisy": 10, "rose": 4, "tulip": 1}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("test", [0.0, 0.3])
def test_copies_stay_together_and_every_class_of_two_is_on_both_sides(seed, test):
    contents = {
        "pair": [1, 2],
        "copies": [3, 3, 3, 3, 4],
        "single": [5],
        "same": [6, 6, 6],
        "triple": [7, 8, 9],
        "half shared": [10, 11],
        "shared": [11, 12, 13],
    }
    _, counts = sides_of(contents, seed=seed, test=test)
    for label in ("pair", "copies", "triple", "half shared", "shared"):
        assert counts["train"][label], label
        assert counts["validation"][label], label
    assert counts["train"]["single"] == 1
    assert counts["train"]["same"] == 3
    assert bool(counts["test"]["triple"]) == bool(test)


def test_the_split_depends_on_content_and_seed_and_not_on_names_or_other_classes():
    contents = {"daisy": range(50), "rose": range(100, 150)}
    by_path, _ = sides_of(contents)
    assert sides_of(contents)[0] == by_path
    assert sides_of(contents, seed=1)[0] != by_path
    held_out = {picture.digest for picture in pictures_of(contents) if by_path[picture.path] == "validation"}
    turned = {"lily": range(300, 340), "rose": range(149, 99, -1), "daisy": range(49, -1, -1)}
    found, _ = sides_of(turned)
    again = {picture.digest for picture in pictures_of(turned) if found[picture.path] == "validation"}
    assert held_out <= again


def test_nothing_is_held_out_where_nothing_is_asked_for():
    _, counts = sides_of({"daisy": range(9), "rose": range(10, 19)}, validation=0.0)
    assert set(counts) == {"train"}


def test_identical_pictures_in_two_classes_are_reported_and_trained_on(tmp_path):
    place = class_folders(tmp_path / "set", {"daisy": 5, "rose": 5})
    both = encoded(drawn(77))
    (place / "daisy" / "both.jpg").write_bytes(both)
    (place / "rose" / "same.jpg").write_bytes(both)
    (place / "rose" / "copy.jpg").write_bytes((place / "rose" / "000.jpg").read_bytes())
    pictures = images(place, image_size=8)
    assert pictures.duplicates == 2
    assert pictures.conflicts == [[place / "daisy" / "both.jpg", place / "rose" / "same.jpg"]]
    [warning] = pictures.warnings
    assert warning == ("identical images in different classes, all used for training: daisy/both.jpg = rose/same.jpg.")
    assert pictures.summary()["conflicts"] == 1


def test_a_class_of_one_picture_is_told_of(tmp_path):
    pictures = images(class_folders(tmp_path / "set", {"daisy": 5, "rose": 1}), image_size=8)
    assert pictures.counts["validation"] == {"daisy": 1, "rose": 0}
    assert pictures.warnings == ["class rose without an image in validation."]


def test_balanced_weights_even_the_classes_out(tmp_path):
    pictures = images(class_folders(tmp_path / "set", {"daisy": 6, "rose": 2}), image_size=8, validation=0)
    assert pictures.class_weight() == {0: 8 / 12, 1: 8 / 4}
    weighted = [
        pictures.class_weight()[number] * count for number, count in enumerate(pictures.counts["train"].values())
    ]
    assert weighted == [4, 4]


def test_the_summary_is_what_a_report_says(tmp_path):
    pictures = images(class_folders(tmp_path / "set", {"daisy": 5, "rose": 5}), image_size=8, seed=3)
    assert pictures.summary() == {
        "folder": str(tmp_path / "set"),
        "layout": "a folder per class",
        "seed": 3,
        "counts": {"train": {"daisy": 4, "rose": 4}, "validation": {"daisy": 1, "rose": 1}},
        "duplicates": 0,
        "conflicts": 0,
        "skipped": 0,
        "warnings": [],
    }
