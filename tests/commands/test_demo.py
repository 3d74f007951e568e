"""`make demo` does what it says: plain Keras dies of memory, and fitroom trains in the same memory."""

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

from ready_process import run_forked

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_demo(folder, monkeypatch, capsys):
    """The script, to its end: its exit code and what it and its commands print. These are forked, all else is real."""

    def run_command(command, capture_output=False, **options):
        assert command[0] == sys.executable
        backend = os.environ.get("KERAS_BACKEND")
        done = run_forked(*command[1:], backend=backend, cwd=folder, env=os.environ)
        if not capture_output:
            sys.stdout.write(done.stdout + done.stderr)
        return done

    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["demo.py", "demo", "--quick"])
    monkeypatch.setattr(subprocess, "run", run_command)
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # it sets the limit for its commands
    exit_code = 0
    try:
        runpy.run_path(str(EXAMPLES / "demo.py"), run_name="__main__")
    except SystemExit as error:
        exit_code = error.code
    return exit_code, capsys.readouterr().out


def test_from_crash_to_trained(tmp_path, monkeypatch, capsys):
    exit_code, printed = run_demo(tmp_path, monkeypatch, capsys)
    assert exit_code == 0, printed
    _, crash, estimate, training, prediction = re.split(r"\n[1-5]\. ", printed)[1:]

    assert "ResourceExhaustedError" in crash
    assert "OOM when allocating tensor" in crash
    assert re.search(r"\b32 +[\d.]+ MiB +fits\b", estimate)
    assert re.search(r"\b64 +[\d.]+ MiB +does NOT fit\b", estimate)
    assert "plan: micro-batch 32" in training
    assert "The whole batch of 64 needs" in training
    assert "batch statistics (BatchNormalization sees 32 in place of 64)" in training
    assert training.count("BatchNormalization") == 1, "one fact is said once"
    assert "tulip/0000.jpg" in prediction
    assert "demo/run/report.html" in prediction
    noise = [line for line in printed.splitlines() if re.search(r"Warning|WARNING|Traceback|^[IWE]\d{4} |oneDNN", line)]
    assert noise == []

    run = tmp_path / "demo" / "run"
    assert "<html" in (run / "report.html").read_text()
    assert (run / "model.keras").exists()
    assert json.loads((run / "results.json").read_text())["metrics"]["accuracy"] > 0.5  # by chance: 0.2
