"""`fitroom run --devices` on PyTorch: the first process prints and saves, and a killed one ends the run, saved."""

import os
import subprocess
import sys

import pytest

from processes import ROOT, hide_tensorflow, needs

SCRIPT = ROOT / "tests" / "helpers" / "lost_process.py"
TIME_LIMIT = 300


def _run(folder, name, *flags):
    command = [sys.executable, "-m", "fitroom", "run", *flags, str(SCRIPT), str(folder / "mark"), str(folder / name)]
    environment = os.environ | {"KERAS_BACKEND": "torch", "KERAS_HOME": str(folder), "FITROOM_VOTE_SECONDS": "60"}
    environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment = hide_tensorflow(environment)
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )


def test_a_killed_process_ends_the_run_with_a_checkpoint_from_which_fewer_devices_resume(tmp_path):
    needs("torch")
    (tmp_path / "other").mkdir()
    alone = _run(tmp_path / "other", "one")  # nothing is killed: there is no second process
    assert alone.returncode == 0, alone.stderr[-3000:]
    killed = _run(tmp_path, "two", "--devices", "3", "--run-dir", str(tmp_path / "run"))
    assert killed.returncode == 128 + 9, killed.stderr[-3000:]
    assert "process 1 of 3 (cpu:1) was killed by signal 9" in killed.stderr
    assert "all whole batches are saved" in killed.stderr
    resumed = _run(tmp_path, "two", "--devices", "2", "--run-dir", str(tmp_path / "run"))
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    assert "resuming the run" in resumed.stderr
    assert float(resumed.stdout) == pytest.approx(float(alone.stdout), abs=2e-6)
    assert resumed.stdout.count("\n") == 1  # one process prints
    assert (tmp_path / "two.keras").is_file()
    assert len((tmp_path / "two.csv").read_text().splitlines()) == 3  # the header and two epochs
