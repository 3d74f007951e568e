"""`fitroom segments` as it is typed."""

import json
import os
from xml.etree import ElementTree

from processes import ROOT, needs
from ready_process import run_forked


def run_segments(*arguments):
    environment = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}
    return run_forked("-m", "fitroom", "segments", *arguments, backend="jax", cwd=ROOT, env=environment)


def test_segments_prints_what_remat_takes_and_draws_the_graph(tmp_path):
    needs("jax")
    drawn = tmp_path / "graph.svg"
    done = run_segments("mobilenetv2", "--image-size", "96", "--json", "--plot", str(drawn))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["peak_bytes"] < found["plain_peak_bytes"]
    assert found["segments"] == [[each["first"], each["last"]] for each in found["stretches"] if each["recomputed"]]
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")


def test_segments_reads_well_and_refuses_a_budget_that_cannot_be(tmp_path):
    needs("jax")
    done = run_segments("mobilenetv2", "--image-size", "96")
    assert done.returncode == 0, done.stderr
    assert "mobilenetv2" in done.stdout
    assert "Recomputed:" in done.stdout
    refused = run_segments("mobilenetv2", "--image-size", "96", "--remat", "40MiB")
    assert refused.returncode == 1
    assert "The smallest possible is about" in refused.stderr
