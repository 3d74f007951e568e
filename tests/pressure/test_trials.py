"""Trials that die, each in its own way: a row of the table, and not the end; and a loop that is killed itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import fitroom
from processes import LIMITED_CPU, needs

LOOP = Path(__file__).parents[1] / "helpers" / "trial_loop.py"


def train(how):
    print("printed before", how)
    if how == "raises":
        raise ValueError("bad rate")
    if how == "hangs":
        time.sleep(600)
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "crashes":
        os.abort()
    if how == "exits":
        sys.exit(3)
    if how == "takes the host's memory":
        import resource

        limit_bytes = 2**32
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
        return len(bytearray(2 * limit_bytes))
    if how == "forks" and (child := os.fork()) == 0:
        return "a forked copy returned as well"
    if how == "forks":
        os.waitpid(child, 0)
    if how == "leaves a process":
        return subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL).pid
    if how == "returns an object":
        return object()
    return "done"


HOWS = (
    *("works", "raises", "hangs", "is killed", "crashes", "exits", "takes the host's memory", "forks"),
    *("leaves a process", "returns an object"),
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trials")
    # A trial that hangs is killed; 15 s are enough for all others to start on a busy machine.
    table = fitroom.trials(train, [{"how": how} for how in HOWS], folder, time_limit=15, at_once=3, show=False)
    return {row.settings["how"]: row for row in table}


@pytest.mark.parametrize(
    ("how", "state", "words"),
    [
        ("works", "finished", None),
        ("raises", "failed", "ValueError: bad rate"),
        ("hangs", "timed out", "It took longer than the limit of 15 s."),
        ("is killed", "killed", "killed by SIGKILL"),
        ("crashes", "killed", "killed by SIGABRT"),
        ("exits", "failed", "sys.exit(3)"),
        ("takes the host's memory", "out of host memory", "MemoryError"),
        ("forks", "finished", None),
        ("leaves a process", "finished", None),
        ("returns an object", "failed", "it is of type builtins.object"),
    ],
)
def test_a_trial_that_dies_is_a_row_and_its_output_is_in_its_log(rows, how, state, words):
    row = rows[how]
    assert row.state == state
    assert (words in row.error) if words else row.error is None
    assert f"printed before {how}" in row.log.read_text()
    assert row.attempts == (2 if state == "out of host memory" else 1)


def test_a_trial_that_raises_keeps_its_traceback(rows):
    assert 'raise ValueError("bad rate")' in rows["raises"].traceback
    assert rows["raises"].traceback.strip() in rows["raises"].log.read_text()


def test_a_forked_copy_of_a_trial_does_not_answer_for_it(rows):
    assert rows["forks"].result == "done"


def test_processes_that_a_trial_leaves_end_with_it(rows):
    pid = rows["leaves a process"].result
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def loop(tmp_path):
    """Starts the loop of trial_loop.py and waits until its third trial runs."""
    (tmp_path / "marks").mkdir()
    arguments = [str(tmp_path / name) for name in ("trials", "marks", "go")]

    def start(*, waits: bool):
        process = subprocess.Popen(
            [sys.executable, str(LOOP), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while waits and not list((tmp_path / "marks").glob("3-*")):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        return process

    return start


def read_marks(folder):
    return sorted(path.name.partition("-")[0] for path in (folder / "marks").iterdir())


def wait_until_gone(pid):
    deadline = time.monotonic() + 30
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} outlives its loop"
        time.sleep(0.05)


def test_a_loop_killed_with_sigkill_ends_its_trials_and_resumes(loop, tmp_path):
    process = loop(waits=True)
    process.kill()
    process.communicate()
    [third] = (tmp_path / "marks").glob("3-*")
    wait_until_gone(int(third.name.partition("-")[2]))
    (tmp_path / "go").touch()
    said, errors = loop(waits=False).communicate(timeout=120)
    assert said.split("RESULT ")[1].strip() == "[1, 2, 3, 4] [True, True, False, False]", errors
    assert "2 of 4 trials are in" in errors
    assert read_marks(tmp_path) == ["1", "2", "3", "3", "4"]


def test_ctrl_c_ends_the_trials_and_says_how_to_resume(loop, tmp_path):
    process = loop(waits=True)
    [third] = (tmp_path / "marks").glob("3-*")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    wait_until_gone(int(third.name.partition("-")[2]))
    assert "stopped: 2 of 4 trials are done; the same call resumes" in errors
    assert "KeyboardInterrupt" in errors


def test_a_second_loop_in_the_same_folder_is_refused(loop, tmp_path):
    process = loop(waits=True)
    with pytest.raises(fitroom.InputError, match=f"in use by process {process.pid}"):
        fitroom.trials(train, [{"how": "works"}], tmp_path / "trials")
    process.kill()
    process.communicate()


def test_a_trial_out_of_device_memory_is_tried_alone_once_and_recorded(tmp_path):
    needs("tensorflow")

    def allocate(mebibytes):
        if mebibytes < 100:  # it is there to be run beside the other one
            return mebibytes * 2**18
        import tensorflow as tf

        return int(tf.size(tf.zeros([mebibytes, 2**18]) + 1.0))

    table = fitroom.trials(
        allocate,
        [{"mebibytes": 500}, {"mebibytes": 10}],
        tmp_path,
        environment=LIMITED_CPU | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        at_once=2,
        show=False,
    )
    assert [row.state for row in table] == ["out of memory", "finished"]
    assert table[0].attempts == 2
    assert "attempt 2, alone" in table[0].log.read_text()
    assert table[1].result == 10 * 2**18
