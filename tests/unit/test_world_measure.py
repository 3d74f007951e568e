"""Measuring many models: one that hangs, or ends its process, costs itself alone."""

import json
import sys

import pytest

from world import measure

CHILD = """
import json, os, sys, time
for line in sys.stdin:
    name = line.strip()
    if name == "bert":
        time.sleep(60)
    if name == "gpt2":
        sys.exit("MemoryError: too large")
    left_bytes = 2**30 if name == "swin" else 0
    print("RESULT " + json.dumps({"peak_bytes": os.getpid(), "left_bytes": left_bytes}), flush=True)
"""


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Measures the configurations of these names with a program in a framework's place."""

    def run(names, *more):
        (tmp_path / "child.py").write_text(CHILD)
        monkeypatch.setattr(measure, "MEASURING", tmp_path / "child.py")
        monkeypatch.setattr(measure, "RESULTS", tmp_path)  # nothing was measured before
        command = ["measure.py", "torch", "--out", str(tmp_path), "--only", names, "--seconds", "1", *more]
        monkeypatch.setattr(sys, "argv", command)
        measure.main()
        lines = (tmp_path / "world_measured.jsonl").read_text().splitlines()
        return {line["name"]: line for line in map(json.loads, lines)}

    return run


def test_what_hangs_or_ends_costs_itself_alone(measured):
    found = measured("bert,gpt2,opt,bloom", "--jobs", "2")
    assert found["bert"]["crashed"] == "longer than 1 s"
    assert found["gpt2"]["crashed"] == "MemoryError: too large"
    assert all(found[name]["peak_bytes"] for name in ("opt", "bloom"))


def test_the_next_has_a_new_process_where_one_left_memory_behind(measured):
    found = measured("vit,swin,mixer,opt")
    process = {name: line["peak_bytes"] for name, line in found.items()}
    assert process["vit"] == process["swin"] != process["mlp mixer"] == process["opt"]


def test_one_half_alone_is_measured(measured):
    assert set(measured("mixer,clip", "--half", "reported")) == {"clip"}
