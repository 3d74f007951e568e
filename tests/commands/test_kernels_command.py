"""`fitroom kernels` as it is typed."""

import json
import os

from processes import ROOT, needs
from ready_process import run_forked


def run_kernels(*arguments):
    environment = os.environ | {"KERAS_BACKEND": "torch", "COLUMNS": "80"}
    return run_forked("-m", "fitroom", "kernels", *arguments, backend="torch", cwd=ROOT, env=environment)


def test_kernels_lists_the_layers_that_are_served_and_what_that_saves():
    needs("torch")
    done = run_kernels("mobilenetv2", "--image-size", "64", "--batch-size", "64", "--gpu", "RTX 3060", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["peak_bytes"]["fused"] < 0.7 * found["peak_bytes"]["keras"]
    served = {layer["kind"]: layer["operation"] for layer in found["layers"]}
    assert served["BatchNormalization"] == "torch.native_batch_norm"
    assert served["DepthwiseConv2D"] == "channels-last convolution"


def test_kernels_refuses_a_model_of_which_nothing_is_served(tmp_path):
    needs("torch")
    file = tmp_path / "dense.py"
    file.write_text(
        "import keras\n\n\ndef make():\n    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])\n"
    )
    refused = run_kernels(f"{file}:make")
    assert refused.returncode == 1
    assert "No layer of" in refused.stderr
