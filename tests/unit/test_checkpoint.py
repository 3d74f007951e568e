"""A checkpoint is there whole or not at all, and what is read is what was written."""

import json
import random
import signal
import subprocess
import sys
import threading
import time
import warnings

import ml_dtypes
import numpy as np
import pytest

from fitroom.errors import InputError
from fitroom.runs.checkpoint import Checkpoint, read_latest, write
from fitroom.runs.writer import CheckpointWriter
from small_disk import run_on, small_disk

ARRAYS = {
    "model/00000/dense/kernel": np.arange(12, dtype="float32").reshape(3, 4),
    "a transposed one": np.arange(12, dtype="float64").reshape(3, 4).T,
    "step": np.array(7, "int64"),
    "nothing": np.zeros((0, 3), "float16"),
    "flags": np.array([True, False]),
    "bfloat16": np.array([1.5, -2.0, np.inf, np.nan], ml_dtypes.bfloat16),
    "bfloat16 scalar": np.array(3.0, ml_dtypes.bfloat16),
    "float8": np.array([0.5, 448.0], ml_dtypes.float8_e4m3fn),
    "big end first": np.array([1, 2], ">i4"),
    "random state": np.array([2**32 - 1, 0], "uint32"),
    "more than one chunk": np.arange(5_000_000, dtype="float32"),
}
FACTS = {"epoch": 3, "best": float("inf"), "history": {"loss": [0.1, 1 / 3]}, "nested": [None, True, "ä"]}


def numbered(number: int, size: int = 1000) -> Checkpoint:
    """One whose parts all say the same number, so that a mixture would show."""
    return Checkpoint(arrays={str(i): np.full(size, number) for i in range(5)}, facts={"number": number})


def assert_whole(checkpoint: Checkpoint) -> int:
    number = checkpoint.facts["number"]
    assert list(checkpoint.arrays) == ["0", "1", "2", "3", "4"]
    assert all((array == number).all() for array in checkpoint.arrays.values())
    return number


def test_what_was_written_is_read_bit_for_bit(tmp_path):
    write(tmp_path, Checkpoint(arrays=ARRAYS, facts=FACTS))
    found = read_latest(tmp_path)
    assert found.note is None
    assert found.checkpoint.facts == FACTS
    assert list(found.checkpoint.arrays) == list(ARRAYS)
    for name, array in found.checkpoint.arrays.items():
        assert (array.dtype, array.shape) == (ARRAYS[name].dtype, ARRAYS[name].shape), name
        assert array.tobytes() == ARRAYS[name].tobytes(), name
        assert array.flags.writeable


def test_numpy_itself_opens_a_checkpoint_without_pickle(tmp_path):
    path = write(tmp_path, Checkpoint(arrays=ARRAYS, facts=FACTS))
    with np.load(path, allow_pickle=False) as file:
        np.testing.assert_array_equal(file["model/00000/dense/kernel"], ARRAYS["model/00000/dense/kernel"])
        assert file["step"] == 7
        assert json.loads(file["facts.json"])["epoch"] == 3


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([None]), np.zeros(2, [("a", "i4")])])
def test_arrays_that_are_not_numbers_are_refused_and_leave_nothing(tmp_path, array):
    with pytest.raises(TypeError, match=r"must hold numbers.*'odd'"):
        write(tmp_path, Checkpoint(arrays={"odd": array}, facts={}))
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_numpy_among_the_facts_become_pythons(tmp_path):
    write(tmp_path, Checkpoint(arrays={}, facts={"loss": np.float32(0.5), "epoch": np.int64(2)}))
    assert read_latest(tmp_path).checkpoint.facts == {"loss": 0.5, "epoch": 2}


def test_the_last_two_are_kept_in_an_order_that_names_tell(tmp_path):
    for number in range(12):
        write(tmp_path, numbered(number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000011.npz", "00000012.npz"]
    assert assert_whole(read_latest(tmp_path).checkpoint) == 11


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path):
    assert read_latest(tmp_path) is None
    assert read_latest(tmp_path / "missing") is None


def test_what_a_killed_write_left_is_never_read_and_goes_with_the_next(tmp_path):
    partial = tmp_path / ".00000001.npz.partial"
    partial.write_bytes(b"half")
    assert read_latest(tmp_path) is None
    write(tmp_path, numbered(1))
    assert not partial.exists()


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.99, -1])
def test_a_cut_newest_one_gives_the_older_and_says_so(tmp_path, keep):
    write(tmp_path, numbered(1))
    newest = write(tmp_path, numbered(2))
    data = newest.read_bytes()
    newest.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    found = read_latest(tmp_path)
    assert assert_whole(found.checkpoint) == 1
    assert "00000002.npz" in found.note
    assert "00000001.npz is taken" in found.note


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    path = write(tmp_path, Checkpoint(arrays={"a": np.arange(6.0), "b": np.array(1, "int8")}, facts={"epoch": 1}))
    data = path.read_bytes()
    num_noticed = 0
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ (1 << position % 8)]) + data[position + 1 :])
        try:
            found = read_latest(tmp_path).checkpoint
        except InputError:
            num_noticed += 1
            continue
        # Times and the like in the archive's own headers: what is read is right all the same.
        assert found.facts == {"epoch": 1}
        assert found.arrays["a"].tobytes() == np.arange(6.0).tobytes()
        assert found.arrays["b"].tobytes() == b"\x01"
    assert num_noticed > len(data) / 3


def test_a_damaged_one_is_set_aside_so_that_two_good_ones_are_kept(tmp_path):
    write(tmp_path, numbered(1))
    newest = write(tmp_path, numbered(2))
    newest.write_bytes(b"junk")
    read_latest(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001.npz", "00000002.npz.damaged"]
    assert write(tmp_path, numbered(3)).name == "00000003.npz"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001.npz", "00000003.npz"]
    assert read_latest(tmp_path).note is None


def test_two_damaged_ones_are_a_clear_error_and_stay_for_a_look(tmp_path):
    for number in (1, 2):
        write(tmp_path, numbered(number)).write_bytes(b"junk")
    with pytest.raises(InputError, match=r"No checkpoint in .* can be read \(00000002.npz: .*00000001.npz: ") as raised:
        read_latest(tmp_path)
    assert "another `run_dir`" in raised.value.hint
    assert len(list(tmp_path.iterdir())) == 2


ENDLESS = """
import sys, numpy as np
from pathlib import Path
from fitroom.runs.checkpoint import Checkpoint, write
number = int(sys.argv[2])
print("ready", flush=True)
while True:
    number += 1
    size = 20_000 + number % 7 * 20_000
    arrays = {str(i): np.full(size, number) for i in range(5)}
    write(Path(sys.argv[1]), Checkpoint(arrays=arrays, facts={"number": number}))
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_leaves_the_last_written_one_readable(tmp_path):
    last, kills_in_the_middle = 0, 0
    for _ in range(10):
        command = [sys.executable, "-c", ENDLESS, str(tmp_path), str(last)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(random.uniform(0.0, 0.15))
            process.send_signal(signal.SIGKILL)
            told = [last, *(int(line) for line in process.stdout if line.endswith("\n"))]
        kills_in_the_middle += any(path.suffix == ".partial" for path in tmp_path.iterdir())
        found = read_latest(tmp_path)
        if found is None:  # killed before the first was whole
            assert told == [0]
            continue
        assert found.note is None
        last = assert_whole(found.checkpoint)
        assert last in (told[-1], told[-1] + 1)  # it may have been killed before it could say so
    assert last > 0
    assert kills_in_the_middle > 0


FULL_DISK = """
import sys, warnings, numpy as np
from pathlib import Path
from fitroom.runs.checkpoint import Checkpoint, read_latest
from fitroom.runs.writer import CheckpointWriter
folder, kib = Path(sys.argv[1]), int(sys.argv[2])
ballast = folder / "ballast"
ballast.write_bytes(bytes(int(sys.argv[3]) * 1024))

def checkpoint(number):
    return Checkpoint(arrays={str(i): np.full(kib * 1024 // 40, number) for i in range(5)}, facts={"number": number})

writer = CheckpointWriter(folder / "checkpoints")
written = []
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for number in range(1, 6):
        if number == 5:
            ballast.unlink()
        writer.submit(checkpoint(number))
        written.append(writer.flush())
    writer.close()
found = read_latest(folder / "checkpoints").checkpoint
assert all((array == found.facts["number"]).all() for array in found.arrays.values())
print(written, found.facts["number"], [str(warning.message) for warning in caught])
print(sorted(path.name for path in (folder / "checkpoints").iterdir()))
"""


def on_a_small_disk(folder, *, size_kib, checkpoint_kib, ballast_kib):
    done = run_on(
        small_disk(folder, size_kib=size_kib),
        [sys.executable, "-c", FULL_DISK, str(folder), str(checkpoint_kib), str(ballast_kib)],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("ballast_kib", [2100, 2340, 2450, 2560])
def test_a_full_disk_leaves_the_older_one_and_training_going_with_one_warning(tmp_path, ballast_kib):
    """At several moments of the write: within an array, near the end, at the very end."""
    first, second = on_a_small_disk(tmp_path, size_kib=4096, checkpoint_kib=1000, ballast_kib=ballast_kib)
    assert first.startswith("[True, False, False, False, True] 5 [")
    assert first.count("No space left on device. Training continues") == 1
    assert second == "['00000001.npz', '00000002.npz']"


def test_on_a_disk_with_room_for_two_the_older_makes_room(tmp_path):
    first, second = on_a_small_disk(tmp_path, size_kib=4096, checkpoint_kib=1000, ballast_kib=1500)
    assert first == "[True, True, True, True, True] 5 []"
    assert second == "['00000004.npz', '00000005.npz']"


FILE_TOO_LARGE = """
import resource, sys
from pathlib import Path
import numpy as np
from fitroom.runs.checkpoint import Checkpoint, read_latest, write
folder, checkpoint = Path(sys.argv[1]), Checkpoint(arrays={str(i): np.zeros(300) for i in range(4)}, facts={"epoch": 1})
size = write(folder, checkpoint).stat().st_size
for limit in range(0, size, 7):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write(folder, checkpoint)
    except OSError as error:
        assert error.strerror == "File too large", error
        assert [path.name for path in folder.iterdir()] == ["00000001.npz"]
    else:
        raise AssertionError(limit)
assert read_latest(folder).checkpoint.facts == {"epoch": 1}
print("all", size)
"""


def test_a_write_that_the_system_stops_at_any_byte_leaves_nothing_of_it(tmp_path):
    command = [sys.executable, "-c", FILE_TOO_LARGE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("all "), done.stderr


LARGER_THAN_THE_ROOM = """
import sys, numpy as np
from pathlib import Path
from fitroom.runs.checkpoint import Checkpoint, read_latest, write
folder = Path(sys.argv[1]) / "checkpoints"
for number, kib in enumerate([500, 500, 3000], start=1):
    try:
        write(folder, Checkpoint(arrays={"a": np.zeros(kib * 128)}, facts={"number": number}))
    except OSError as error:
        print(error.strerror, sorted(path.name for path in folder.iterdir()), read_latest(folder).checkpoint.facts)
"""


def test_no_checkpoint_is_given_up_for_one_that_would_not_fit_even_so(tmp_path):
    command = [sys.executable, "-c", LARGER_THAN_THE_ROOM, str(tmp_path)]
    done = run_on(small_disk(tmp_path, size_kib=2048), command)
    assert done.stdout == "No space left on device ['00000001.npz', '00000002.npz'] {'number': 2}\n", done.stderr


def test_the_writer_writes_what_it_was_handed_last(tmp_path):
    writer = CheckpointWriter(tmp_path)
    for number in range(50):
        writer.submit(numbered(number, size=50_000))
    assert writer.is_busy
    assert writer.flush()
    assert not writer.is_busy
    assert assert_whole(read_latest(tmp_path).checkpoint) == 49
    newest = max(int(path.stem) for path in tmp_path.iterdir())
    assert newest < 50  # a newer one took the place of those that waited
    writer.close()


def test_the_writer_ends_its_thread_and_can_be_used_again(tmp_path):
    before = threading.active_count()
    writer = CheckpointWriter(tmp_path)
    for number in (1, 2):
        writer.submit(numbered(number))
        assert writer.close()
        assert threading.active_count() == before
        assert assert_whole(read_latest(tmp_path).checkpoint) == number


def test_what_cannot_be_written_at_all_is_raised_to_who_handed_it_over(tmp_path):
    writer = CheckpointWriter(tmp_path)
    writer.submit(Checkpoint(arrays={}, facts={"odd": object()}))
    with pytest.raises(TypeError, match="must be JSON"):
        writer.flush()
    writer.submit(numbered(1))
    assert writer.close()


def test_a_warning_comes_again_after_a_good_one_came_between(tmp_path):
    folder, said = tmp_path / "checkpoints", []
    writer = CheckpointWriter(folder, warn=said.append)
    for is_blocked in (True, True, False, True):
        if is_blocked:
            if folder.is_dir():
                folder.rename(tmp_path / "aside")
            folder.write_text("a file in its place")
        writer.submit(numbered(1))
        assert writer.flush() is not is_blocked
        if is_blocked:
            folder.unlink()
    assert len(said) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer.submit(numbered(2))
        assert writer.close()
