"""`fitroom estimate` on PyTorch."""

import json

import pytest

from processes import needs, run_python


@pytest.mark.slow
def test_the_command_line_estimates_on_pytorch(tmp_path):
    needs("torch")
    arguments = ["estimate", "mobilenet_v2", "--batch-size", "8", "--image-size", "96", "--gpu", "T4", "--json"]
    printed = run_python(["-m", "fitroom", *arguments, "--backend", "torch"], backend="torch", keras_home=tmp_path)
    found = json.loads(printed)
    assert found["backend"] == "torch"
    assert found["method"] == "traced"
    assert found["fits"]
    without_layer = sum(row["bytes"] for row in found["by_layer"] if row["layer"].startswith("("))
    assert without_layer < found["by_kind"]["workspace"] + found["by_kind"]["input"] + 0.05 * found["peak_bytes"]
