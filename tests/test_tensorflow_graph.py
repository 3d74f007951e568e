"""TensorFlow's graph mode, estimated without a card: in processes of their own, one of them under a limit."""

import json

import pytest

from test_backend_contract import LIMITED_CPU, needs, run_checks, run_python


@pytest.mark.slow
def test_steps_of_every_kind_are_estimated_and_models_given_back_as_they_were(tmp_path):
    needs("tensorflow")
    run_checks(["tensorflow_graph_checks.py"], backend="tensorflow", keras_home=tmp_path, CUDA_VISIBLE_DEVICES="")


def test_the_replay_agrees_with_steps_that_ran(tmp_path):
    needs("tensorflow")
    limited = LIMITED_CPU | {"TF_CPU_BFC_MEM_LIMIT_IN_MB": "1500"}
    run_checks(["tensorflow_replay_checks.py"], backend="tensorflow", keras_home=tmp_path, **limited)


@pytest.mark.slow
def test_operations_come_in_the_order_of_steps_that_ran(tmp_path):
    needs("tensorflow")
    run_checks(["tensorflow_order_checks.py"], backend="tensorflow", keras_home=tmp_path, CUDA_VISIBLE_DEVICES="")


@pytest.mark.slow
def test_the_command_estimates_a_ready_made_model(tmp_path):
    needs("tensorflow")
    command = ["-m", "fitroom", "estimate", "MobileNetV3Small", "--batch-size", "8", "--image-size", "64"]
    options = ["--backend", "tensorflow", "--gpu", "T4", "--no-jit", "--json"]
    printed = run_python([*command, *options], backend="tensorflow", keras_home=tmp_path, CUDA_VISIBLE_DEVICES="")
    found = json.loads(printed)
    assert found["method"] == "traced"
    assert found["required_bytes"] >= found["peak_bytes"]
    assert sum(found["by_kind"].values()) == found["peak_bytes"]
    no_layer = sum(row["bytes"] for row in found["by_layer"] if row["layer"].startswith("(no"))
    assert no_layer < 0.05 * found["peak_bytes"]
