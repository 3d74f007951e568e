"""Real folders are dirty: what is a picture, what is not, and what is made of it."""

import base64
import io
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import fitroom
from fitroom.data import images, read_picture, thumbnail
from fitroom.data.host_memory import MemoryPool
from fitroom.data.opening import Header
from fitroom.data.scan import look_at, scan
from sample_pictures import bad, class_folders, drawn, encoded, good_but_odd, huge_png, without_opencv, write_all


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(params=["opencv", "pillow"])
def library(request, monkeypatch):
    """With OpenCV, and as on a machine without."""
    from fitroom.data.pixels import choose_pixel_library

    if request.param == "pillow":
        without_opencv(monkeypatch)
    else:
        pytest.importorskip("cv2")
        choose_pixel_library.cache_clear()
    assert choose_pixel_library().name == request.param
    yield request.param
    choose_pixel_library.cache_clear()


@pytest.fixture
def dirty(tmp_path):
    place = class_folders(tmp_path / "set", {"daisy": 4, "rose": 4})
    write_all(place / "daisy", good_but_odd())
    write_all(place / "rose", {name: data for name, (data, _) in bad().items()})
    return place


def test_what_decodes_is_trained_on_whatever_it_is_called_and_the_rest_is_named_with_the_reason(dirty):
    pictures = images(dirty, image_size=16)
    reasons = {skipped.file.name: skipped.reason for skipped in pictures.skipped}
    assert set(reasons) == set(bad())
    for name, (_, part) in bad().items():
        assert part in reasons[name], name
    assert sum(counts["daisy"] for counts in pictures.counts.values()) == 4 + len(good_but_odd())
    assert sum(counts["rose"] for counts in pictures.counts.values()) == 4
    assert pictures.summary()["skipped"] == len(bad())


@pytest.mark.filterwarnings("ignore")
def test_a_file_damaged_anywhere_is_a_picture_or_has_a_reason(tmp_path):
    random = np.random.default_rng(0)
    files = [
        *good_but_odd().values(),
        encoded(drawn(5), "AVIF"),
        encoded(drawn(6), "JPEG2000"),
        encoded(drawn(7), "PPM"),
    ]
    for number in range(300):
        data = bytearray(files[number % len(files)])
        for place in random.integers(0, min(len(data), 400), random.integers(1, 12)):
            data[place] = random.integers(0, 256)
        (tmp_path / "file").write_bytes(data[: random.integers(1, len(data) + 1)] if number % 3 else data)
        seen = look_at(tmp_path / "file")
        assert isinstance(seen.found, Header) or seen.found


def test_strict_stops_and_names_the_files(dirty):
    with pytest.raises(fitroom.InputError, match=rf"{len(bad())} files cannot be used: rose/archive.jpg") as caught:
        images(dirty, image_size=16, strict=True)
    assert "strict" in caught.value.hint


def test_a_pipe_a_link_to_nowhere_or_a_film_is_skipped_unread(tmp_path):
    place = class_folders(tmp_path / "set", {"daisy": 4, "rose": 4})
    (place / "rose" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (place / "rose" / "itself.jpg").symlink_to("itself.jpg")
    os.mkfifo(place / "rose" / "pipe.jpg")
    with open(place / "rose" / "film.mp4", "wb") as file:
        file.truncate(3 * 1024**3)
    reasons = {skipped.file.name: skipped.reason for skipped in images(place, image_size=16).skipped}
    assert reasons == {
        "gone.jpg": "cannot be read: no such file or directory",
        "itself.jpg": "cannot be read: too many levels of symbolic links",
        "pipe.jpg": "a pipe, not a file",
        "film.mp4": "too large: a file of 3.00 GiB",
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_skipped(tmp_path):
    place = class_folders(tmp_path / "set", {"daisy": 4, "rose": 4})
    class_folders(place / "rose", {"closed": 2})
    (place / "rose" / "000.jpg").chmod(0)
    (place / "rose" / "closed").chmod(0)
    skipped = images(place, image_size=16).skipped
    (place / "rose" / "closed").chmod(0o755)
    assert {one.file.name: one.reason for one in skipped} == {
        "000.jpg": "cannot be read: permission denied",
        "closed": "a folder that cannot be entered: permission denied",
    }


LOOKS = """
import os, sys
from fitroom.classify.classifier import list_image_files
from fitroom.data import images
from pathlib import Path
images(sys.argv[2], image_size=8)  # all is imported now
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
for one in images(sys.argv[1], image_size=8, validation=0.5).skipped:
    print(one.file.name, one.reason)
print(len(list_image_files([Path(sys.argv[1])])))
"""


@pytest.fixture
def shared_folder():
    """One that other users may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_pipes_devices_and_folders_that_cannot_be_entered_are_skipped_with_the_reason(shared_folder, tmp_path):
    """Root, to whom nothing is denied, looks as somebody else."""
    place = class_folders(shared_folder / "data", {"rose": 3, "tulip": 3})
    os.mkfifo(place / "rose" / "pipe.jpg")
    (place / "rose" / "device.jpg").symlink_to("/dev/zero")
    (place / "tulip" / "closed").mkdir(mode=0)
    (place / "tulip" / "listed").mkdir()
    (place / "tulip" / "listed" / "inner").mkdir()
    (place / "tulip" / "listed").chmod(0o444)  # its names can be read, and nothing in it
    own = os.environ | {"FITROOM_NO_CACHE": "1"}
    good = str(class_folders(tmp_path / "good", {"rose": 3, "tulip": 3}))
    command = [sys.executable, "-c", LOOKS]
    done = subprocess.run([*command, str(place), good], env=own, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "device.jpg a device, not a file",
        "pipe.jpg a pipe, not a file",
        "closed a folder that cannot be entered: permission denied",
        "inner cannot be read: permission denied",
        "10",
    ]
    shut = subprocess.run([*command, str(place / "tulip" / "closed"), good], env=own, capture_output=True)
    assert b"InputError: There are no images to train on" in shut.stderr


def test_every_odd_picture_looks_like_the_one_it_was_made_from(tmp_path, library):
    write_all(tmp_path / "odd", good_but_odd())
    plain = read_picture(tmp_path / "odd" / "really_a_png.jpg", 20).astype(int)
    others = ("sixteen_bit.png", "fractions.tif", "one_bit.png", "one_pixel.png", "turned.jpg", "bad_exif.jpg")
    for name in good_but_odd():
        found = read_picture(tmp_path / "odd" / name, 20)
        assert found.shape == (20, 20, 3)
        assert found.dtype == np.uint8
        if name not in others:
            wanted = plain.mean(axis=2, keepdims=True) if "grey" in name else plain
            assert np.abs(found - wanted).mean() < 25, name
    bright = read_picture(tmp_path / "odd" / "sixteen_bit.png", 20)
    assert bright[0].mean() < 20 < 200 < bright[-1].mean()
    assert read_picture(tmp_path / "odd" / "fractions.tif", 20)[-1].mean() > 200


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (1, 1)), (6, (0, 1)), (8, (1, 0))])
def test_pictures_stand_upright(tmp_path, library, form, orientation, corner):
    pixels = np.zeros((64, 64, 3), "uint8")
    pixels[:32, :32] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "a").write_bytes(encoded(Image.fromarray(pixels), form, exif=exif))
    found = read_picture(tmp_path / "a", 16).reshape(2, 8, 2, 8, 3).mean(axis=(1, 3, 4))
    assert np.unravel_index(found.argmax(), (2, 2)) == corner
    assert (found > 200).sum() == 1


def test_what_is_transparent_is_white(tmp_path):
    pixels = np.zeros((10, 10, 4), "uint8")
    (tmp_path / "a.png").write_bytes(encoded(Image.fromarray(pixels), "PNG"))
    assert read_picture(tmp_path / "a.png", 10).min() == 255


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_crop_keeps_the_middle_pad_all_of_it_and_stretch_too(tmp_path, library, form):
    pixels = np.full((60, 120, 3), 200, "uint8")
    pixels[:, :30] = (250, 0, 0)
    (tmp_path / "a").write_bytes(encoded(Image.fromarray(pixels), form))
    crop, pad, stretch = (read_picture(tmp_path / "a", 40, way).astype(int) for way in ("crop", "pad", "stretch"))
    assert np.abs(crop[:, 1:] - 200).max() < 12
    assert np.abs(pad[[0, 9, 30, 39]]).max() == 0
    assert np.abs(pad[11:29, 11:] - 200).max() < 12
    assert np.abs(stretch[:, 11:] - 200).max() < 12
    for red in (pad[11:29, 1:8], stretch[:, 1:8]):
        assert red[..., 0].min() > 235
        assert red[..., 1:].max() < 20


@pytest.mark.parametrize("way", ["crop", "pad", "stretch"])
def test_a_jpeg_at_reduced_scale_is_the_same_picture(tmp_path, library, way):
    soft = drawn(3, (12, 9)).resize((1200, 900), Image.Resampling.BICUBIC)
    (tmp_path / "a.jpg").write_bytes(encoded(soft, quality=95))
    (tmp_path / "a.png").write_bytes(encoded(soft, "PNG"))
    reduced, whole = (read_picture(tmp_path / name, 100, way).astype(int) for name in ("a.jpg", "a.png"))
    assert np.abs(reduced - whole).mean() < 2


def test_a_jpeg_of_any_size_takes_little_memory_and_other_bombs_are_refused(tmp_path):
    place = class_folders(tmp_path / "set", {"daisy": 4, "rose": 4})
    (place / "rose" / "large.jpg").write_bytes(encoded(Image.new("L", (12_000, 9_000))))
    (place / "rose" / "large.png").write_bytes(huge_png(12_000, 9_000))
    (place / "rose" / "passes.jpg").write_bytes(encoded(Image.new("L", (8_000, 8_000)), progressive=True))
    reasons = {skipped.file.name: skipped.reason for skipped in images(place, image_size=300).skipped}
    assert set(reasons) == {"large.png", "passes.jpg"}
    at_full_scale = {skipped.file.name for skipped in images(place, image_size=9_000).skipped}
    assert "large.jpg" in at_full_scale


def test_memory_is_lent_and_more_than_there_is_alone():
    room, order = MemoryPool(100), []
    with room.reserve(60):
        waiting = threading.Thread(target=lambda: _in_turn(room, 1000, order))
        waiting.start()
        waiting.join(0.05)
        order.append("first")
    waiting.join(10)
    assert order == ["first", 0]
    assert room.free_bytes == 100


def _in_turn(room, size_bytes, order):
    with room.reserve(size_bytes):
        order.append(room.free_bytes)


def test_a_second_scan_looks_at_what_changed_alone(dirty, monkeypatch):
    looked = []
    from fitroom.data import scan as module

    real = module.look_at
    monkeypatch.setattr("fitroom.data.scan.look_at", lambda path: (looked.append(path.name), real(path))[1])
    first = images(dirty, image_size=16)
    assert len(looked) == 8 + len(good_but_odd()) + len(bad())
    looked.clear()
    again = images(dirty, image_size=16)
    assert looked == []
    assert (again.summary(), again.skipped) == (first.summary(), first.skipped)
    (dirty / "rose" / "truncated.jpg").write_bytes(encoded(drawn(9)))
    third = images(dirty, image_size=16)
    assert looked == ["truncated.jpg"]
    assert len(third.skipped) == len(first.skipped) - 1


@pytest.mark.parametrize("damage", ["rubbish", "folder in its place", "no cache wanted"])
def test_a_scan_does_without_its_cache(dirty, tmp_path, monkeypatch, damage):
    expected = images(dirty, image_size=16).summary()
    [database] = (tmp_path / "cache").glob("*.sqlite3")
    if damage == "rubbish":
        database.write_bytes(b"rubbish" * 1000)
    elif damage == "folder in its place":
        database.unlink()
        database.mkdir()
    else:
        monkeypatch.setenv("FITROOM_NO_CACHE", "1")
    assert images(dirty, image_size=16).summary() == expected
    if damage == "rubbish":
        assert database.read_bytes().startswith(b"SQLite")


def test_two_scans_at_once_share_a_cache(dirty):
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(images(dirty, image_size=16).summary())) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert results[0] == results[1] == results[2]


def test_what_was_seen_is_kept_while_the_scan_goes_on(tmp_path):
    place = class_folders(tmp_path / "set", {"daisy": 300, "rose": 10}, size=(8, 8))

    def stop(text, done, total):
        if done > 200:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        images(place, image_size=8, progress=stop)
    [database] = (tmp_path / "cache").glob("*.sqlite3")
    with sqlite3.connect(database) as connection:
        assert connection.execute("SELECT COUNT(*) FROM files").fetchone()[0] >= 200


def test_the_scan_tells_how_far_it_is(tmp_path):
    told = []
    images(
        class_folders(tmp_path / "set", {"daisy": 4, "rose": 4}), image_size=8, progress=lambda *what: told.append(what)
    )
    assert told[0] == ("scanning the images", 0, 8)
    assert told[-1] == ("scanning the images", 8, 8)


def test_a_scan_of_no_files_is_empty():
    assert scan([], workers=1) == []


def test_a_thumbnail_is_all_of_the_picture_and_small(tmp_path):
    (tmp_path / "a.png").write_bytes(encoded(drawn(1, (400, 200)), "PNG"))
    begin, _, data = thumbnail(tmp_path / "a.png").partition(",")
    assert begin == "data:image/jpeg;base64"
    assert Image.open(io.BytesIO(base64.b64decode(data))).size == (96, 48)


def test_a_single_picture_that_is_none_is_an_error_with_the_reason(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"<html>")
    with pytest.raises(fitroom.InputError, match="a web page, not an image"):
        read_picture(tmp_path / "a.jpg", 10)
    with pytest.raises(fitroom.InputError, match="no such file"):
        thumbnail(tmp_path / "b.jpg")
