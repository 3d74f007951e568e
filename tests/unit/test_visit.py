"""Benchmarks in one visit to a card: which runs when, and kernels that are handed on."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.kernels import chosen_into, put_together, taken_from

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OF_JAX = 'entries {\n  key {\n      hlo_fingerprint: "%s"\n  }\n  value {\n    algo: %d\n  }\n}\n'
OF_TENSORFLOW = 'results {\n  device: "H200"\n  hlo: "%s"\n  result {\n    algo: %d\n  }\n}\n'


@pytest.fixture
def visit(tmp_path):
    """Goes through phases whose tasks are Python programs, and gives what was told."""

    def run(*phases):
        file = tmp_path / "visit.json"
        file.write_text(json.dumps(phases))
        command = [sys.executable, str(BENCHMARKS / "harness" / "visit.py"), str(file), "--out", str(tmp_path / "out")]
        told = subprocess.run([*command, "--room", "10"], capture_output=True, text=True, check=True, timeout=60).stdout
        return told, tmp_path / "out"

    return run


def program(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    return str(file)  # absolute, so that it need not lie beside the benchmarks


def test_tasks_are_run_where_there_is_time_and_what_hangs_is_killed(visit, tmp_path):
    prints = program(tmp_path, "prints.py", "import os, sys; print(*sys.argv[1:], os.environ['WORD'])")
    hangs = program(tmp_path, "hangs.py", "import time; time.sleep(60)")
    first = [
        {"command": f"{prints} {{out}}/x.jsonl", "environment": {"WORD": "given"}, "gib": 1},
        {"command": hangs, "seconds": 0.5, "gib": 1},
    ]
    told, out = visit(
        {"name": "first", "workers": 2, "until": 60, "tasks": first},
        {"name": "second", "workers": 1, "until": 0, "tasks": [hangs]},
    )
    assert (out / "logs" / "first-0.log").read_text() == f"{out}/x.jsonl given\n"
    assert "exit code 0 after" in told
    assert f": {hangs}" in told.split("killed after")[1]
    assert f"left out: {hangs}" in told
    assert (out / "visit.log").read_text() == told


def test_what_has_no_room_waits(visit, tmp_path):
    notes = tmp_path / "notes"
    note = f"print({{!r}}, file=open({str(notes)!r}, 'a'), flush=True)"
    text = f"import time\n{note.format('+')}\ntime.sleep(0.3)\n{note.format('-')}"
    task = {"command": program(tmp_path, "notes.py", text), "gib": 6}
    visit({"name": "one", "workers": 3, "until": 60, "tasks": [task] * 3})
    assert notes.read_text().split() == ["+", "-"] * 3


def test_kernels_that_were_chosen_are_put_together_for_those_who_take_them(visit, tmp_path):
    chooses = program(
        tmp_path,
        "chooses.py",
        f"import os\nopen(os.environ['XLA_FLAGS'].split('=')[1], 'w').write({OF_JAX!r} % ('a', os.getpid()))",
    )
    takes = program(tmp_path, "takes.py", "import os; print(os.environ['XLA_FLAGS'])")
    told, out = visit(
        {"name": "one", "workers": 1, "until": 60, "tasks": [{"command": chooses, "kernels": "choose"}] * 2},
        {"name": "two", "workers": 1, "until": 60, "tasks": [{"command": takes, "kernels": "take"}, takes]},
    )
    assert "1 kernels of own" in told
    assert (out / "logs" / "two-0.log").read_text().strip() == taken_from(out / "kernels" / "own.txt")
    assert (out / "logs" / "two-1.log").read_text().strip() == ""


@pytest.mark.parametrize("form", [OF_JAX, "version: 3\n" + OF_TENSORFLOW])
def test_the_first_choice_for_a_kernel_counts(tmp_path, form):
    files = [tmp_path / name for name in ("one", "two")]
    head, entry = ("version: 3\n", OF_TENSORFLOW) if form.startswith("version") else ("", OF_JAX)
    files[0].write_text(head + entry % ("a", 1) + entry % ("b", 2))
    files[1].write_text(head + entry % ("b", 3) + entry % ("c", 4))
    assert put_together(files, tmp_path / "all.txt") == 3
    assert (tmp_path / "all.txt").read_text() == head + entry % ("a", 1) + entry % ("b", 2) + entry % ("c", 4)
    assert chosen_into(tmp_path / "x").endswith(str(tmp_path / "x"))
    assert taken_from(tmp_path / "none") == ""


def test_what_is_to_be_measured_names_scripts_that_are_there():
    for phase in json.loads((BENCHMARKS / "harness" / "to_measure.json").read_text()):
        for task in phase["tasks"]:
            command = task if isinstance(task, str) else task["command"]
            assert (BENCHMARKS / command.split()[0]).exists()
