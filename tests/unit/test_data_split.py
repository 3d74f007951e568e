"""What is held out, and what never is on both sides."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from fitroom.data import images
from fitroom.data.split import Fold, ImageFile, assign_fold, assign_splits
from fitroom.errors import InputError
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


CONTENTS = {
    "daisy": [*range(50), 3, 3, 7],
    "rose": range(100, 123),
    "tulip": [*range(200, 207), 3],  # one image is a daisy as well
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("folds", [2, 3, 5])
def test_folds_hold_out_every_image_once_and_copies_together(seed, folds):
    pictures = pictures_of(CONTENTS)
    held_out = defaultdict(list)
    for number in range(1, folds + 1):
        split_of = assign_fold(pictures, Fold(number, folds), seed=seed)
        sides = defaultdict(set)
        for picture in pictures:
            sides[picture.digest].add(split_of[picture.path])
            if split_of[picture.path] == "validation":
                held_out[picture.path].append(number)
        assert all(len(side) == 1 for side in sides.values()), "an identical picture is on both sides"
    twice = {picture.path for picture in pictures if picture.digest == "00003"}
    assert all(len(numbers) == 1 for numbers in held_out.values())
    assert {picture.path for picture in pictures} - set(held_out) == twice, "of two classes, so never measured with"


@pytest.mark.parametrize("seed", range(5))
def test_folds_have_each_class_in_its_proportion_and_are_as_large(seed):
    pictures = pictures_of(CONTENTS)
    sizes = []
    for number in range(1, 6):
        split_of = assign_fold(pictures, Fold(number, 5), seed=seed)
        counts = Counter(picture.label for picture in pictures if split_of[picture.path] == "validation")
        assert counts["daisy"] in (10, 11)
        assert counts["rose"] in (4, 5)
        assert counts["tulip"] in (1, 2)
        sizes.append(counts.total())
    assert max(sizes) - min(sizes) <= 2


@pytest.mark.parametrize("text", ["2", "0/5", "6/5", "1/1", "a/b", "-1/5", ""])
def test_a_fold_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="A fold must be"):
        Fold.parse(text)


def test_more_folds_than_images_are_refused():
    with pytest.raises(InputError, match="3 different images to divide into 5 folds"):
        assign_fold(pictures_of({"daisy": [1, 2, 2], "rose": [3]}), Fold(1, 5), seed=0)


def test_folds_of_a_folder_leave_its_test_images_alone(tmp_path):
    place = class_folders(tmp_path / "flowers", {"daisy": 12, "rose": 12})
    tests, validations = [], []
    for number in (1, 2, 3):
        data = images(place, image_size=8, test=0.25, fold=f"{number}/3", validation=0.5)
        tests.append([one.path for one in data._splits["test"]])
        validations += [one.path for one in data._splits["validation"]]
        assert data.counts["train"] == {"daisy": 6, "rose": 6}
    assert tests[0] == tests[1] == tests[2]
    assert len(set(validations)) == len(validations) == 18
    assert not set(validations) & set(tests[0])
