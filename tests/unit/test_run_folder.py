"""A run folder is one run's, one process's, and says what does not match."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fitroom.errors import InputError
from fitroom.runs.folder import RunFolder
from fitroom.runs.interrupts import Interrupts
from fitroom.runs.writer import Cadence
from small_disk import read_only, run_on, small_disk

IDENTITY = {
    "model": {
        "layers": ["Dense dense units=5"],
        "variables": ["kernel (8, 5)", "dense/bias float32 (5,)"],
    },
    "data": {"num_samples": 1000, "shapes": [[8]]},
    "batch_size": 32,
    "epochs": 10,
    "seed": 7,
    "recipe": {},
    "versions": {"keras": "3.15.1"},
    "learning_rate": 0.001,
}


def with_variable(text: str) -> dict:
    return {"model": IDENTITY["model"] | {"variables": [text, "bias (5,)"]}}


def test_a_new_run_says_what_it_is(tmp_path):
    with RunFolder.open(tmp_path / "runs" / "a", IDENTITY) as folder:
        assert folder.progress == "new"
        assert folder.notes == []
        assert folder.checkpoints == tmp_path / "runs" / "a" / "checkpoints"
    kept = json.loads((tmp_path / "runs" / "a" / "run.json").read_text())
    assert kept["state"] == "running"
    assert IDENTITY.items() <= kept.items()


@pytest.mark.parametrize("state", ["running", "interrupted"])
def test_an_unfinished_run_goes_on_with_the_epochs_asked_for_now(tmp_path, state):
    with RunFolder.open(tmp_path, IDENTITY) as folder:
        folder.mark(state)
        begun = folder.record["begun"]
    with RunFolder.open(tmp_path, IDENTITY | {"epochs": 4}) as folder:
        assert folder.progress == "unfinished"
        assert (folder.record["state"], folder.record["epochs"], folder.record["begun"]) == ("running", 4, begun)


@pytest.mark.parametrize(
    ("epochs", "progress", "state"),
    [(4, "finished", "finished"), (10, "finished", "finished"), (11, "unfinished", "running")],
)
def test_a_finished_run_goes_on_only_for_more_epochs(tmp_path, epochs, progress, state):
    with RunFolder.open(tmp_path, IDENTITY) as folder:
        folder.mark("finished")
    with RunFolder.open(tmp_path, IDENTITY | {"epochs": epochs}) as folder:
        assert folder.progress == progress
    assert json.loads((tmp_path / "run.json").read_text())["state"] == state


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            with_variable("kernel (8, 6)"),
            "model, variables, number 1: 'kernel (8, 5)' in the run, 'kernel (8, 6)' now",
        ),
        (
            {"model": IDENTITY["model"] | {"layers": []}},
            "layers, number 1: 'Dense dense units=5' in the run, nothing now",
        ),
        ({"data": {"num_samples": 900, "shapes": [[8]]}}, "data, num_samples: 1000 in the run, 900 now"),
        ({"batch_size": 64}, "batch_size: 32 in the run, 64 now"),
        ({"seed": None}, "seed: 7 in the run, None now"),
        ({"class_weight": {"0": 2.0}}, "class_weight: None in the run, {'0': 2.0} now"),
    ],
)
def test_another_run_is_refused_with_the_difference_named(tmp_path, change, said):
    RunFolder.open(tmp_path, IDENTITY).close()
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(InputError) as raised:
        RunFolder.open(tmp_path, IDENTITY | change)
    assert "holds another run. " in str(raised.value)
    assert f"{said}." in str(raised.value)
    assert "another `run_dir`" in raised.value.hint
    assert (tmp_path / "run.json").read_bytes() == before
    RunFolder.open(tmp_path, IDENTITY).close()


def test_what_may_differ_is_said_and_not_refused(tmp_path):
    RunFolder.open(tmp_path, IDENTITY).close()
    now = {"versions": {"keras": "3.16.0"}, "learning_rate": 0.01, "recipe": {"micro_batch": 4}}
    with RunFolder.open(tmp_path, IDENTITY | now) as folder:
        said = " ".join(folder.notes)
    assert "versions, keras: '3.15.1' in the run, '3.16.0' now" in said
    assert "learning_rate: 0.001 in the run, 0.01 now" in said
    assert "recipe, micro_batch: None in the run, 4 now" in said
    assert "its own learning rate" in said
    with RunFolder.open(tmp_path, IDENTITY | now) as folder:
        [again] = folder.notes
    assert "learning_rate: 0.001 in the run, 0.01 now" in again


def test_what_was_kept_is_known_before_it_is_compared(tmp_path):
    RunFolder.open(tmp_path, IDENTITY).close()
    with RunFolder.acquire(tmp_path) as folder:
        folder.begin(IDENTITY | {"seed": folder.record["seed"]})
        assert folder.progress == "unfinished"


def test_a_file_is_no_run_folder(tmp_path):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(InputError, match=r"must be a folder.*taken, which is a file"):
        RunFolder.open(tmp_path / "taken", IDENTITY)
    with pytest.raises(InputError, match=r"cannot be written: Not a directory"):
        RunFolder.open(tmp_path / "taken" / "below", IDENTITY)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    for name in ("cat.png", "dog.png", "fox.png", "owl.png"):
        (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match=r"with cat.png, dog.png, fox.png, \.\.\.") as raised:
        RunFolder.open(tmp_path, IDENTITY)
    assert str(tmp_path / "run") in raised.value.hint
    assert len(list(tmp_path.iterdir())) == 4


def test_what_a_kill_left_before_the_run_was_written_does_not_matter(tmp_path):
    (tmp_path / "lock").write_text("")
    (tmp_path / ".run.json.partial").write_text('{"form')
    (tmp_path / ".DS_Store").write_text("")
    with RunFolder.open(tmp_path, IDENTITY) as folder:
        assert folder.progress == "new"
    assert not (tmp_path / ".run.json.partial").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', "\xff"])
def test_a_damaged_description_is_told(tmp_path, text):
    (tmp_path / "run.json").write_bytes(text.encode("latin1"))
    with pytest.raises(InputError, match=r"run.json cannot be read"):
        RunFolder.open(tmp_path, IDENTITY)


def test_a_flipped_digit_of_the_description_is_told(tmp_path):
    RunFolder.open(tmp_path, IDENTITY | {"seed": 1}).close()
    text = (tmp_path / "run.json").read_text()
    (tmp_path / "run.json").write_text(text.replace('"seed": 1', '"seed": 3'))
    with pytest.raises(InputError, match="its checksum does not match"):
        RunFolder.open(tmp_path, IDENTITY | {"seed": 3})


def test_a_run_of_a_newer_fitroom_is_told(tmp_path):
    RunFolder.open(tmp_path, IDENTITY).close()
    kept = json.loads((tmp_path / "run.json").read_text())
    del kept["sha256"]
    (tmp_path / "run.json").write_text(json.dumps(kept | {"format": 99}))
    with pytest.raises(InputError, match="newer fitroom") as raised:
        RunFolder.open(tmp_path, IDENTITY)
    assert "--upgrade" in raised.value.hint


OPEN = """
import sys
from fitroom.errors import InputError
from fitroom.runs.folder import RunFolder
try:
    RunFolder.open(sys.argv[1], {"epochs": 1})
except InputError as error:
    print(error.message)
"""


def test_a_read_only_folder_is_told(tmp_path):
    """Read-only by the file system, which stops root too."""
    done = run_on(read_only(tmp_path), [sys.executable, "-c", OPEN, str(tmp_path)])
    assert done.stdout == f"The run folder {tmp_path} cannot be written: Read-only file system.\n"
    done = run_on(read_only(tmp_path), [sys.executable, "-c", OPEN, str(tmp_path / "new")])
    assert done.stdout == f"The run folder {tmp_path / 'new'} cannot be written: Read-only file system.\n"
    RunFolder.open(tmp_path, IDENTITY).close()
    done = run_on(read_only(tmp_path), [sys.executable, "-c", OPEN, str(tmp_path)])
    assert done.stdout == f"The run folder {tmp_path} cannot be written: Read-only file system.\n"


def test_a_full_disk_at_the_start_is_told(tmp_path):
    fill = f"{small_disk(tmp_path, size_kib=64)} && head -c 65536 /dev/zero > '{tmp_path}/.full' || true"
    done = run_on(fill, [sys.executable, "-c", OPEN, str(tmp_path)])
    assert done.stdout == f"The run folder {tmp_path} cannot be written: No space left on device.\n"


FULL_ON_THE_WAY = """
import sys
from pathlib import Path
from fitroom.runs.folder import RunFolder
with RunFolder.open(sys.argv[1], {"epochs": 1}) as folder:
    folder.write_history({"loss": [0.5]})
    try:
        (folder.path / "ballast").write_bytes(bytes(10**6))
    except OSError:
        pass
    folder.write_history({"loss": [0.5] * 10_000})
    folder.log({"kind": "a"})
    print(folder.mark("interrupted"))
print((folder.path / "history.json").read_text(), sorted(path.name for path in folder.path.iterdir()))
"""


def test_a_disk_that_fills_on_the_way_stops_nothing(tmp_path):
    done = run_on(small_disk(tmp_path, size_kib=64), [sys.executable, "-c", FULL_ON_THE_WAY, str(tmp_path)])
    assert done.returncode == 0, done.stderr
    marked, *rest = done.stdout.splitlines()
    assert marked == "False"
    assert "0.5" in " ".join(rest)
    assert ".partial" not in done.stdout


HOLD = """
import sys, time
from fitroom.runs.folder import RunFolder
folder = RunFolder.open(sys.argv[1], {"epochs": 1})
print("held", flush=True)
time.sleep(100)
"""


def test_a_folder_in_use_is_refused_until_its_process_is_killed(tmp_path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"in use by process {process.pid} on "):
            RunFolder.open(tmp_path, {"epochs": 1})
        process.kill()
    with RunFolder.open(tmp_path, {"epochs": 1}) as folder:
        assert folder.progress == "unfinished"
        with pytest.raises(InputError, match="in this process"):
            RunFolder.open(tmp_path, {"epochs": 1})
    RunFolder.open(tmp_path, {"epochs": 1}).close()


HOLD_WITH_WORKER = """
import multiprocessing, os, sys, time
from fitroom.runs.folder import RunFolder
folder = RunFolder.open(sys.argv[1], {"epochs": 1})
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,), daemon=True)
worker.start()
print(worker.pid, flush=True)
time.sleep(100)
"""


def open_when_the_worker_has_begun(folder):
    """It drops the lock first thing, but on a busy machine its parent can be dead before that."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return RunFolder.open(folder, {"epochs": 1}).close()
        except InputError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
def test_a_data_worker_that_outlives_its_killed_run_does_not_hold_the_folder(tmp_path):
    command = [sys.executable, "-c", HOLD_WITH_WORKER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        process.kill()
        process.wait()
        try:
            os.kill(worker, 0)  # still there
            open_when_the_worker_has_begun(tmp_path)
        finally:
            os.kill(worker, signal.SIGKILL)


def test_the_log_goes_on_after_a_line_that_was_cut_short(tmp_path):
    with RunFolder.open(tmp_path, IDENTITY) as folder:
        folder.log({"kind": "out_of_memory", "micro_batch": 32})
        with open(tmp_path / "log.jsonl", "a") as file:
            file.write('{"kind": "shri')
        folder.log({"kind": "resume", "where": Path("a")})
        kinds = [event["kind"] for event in folder.events()]
    assert kinds == ["out_of_memory", "resume"]


def test_the_history_is_json_for_any_tool(tmp_path):
    with RunFolder.open(tmp_path, IDENTITY) as folder:
        folder.write_history({"loss": [0.5, float("nan")], "epoch": [0, 1]})
    text = (tmp_path / "history.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {"loss": [0.5, None], "epoch": [0, 1]}


STOPPED = """
import os, signal, sys, time
from fitroom.errors import RunInterrupted
from fitroom.runs.interrupts import Interrupts
with Interrupts() as interrupted:
    print("ready", flush=True)
    while interrupted.signal_number is None:
        time.sleep(0.01)
    print("saved", flush=True)
    if sys.argv[1:] == ["slow"]:
        time.sleep(100)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
raise RunInterrupted("Stopped.", signal_number=interrupted.signal_number)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_the_batch_end_and_the_exit_code_tells_which(number, code):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STOPPED], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.stdout.readline() == "saved\n"
        errors = process.stderr.read()
    assert process.returncode == code
    assert "stopping after this batch" in errors
    assert "Traceback" not in errors


def test_a_second_ctrl_c_stops_at_once():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", STOPPED, "slow"], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "saved\n"
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.stderr.read()


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts() as interrupted:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            assert interrupted.signal_number is None
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_of_the_main_thread_signals_are_left_alone():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen = []

    def train():
        with Interrupts() as interrupted:
            seen.append(interrupted.signal_number)
            seen.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert seen == [None, *before]


WORKER = """
import multiprocessing, os, signal, time
from fitroom.runs.interrupts import Interrupts
with Interrupts():
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
    worker.start()
    time.sleep(0.3)
    os.kill(worker.pid, signal.SIGINT)
    time.sleep(0.3)
    print(worker.is_alive())
    worker.terminate()
    worker.join(10)
    print(worker.exitcode)
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
def test_data_workers_live_through_ctrl_c_and_can_still_be_terminated():
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["True", "-15"]


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_checkpoints_within_an_epoch_hold_up_training_two_percent_at_most():
    for held_up in (0.01, 1.0, 5.0, 40.0):
        clock = Clock()
        cadence, lost, num_written = Cadence(clock=clock), 0.0, 0
        while clock.now < 100_000:
            clock.now += 0.7
            if cadence.is_due():
                clock.now += held_up
                lost += held_up
                num_written += 1
                cadence.note_written(held_up_seconds=held_up)
        assert lost / clock.now < 0.0201, held_up
        assert num_written > 40


def test_a_number_of_batches_that_was_asked_for_is_kept_to():
    cadence = Cadence(every_batches=3, clock=Clock())
    due = []
    for _ in range(7):
        due.append(cadence.is_due())
        if due[-1]:
            cadence.note_written(held_up_seconds=10.0)
    assert due == [False, False, True, False, False, True, False]
    assert cadence.is_due(at_epoch_end=True)
