"""Recomputing parts of a model on every backend, each in a process of its own; and `fitroom segments`."""

import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from test_backend_contract import LIMITED_CPU, needs, run_checks

# Most of the time on JAX goes to compiling: the programs need not be fast.
ON_THE_CPU = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.mark.parametrize("backend", ["jax", pytest.param("tensorflow", marks=pytest.mark.slow), "torch"])
def test_a_model_that_recomputes_trains_as_it_does_without(backend, tmp_path):
    needs(backend)
    run_checks(["remat_checks.py"], backend=backend, keras_home=tmp_path, **ON_THE_CPU)


def test_on_tensorflow_the_peak_falls_as_predicted_and_jitted_training_is_the_same(tmp_path):
    needs("tensorflow")
    limited = LIMITED_CPU | {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "1500"}
    run_checks(["tensorflow_remat_checks.py"], backend="tensorflow", keras_home=tmp_path, **limited)


def test_on_pytorch_the_peak_falls_as_predicted(tmp_path):
    needs("torch")
    run_checks(["torch_remat_checks.py"], backend="torch", keras_home=tmp_path, CUDA_VISIBLE_DEVICES="")


def test_graphs_are_cut_where_it_pays_and_estimates_say_so(tmp_path):
    needs("jax")
    run_checks(["remat_graph_checks.py"], backend="jax", keras_home=tmp_path, JAX_PLATFORMS="cpu")


def run_segments(*arguments):
    command = [sys.executable, "-m", "fitroom", "segments", *arguments]
    environment = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "COLUMNS": "120"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


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
