"""Which pictures of which class a folder or a CSV file holds."""

import os
import subprocess
import sys

import pytest

import fitroom
from fitroom.data import Augment, images
from sample_pictures import class_folders, drawn, encoded

FLOWERS = {"daisy": 6, "rose": 5, "tulip": 4}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path / "cache"))


def refused(place, **options):
    with pytest.raises(fitroom.InputError) as caught:
        images(place, image_size=8, **options)
    return f"{caught.value.message} | {caught.value.hint}"


def total(pictures):
    return {label: sum(counts[label] for counts in pictures.counts.values()) for label in pictures.classes}


def test_looking_at_a_folder_needs_no_framework(tmp_path):
    class_folders(tmp_path / "set", FLOWERS)
    program = f"""
import sys, fitroom
fitroom.data
print(*(name for name in ("numpy", "PIL", "cv2", "keras") if name in sys.modules))
print(fitroom.data.images({str(tmp_path / "set")!r}).counts)
print(*(name for name in ("keras", "torch", "tensorflow", "jax") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [
        "",
        "{'train': {'daisy': 5, 'rose': 4, 'tulip': 3}, 'validation': {'daisy': 1, 'rose': 1, 'tulip': 1}}",
        "",
    ]


def test_a_folder_per_class(tmp_path):
    pictures = images(class_folders(tmp_path / "set", FLOWERS), image_size=8)
    assert pictures.layout == "a folder per class"
    assert pictures.classes == ["daisy", "rose", "tulip"]
    assert total(pictures) == FLOWERS
    assert (pictures.skipped, pictures.warnings, pictures.duplicates) == ([], [], 0)
    assert set(pictures.counts) == {"train", "validation"}


def test_pictures_in_folders_within_a_class_are_of_that_class(tmp_path):
    place = class_folders(tmp_path / "set", FLOWERS)
    class_folders(place / "rose" / "garden", {"red": 2, "white": 1})
    assert total(images(place, image_size=8)) == FLOWERS | {"rose": 8}


@pytest.mark.parametrize("name", ["val", "valid", "Validation"])
def test_folders_of_a_split_are_kept_as_they_are(tmp_path, name):
    place = tmp_path / "set"
    class_folders(place / "train", FLOWERS)
    class_folders(place / name, {"daisy": 2, "rose": 2, "tulip": 1}, size=(30, 30))
    class_folders(place / "test", {"daisy": 1, "rose": 1, "tulip": 1}, size=(31, 30))
    pictures = images(place, image_size=8)
    assert pictures.counts["train"] == FLOWERS
    assert pictures.counts["validation"] == {"daisy": 2, "rose": 2, "tulip": 1}
    assert pictures.counts["test"] == {"daisy": 1, "rose": 1, "tulip": 1}
    assert name in pictures.layout


def test_where_a_split_has_no_validation_it_comes_out_of_training(tmp_path):
    class_folders(tmp_path / "set" / "train", FLOWERS)
    class_folders(tmp_path / "set" / "test", {"daisy": 1, "rose": 1, "tulip": 1}, size=(31, 30))
    pictures = images(tmp_path / "set", image_size=8)
    assert pictures.counts["train"] == {"daisy": 5, "rose": 4, "tulip": 3}
    assert pictures.counts["validation"] == pictures.counts["test"] == {"daisy": 1, "rose": 1, "tulip": 1}


def test_a_class_may_be_called_train(tmp_path):
    place = class_folders(tmp_path / "set", {"train": 3, "plane": 4})
    class_folders(place / "train", {"steam": 2})
    assert total(images(place, image_size=8)) == {"plane": 4, "train": 5}


def test_pictures_trained_on_and_validated_on_are_told_of(tmp_path):
    class_folders(tmp_path / "set" / "train", FLOWERS)
    class_folders(tmp_path / "set" / "val", {"daisy": 2, "rose": 2, "tulip": 1})
    warnings = images(tmp_path / "set", image_size=8).warnings
    assert warnings == ["5 of the 5 validation images are also in train: its results will look better than they are."]


def test_hidden_files_and_what_systems_leave_behind_are_no_classes(tmp_path):
    place = class_folders(tmp_path / "set", FLOWERS | {".ipynb_checkpoints": 1, "__MACOSX": 1})
    (place / "rose" / "._000.jpg").write_bytes(b"resource fork")
    (place / "rose" / "Thumbs.db").write_bytes(b"thumbs")
    (place / "LICENSE.txt").write_text("CC-BY")
    pictures = images(place, image_size=8)
    assert total(pictures) == FLOWERS
    assert pictures.skipped == []


def test_links_in_a_circle_end(tmp_path):
    place = class_folders(tmp_path / "set", FLOWERS)
    (place / "rose" / "again").symlink_to(place / "rose")
    (place / "rose" / "up").symlink_to(place, target_is_directory=True)
    pictures = images(place, image_size=8)
    assert pictures.counts["train"]["daisy"] == FLOWERS["daisy"]  # all of them are in rose too, through the link
    (place / "rose" / "up").unlink()
    assert total(images(place, image_size=8)) == FLOWERS


def test_names_in_any_script_and_of_any_spelling(tmp_path):
    names = {"цветок": 3, "花 🌼": 3, "<script>alert(1)<script>": 3, "cafe\u0301": 3}
    pictures = images(class_folders(tmp_path / "набор", names), image_size=8)
    assert "café" in pictures.classes
    assert "花 🌼" in pictures.classes
    assert sum(total(pictures).values()) == 12


@pytest.mark.skipif(sys.platform == "darwin", reason="the file system takes text only")
def test_a_name_that_is_no_text(tmp_path):
    place = class_folders(tmp_path / "set", FLOWERS)
    folder = os.fsencode(place) + b"/gr\xfcn"
    os.mkdir(folder)
    for number in range(2):
        with open(folder + b"/\xff%d.jpg" % number, "wb") as file:
            file.write(encoded(drawn(number)))
    pictures = images(place, image_size=8)
    assert total(pictures)["gr\ufffdn"] == 2
    for text in (*pictures.classes, *pictures.warnings):
        text.encode()


def test_an_empty_class_is_named_and_left_out(tmp_path):
    place = class_folders(tmp_path / "set", FLOWERS | {"lily": 0})
    (place / "orchid").mkdir()
    (place / "orchid" / "a.jpg").write_bytes(b"")
    pictures = images(place, image_size=8)
    assert pictures.classes == ["daisy", "rose", "tulip"]
    assert pictures.warnings == ["classes lily, orchid without a usable image, left out."]


def test_one_class_only_is_refused_with_the_way_out(tmp_path):
    class_folders(tmp_path / "flat", {"daisy": 3})
    assert "one class only: 'daisy'" in refused(tmp_path / "flat")
    class_folders(tmp_path / "outer" / "flowers", FLOWERS)
    assert f"give {tmp_path}/outer/flowers" in refused(tmp_path / "outer")
    (tmp_path / "flat" / "rose").mkdir()
    assert "these classes have no usable images: rose" in refused(tmp_path / "flat")


def test_a_folder_without_pictures_is_refused_with_what_is_there(tmp_path):
    assert "There is no folder or CSV file" in refused(tmp_path / "nowhere")
    (tmp_path / "set").mkdir()
    assert "Found: nothing" in refused(tmp_path / "set")
    (tmp_path / "set" / "daisy").mkdir()
    assert "folders without files: daisy" in refused(tmp_path / "set")
    (tmp_path / "set" / "1.jpg").write_bytes(encoded(drawn(1)))
    assert "1.jpg (not in a class folder)" in refused(tmp_path / "set")
    (tmp_path / "set" / "daisy" / "a.jpg").write_bytes(b"")
    assert "daisy/a.jpg (empty file)" in refused(tmp_path / "set")


def test_a_split_without_pictures_to_train_on_is_refused(tmp_path):
    class_folders(tmp_path / "set" / "train", {"daisy": 0, "rose": 0})
    class_folders(tmp_path / "set" / "val", FLOWERS)
    assert "no images to train on" in refused(tmp_path / "set")
    class_folders(tmp_path / "set" / "train", {"daisy": 3})
    assert "one class only: 'daisy'" in refused(tmp_path / "set")


def test_pictures_beside_the_classes_are_skipped_with_the_reason(tmp_path):
    place = class_folders(tmp_path / "set", FLOWERS)
    (place / "loose.png").write_bytes(encoded(drawn(1), "PNG"))
    [skipped] = images(place, image_size=8).skipped
    assert (skipped.file, skipped.reason) == (place / "loose.png", "not in a class folder")


def table(tmp_path, text, encoding="utf-8"):
    class_folders(tmp_path / "files", FLOWERS)
    path = tmp_path / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return path


ROWS = "".join(f"files/daisy/{number:03}.jpg,white\nfiles/rose/{number:03}.jpg,red\n" for number in range(4))


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        "path,label\n" + ROWS,
        "\ufeffFilename;Class\r\n" + ROWS.replace(",", ";").replace("\n", "\r\n"),
        "path\tlabel\n" + ROWS.replace(",", "\t"),
        ROWS.replace("/", "\\") + "\n\n",
        ROWS.replace("files/", '"./files/').replace(".jpg", '.jpg"'),
    ],
)
def test_a_csv_file_with_or_without_names_of_columns(tmp_path, text):
    pictures = images(table(tmp_path, text), image_size=8)
    assert pictures.layout == "a CSV file"
    assert total(pictures) == {"red": 4, "white": 4}


def test_columns_are_found_by_name(tmp_path):
    rows = [line.split(",") for line in ROWS.split()]
    text = "id,label,path\n" + "".join(f"{n},{label},{path}\n" for n, (path, label) in enumerate(rows))
    assert total(images(table(tmp_path, text), image_size=8)) == {"red": 4, "white": 4}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("files/tulip/000.jpg\n", "line 9: expected two columns, path,label; there are 1"),
        ("files/tulip/000.jpg,a,b\n", "line 9: expected two columns, path,label; there are 3"),
        ("files/tulip/000.jpg,\n", "line 9: the label is missing"),
        (",red\n", "line 9: the path is missing"),
        ("files/daisy/000.jpg,red\n", "line 9: files/daisy/000.jpg is 'red' here, and 'white' on line 1"),
        ('files/daisy/000.jpg,"red\n', "line 9: unexpected end of data"),
    ],
)
def test_an_error_in_a_csv_file_says_on_which_line(tmp_path, more, said):
    assert said in refused(table(tmp_path, ROWS + more))


def test_other_errors_in_a_csv_file(tmp_path):
    assert "is empty" in refused(table(tmp_path, ""))
    assert "line 2: not UTF-8" in refused(table(tmp_path, "a.jpg,red\nb.jpg,gr\u00fcn\n", "latin-1"))
    assert "no such file (line 1 of labels.csv)" in refused(table(tmp_path, "nowhere.jpg,red\n"))


def test_files_that_a_csv_file_names_and_that_are_not_there_are_skipped(tmp_path):
    pictures = images(table(tmp_path, "path,label\nnowhere.jpg,red\n" + ROWS), image_size=8)
    [skipped] = pictures.skipped
    assert (skipped.file.name, skipped.reason) == ("nowhere.jpg", "no such file (line 2 of labels.csv)")
    assert "nowhere.jpg" in refused(tmp_path / "labels.csv", strict=True)


def test_files_that_are_not_there_are_named_where_they_leave_one_class(tmp_path):
    said = refused(table(tmp_path, "files/daisy/000.jpg,white\nnope.jpg,red\nnor this.jpg,red\n"))
    assert "one class only: 'white'; 2 files cannot be used" in said
    assert "nope.jpg (no such file (line 2 of labels.csv))" in said
    assert "one label for each" in said


def test_a_flip_is_drawn_or_not():
    with pytest.raises(fitroom.InputError, match=r"must be True or False\. Received: 5"):
        Augment(flip=5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"validation": 0.6, "test": 0.5}, "validation=0.6, test=0.5"),
        ({"validation": -0.1}, "at least 0 and below 1"),
        ({"batch_size": 0}, "`batch_size` must be a whole number, at least 1. Received: 0"),
        ({"resize": "squash"}, "'crop', 'pad' or 'stretch'. Received: 'squash'"),
        ({"cache": "gpu"}, "'ram', 'disk' or None. Received: 'gpu'"),
        ({"cache_limit": "much"}, "positive number with a unit"),
        ({"augment": 3}, "fitroom.data.Augment"),
    ],
)
def test_arguments_that_cannot_work_are_refused(tmp_path, options, said):
    assert said in refused(class_folders(tmp_path / "set", FLOWERS), **options)
