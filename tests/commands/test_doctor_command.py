"""`fitroom doctor` as it is typed, with real frameworks and planted faults; the driver alone is made up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fake_packages import install
from processes import ROOT, needs
from ready_process import run_forked

HELPERS = Path(__file__).parents[1] / "helpers"
FAKE_DRIVER = HELPERS / "fake_driver"
T4 = {"gpus": [{"name": "Tesla T4", "total": 16 * 2**30, "used": 4 * 2**30, "processes": [[os.getpid(), 2**30]]}]}
UNSET = ("CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "KERAS_BACKEND", "TF_USE_LEGACY_KERAS")


def run_python(*arguments, driver=None, packages=(), **environment):
    """Python with a driver that answers as told, and folders of packages before the real ones."""
    inherited = {name: value for name, value in os.environ.items() if name not in UNSET}
    path = os.pathsep.join(map(str, [*packages, FAKE_DRIVER, os.environ.get("PYTHONPATH", str(ROOT / "src"))]))
    answers = {} if driver is None else {"FAKE_DRIVER": json.dumps(driver)}
    return subprocess.run(
        [sys.executable, *arguments],
        env=inherited | {"PYTHONPATH": path, "COLUMNS": "80"} | answers | environment,
        capture_output=True,
        text=True,
        timeout=900,
        cwd=ROOT,
    )


def run_doctor(*arguments, **options):
    return run_python("-m", "fitroom", "doctor", *arguments, **options)


def failures(done):
    return {
        finding["name"]: finding for finding in json.loads(done.stdout)["findings"] if finding["status"] == "failure"
    }


def test_jax_on_the_cpu_beside_a_card_is_a_failure_with_every_cause():
    needs("jax")
    fractions = {"XLA_CLIENT_MEM_FRACTION": ".5", "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"}
    done = run_doctor(
        "--backend", "jax", "--json", driver=T4, CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu", **fractions
    )
    assert done.returncode == 1, done.stderr
    found = failures(done)
    assert {"device", "CUDA_VISIBLE_DEVICES", "two memory fractions", "JAX_PLATFORMS"} <= set(found)
    assert found["two memory fractions"]["fix"] == "unset XLA_PYTHON_CLIENT_MEM_FRACTION"
    assert found["device"]["facts"]["kind"] == "cpu"


def test_tensorflow_cpu_beside_tensorflow_is_found_in_the_packages(tmp_path):
    needs("tensorflow")
    packages = install(tmp_path, tensorflow="2.21.0", tensorflow_cpu="2.21.0")
    done = run_doctor("--backend", "tf", driver=T4, packages=[packages], TF_USE_LEGACY_KERAS="1")
    assert done.returncode == 1, done.stderr
    shown = " ".join(done.stdout.split())
    assert "FAILURE device TensorFlow falls back to the CPU, although this machine has a card (Tesla T4)" in shown
    assert "fix: pip uninstall -y tensorflow-cpu tensorflow && pip install" in shown
    assert "warning two TensorFlows" in shown
    assert "warning TF_USE_LEGACY_KERAS" in shown
    assert f"1.00 GiB by {Path(sys.executable).name}" in shown.replace("python3.11", "python")  # who holds the card
    assert "mixed_float16 pays on Tesla T4" in shown
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_machine_without_a_gpu_is_in_order_unless_one_is_required():
    needs("torch")
    done = run_doctor("--backend", "torch", "--json", "--require-gpu")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["ok"], found["uses_gpu"]) == (True, False)
    by_name = {finding["name"]: finding for finding in found["findings"]}
    assert by_name["card"]["found"] == "no GPU in this machine: training runs on the CPU"
    assert by_name["probe"]["facts"]["matrix product"]["flops_per_second"] > 0
    assert {"host memory", "swap", "disk", "versions"} <= set(by_name)


def test_a_framework_that_cannot_be_imported_is_named_with_the_library_it_misses(tmp_path):
    needs("torch")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(
        "raise ImportError('libcudart.so.13: cannot open shared object file: No such file or directory')"
    )
    done = run_doctor("--backend", "torch", "--json", driver=T4, packages=[tmp_path])
    assert done.returncode == 1, done.stderr
    found = failures(done)
    assert "PyTorch does not start: ImportError: libcudart.so.13" in found["device"]["found"]
    assert found["device"]["facts"]["missing_libraries"] == ["libcudart.so.13"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--backend", "tensorflwo"), 1, "did you mean 'tensorflow'"),
        (("--model", "xception"), 1, "Without --data no input is timed. Received: --model"),
        (("--data", "docs", "--run-dir", "runs"), 1, "leave one of the two out"),
        (("--data", "no/such/folder"), 1, "There is no folder 'no/such/folder'"),
        (("--data", "no_such.py:make"), 1, "There is no file 'no_such.py'"),
        (("--data", "docs/conf.py"), 1, "say which function returns the data: docs/conf.py:make_dataset"),
        (("--data", "docs", "--model", "xcepton"), 1, "did you mean 'Xception'"),
        (("--batch-size", "0"), 2, "--batch-size"),
    ],
)
def test_wrong_input_is_refused_with_the_next_step(arguments, code, words):
    done = run_forked("-m", "fitroom", "doctor", *arguments, backend=None, cwd=ROOT, env=os.environ)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert done.stdout == ""


NOTED = """
import keras, numpy, fitroom
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(2):
    fitroom.fit(model, numpy.zeros((4, 2)), numpy.zeros((4, 1)), verbose=0)
"""


def test_fit_says_once_that_the_card_is_not_used():
    needs("torch")
    hidden = [HELPERS / "without_tensorflow"]
    done = run_python("-c", NOTED, driver=T4, packages=hidden, KERAS_BACKEND="torch", KERAS_TORCH_DEVICE="cpu")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "on the CPU" in line]
    assert line.startswith(
        "fitroom: training runs on the CPU, although this machine has a card (Tesla T4): KERAS_TORCH"
    )
    assert "unset KERAS_TORCH_DEVICE" in line


def test_timing_an_input_on_jax_passes_no_traceback_of_its_plugins_on(tmp_path):
    needs("jax")
    (tmp_path / "data.py").write_text(
        "import numpy as np\ndef make_dataset():\n    return np.zeros((8, 2), 'float32'), np.zeros((8, 1), 'float32')\n"
    )
    data = f"{tmp_path}/data.py:make_dataset"
    done = run_python("-m", "fitroom", "doctor", "--data", data, "--batch-size", "4", "--backend", "jax")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
