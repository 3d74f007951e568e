"""Caches on disk: bounded, checked, and nothing left of a write that failed."""

import resource
import signal
import sqlite3

import numpy as np
import pytest

from fitroom.data import images, scan_cache
from fitroom.data.cache import DiskCache
from fitroom.memory import cache
from sample_pictures import class_folders

DIGESTS = [letter * 64 for letter in "abcd"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FITROOM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("FITROOM_NO_CACHE", raising=False)
    return tmp_path / "cache"


def kept_pictures(folder, limit=10**6, wanted=DIGESTS):
    return DiskCache(folder / "pictures", limit, image_size=16, resize="crop", wanted=wanted)


def picture(number):
    return np.full((16, 16, 3), number, np.uint8)


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_swapped_zeroed_or_torn_picture_is_decoded_again(folder):
    kept = kept_pictures(folder)
    for number, digest in enumerate(DIGESTS):
        kept.put(digest, picture(number))
    a, b, c, d = files(folder)
    assert (kept.get(DIGESTS[0]) == 0).all()
    assert (kept.get(DIGESTS[1]) == 1).all()
    b.write_bytes(a.read_bytes())
    c.write_bytes(bytes(c.stat().st_size))
    d.write_bytes(d.read_bytes()[:-1])
    assert [kept.get(digest) is None for digest in DIGESTS] == [False, True, True, True]
    full = kept_pictures(folder, limit=0)  # what is damaged is replaced, also where nothing more fits
    full.put(DIGESTS[1], picture(1))
    assert (kept.get(DIGESTS[1]) == 1).all()


def test_a_picture_that_could_not_be_written_leaves_nothing(folder):
    kept = kept_pictures(folder)
    _with_files_of(100, lambda: kept.put(DIGESTS[0], picture(0)))
    assert files(folder) == []


def _with_files_of(most_bytes, do):
    """Do something while the system refuses to write more than so many bytes into a file."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        do()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_an_estimate_is_of_its_own_key_and_a_failed_write_leaves_nothing(folder):
    cache.store("one", {"bytes": 1})
    cache.store("two", {"bytes": 2})
    assert cache.load("one") == {"bytes": 1}
    (folder / "two.json.gz").write_bytes((folder / "one.json.gz").read_bytes())
    assert cache.load("two") is None
    (folder / "one.json.gz").write_bytes(bytes(100))
    assert cache.load("one") is None
    _with_files_of(10, lambda: cache.store("three", {"bytes": 3}))
    assert [path.name for path in files(folder)] == ["one.json.gz", "two.json.gz"]


def test_estimates_stay_below_a_size_and_the_used_ones_stay(folder, monkeypatch):
    monkeypatch.setattr(cache, "LARGEST_BYTES", 1500)
    for number in range(40):
        cache.store(f"key{number}", {"text": str(number) * 50})
        assert cache.load("key0"), number
    assert sum(path.stat().st_size for path in files(folder)) <= 1500
    assert cache.load("key39")


def test_a_row_of_an_earlier_scan_that_was_changed_is_looked_at_again(folder, tmp_path):
    place = class_folders(tmp_path / "data", {"rose": 4, "tulip": 4})
    before = images(place, image_size=16)
    database = next(folder.glob("*.sqlite3"))
    with sqlite3.connect(database) as rows:
        rows.execute("UPDATE files SET digest = '00', width = 1")
    again = images(place, image_size=16)
    assert again.counts == before.counts
    assert [split.digest for split in again._splits["train"]] == [split.digest for split in before._splits["train"]]


def test_what_was_not_seen_for_longest_leaves_the_database_before_it_is_full(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(scan_cache, "LARGEST_BYTES", 128 * 1024)
    for day, name in enumerate(("old", "older", "new")):
        place = class_folders(tmp_path / name, {"rose": 100, "tulip": 100}, size=(4, 4))  # some 50 KiB of rows
        monkeypatch.setattr(scan_cache, "_today", lambda day=day: day)
        images(place, image_size=4)
    database = next(folder.glob("*.sqlite3"))
    assert database.stat().st_size <= 128 * 1024
    with sqlite3.connect(database) as rows:
        kept = [path for (path,) in rows.execute("SELECT path FROM files")]
    assert any(b"/new/" in path for path in kept)
