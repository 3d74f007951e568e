"""`fitroom leaks` as it is typed."""

import json
import os

from processes import needs
from ready_process import run_forked

SCRIPT = """
import numpy as np
kept = []
def leaky():
    print("a round")
    kept.append(np.ones(2**17))
def steady(number):
    np.ones(2**17)
def broken():
    raise KeyError("label")
"""


def run_leaks(folder, *arguments):
    (folder / "folds.py").write_text(SCRIPT)
    environment = os.environ | {"KERAS_BACKEND": "torch", "COLUMNS": "80"}
    return run_forked("-m", "fitroom", "leaks", *arguments, backend="torch", cwd=folder, env=environment)


def test_a_leak_is_named_and_ends_with_1(tmp_path):
    needs("torch")
    done = run_leaks(tmp_path, "folds.py:leaky", "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "leaks"
    assert abs(found["bytes_a_round"] - 2**20) < 2**17
    assert any("`kept`, a list in folds.py" in (each["holder"] or "") for each in found["suspects"])
    assert any(each["made_at"] == "folds.py:6" for each in found["suspects"])
    assert "round 10 of 10" in done.stderr
    assert "a round" not in done.stdout.splitlines()


def test_a_steady_loop_ends_with_0_and_says_what_it_would_have_seen(tmp_path):
    needs("torch")
    done = run_leaks(tmp_path, "folds.py:steady")
    assert done.returncode == 0, done.stderr
    assert "Steady: a leak of 4.0 KiB on the device" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_what_cannot_be_called_is_refused(tmp_path):
    needs("torch")
    assert "There is no file" in run_leaks(tmp_path, "other.py:leaky").stderr
    assert "did you mean 'leaky'" in run_leaks(tmp_path, "folds.py:leeky").stderr
    assert "FILE.py:FUNCTION" in run_leaks(tmp_path, "folds").stderr
    assert "name the function that carries out one round" in run_leaks(tmp_path, "folds.py:kept").stderr
    early = run_leaks(tmp_path, "other.py:leaky", "--rounds", "3").stderr
    assert "No round is left to judge" in early  # said before anything is imported


def test_what_the_function_raises_is_said_to_be_its_own(tmp_path):
    needs("torch")
    done = run_leaks(tmp_path, "folds.py:broken")
    assert done.returncode == 1
    assert "error: folds.py:broken raised KeyError: 'label'" in done.stderr
    assert "unexpected" not in done.stderr
