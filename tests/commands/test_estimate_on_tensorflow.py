"""`fitroom estimate` on TensorFlow's graph mode."""

import json

import pytest

from processes import needs, run_python


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
