"""Files of a run that grow: through full disks, kills and going on."""

import sys

from fitroom.files.growing_files import GrowingFiles
from fitroom.files.json_lines import append_line, read_lines
from small_disk import run_on, small_disk

FULL_FOR_A_WHILE = """
import contextlib, sys
from pathlib import Path
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from fitroom.files.json_lines import append_line, read_lines
from fitroom.watching.tensorboard import TensorBoardLog

folder = Path(sys.argv[1])
log = TensorBoardLog(folder / "tensorboard")
for epoch in range(300):
    if epoch == 200:
        (folder / "ballast").unlink()
    if epoch == 20:
        with contextlib.suppress(OSError):
            (folder / "ballast").write_bytes(bytes(10**6))
    append_line(folder / "readings.jsonl", {"epoch": epoch, "filler": "x" * 333})
    with contextlib.suppress(OSError):
        log.epoch_ended(epoch, {"loss": float(epoch), **{f"metric_{n}": 1.0 for n in range(20)}})
log.close()
print([line["epoch"] for line in read_lines(folder / "readings.jsonl")])
(events,) = (folder / "tensorboard" / "train").iterdir()
print([Event.FromString(record).step for record in RawEventFileLoader(str(events)).Load()][1:])
"""


def test_a_disk_that_is_full_for_a_while_costs_the_lines_of_that_time_alone(tmp_path):
    done = run_on(small_disk(tmp_path, size_kib=512), [sys.executable, "-c", FULL_FOR_A_WHILE, str(tmp_path)])
    assert done.returncode == 0, done.stderr
    for kept in map(eval, done.stdout.splitlines()):
        assert kept[:20] == list(range(20))
        assert kept[-100:] == list(range(200, 300))
        assert len(kept) < 300


def test_a_line_that_a_kill_cut_short_is_left_out_and_the_next_one_whole(tmp_path):
    path = tmp_path / "readings.jsonl"
    append_line(path, {"update": 1})
    with open(path, "ab") as file:
        file.write(b'{"update": 2, "lo')
    append_line(path, {"update": 2, "loss": float("nan")})
    assert read_lines(path) == [{"update": 1}, {"update": 2, "loss": None}]
    assert read_lines(tmp_path / "none.jsonl") == []


def test_going_on_cuts_files_back_to_the_checkpoint_and_leaves_others_alone(tmp_path):
    (tmp_path / "logs").mkdir()
    files = GrowingFiles(tmp_path, ("readings.jsonl", "logs/*.events"))
    (tmp_path / "readings.jsonl").write_text("one\n")
    (tmp_path / "logs" / "a.events").write_text("first")
    at_checkpoint = files.lengths()
    assert at_checkpoint == {"readings.jsonl": 4, "logs/a.events": 5}
    (tmp_path / "readings.jsonl").write_text("one\ntwo\n")
    (tmp_path / "logs" / "b.events").write_text("begun since")
    (tmp_path / "logs" / "notes.txt").write_text("the user's")
    files.truncate(at_checkpoint)
    assert (tmp_path / "readings.jsonl").read_text() == "one\n"
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["a.events", "notes.txt"]
