"""`make demo` does what it says: plain Keras dies of memory, and fitroom trains in the same memory."""

import json
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_from_crash_to_trained(tmp_path):
    finished = subprocess.run(
        [sys.executable, EXAMPLES / "demo.py", "demo", "--quick"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert finished.returncode == 0, finished.stdout
    _, crash, estimate, training, prediction = re.split(r"\n[1-5]\. ", finished.stdout)[1:]

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
    noise = [
        line
        for line in finished.stdout.splitlines()
        if re.search(r"Warning|WARNING|Traceback|^[IWE]\d{4} |oneDNN", line)
    ]
    assert noise == []

    run = tmp_path / "demo" / "run"
    assert "<html" in (run / "report.html").read_text()
    assert (run / "model.keras").exists()
    assert json.loads((run / "results.json").read_text())["metrics"]["accuracy"] > 0.5  # by chance: 0.2
