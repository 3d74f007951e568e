"""What README and docs say of accuracy is what the committed results say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_the_pages_are_what_the_results_make_of_them():
    command = [sys.executable, ROOT / "benchmarks" / "accuracy_page.py", "--check"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(
    ("constant", "result"),
    [("COMPILED_ERROR", "jax_h200.json"), ("OTHER_COMPILER_ERROR", "jax_h200_xla_0.10.2.json")],
)
def test_the_error_an_estimate_states_is_the_measured_median(constant, result):
    summary = json.loads((ROOT / "benchmarks" / "results" / result).read_text())["summary"]
    source = (ROOT / "src" / "fitroom" / "backends" / "jax" / "trace.py").read_text()
    stated = re.search(rf"^{constant} = ([\d.]+)$", source, re.MULTILINE)
    assert stated is not None
    assert float(stated[1]) == round(summary["median_error"], 4)


def test_every_case_that_was_capped_at_its_prediction_ran():
    lines = (ROOT / "benchmarks" / "results" / "jax_h200_caps.jsonl").read_text().splitlines()
    assert len(lines) >= 9
    assert all(json.loads(line)["runs"] for line in lines)
