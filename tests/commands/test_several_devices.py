"""Training on several devices of the real engines, on CPU devices: the result of one device, within rounding.

One child process an engine trains all cases; the tests read what it found.
"""

import csv
import json
import os
import zipfile
from io import BytesIO

import h5py
import numpy as np
import pytest

from processes import QUICK_COMPILING, hide_tensorflow, needs, run_python

PROGRAM = "tests/helpers/several_devices.py"
ENGINES = ("jax", "tensorflow", "torch")
_found = {}


@pytest.fixture(params=ENGINES)
def found(request, tmp_path_factory):
    """What the child process of an engine found."""
    backend = request.param
    needs(backend)
    if backend not in _found:
        folder = tmp_path_factory.mktemp(backend)
        settings = {"FITROOM_VOTE_SECONDS": "60", "OMP_NUM_THREADS": "1"}
        if backend != "tensorflow":
            settings["PYTHONPATH"] = hide_tensorflow(os.environ)["PYTHONPATH"]
        arguments = [PROGRAM, str(folder)]
        if backend == "jax":
            settings |= {"XLA_FLAGS": f"{QUICK_COMPILING} --xla_force_host_platform_device_count=4"}
            settings |= {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        if backend == "torch":
            arguments = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", *arguments]
        _found[backend] = json.loads(
            run_python(arguments, backend=backend, keras_home=folder, **settings).splitlines()[-1]
        )
    return _found[backend]


def test_uneven_batches_train_to_the_weights_of_one_device(found):
    numbers = (3,) if found["backend"] == "torch" else (2, 4)
    for number in numbers:
        assert found[f"{number} devices"]["weights"] < 1e-6
        assert found[f"{number} devices"]["logs"] < 1e-5


def test_weighted_micro_batches_with_remat_train_to_the_weights_of_one_device(found):
    assert found["accumulated and recomputed"]["weights"] < 1e-6
    assert found["accumulated and recomputed"]["logs"] < 1e-5


def test_mixed_precision_differs_by_its_rounding(found):
    assert found["mixed precision"]["weights"] < 5e-3
    assert found["mixed precision"]["logs"] < 2e-2


def test_unequal_shares_count_by_their_samples(found):
    if found["backend"] == "jax":
        assert "evenly" in found["refused"]["unequal"]
    else:
        assert found["unequal shares"]["weights"] < 1e-6


def test_batch_normalisation_and_dropout_train(found):
    assert found["normalised"]["finite"]


def test_planted_out_of_memory_on_one_device_has_all_repeat_the_batch(found):
    planted = found["planted"]
    assert planted["out_of_memory"] == 1
    assert planted["micro_batch"] < 11
    assert planted["weights"] < 1e-6


def test_a_run_of_four_devices_resumes_with_two(found):
    if found["backend"] == "torch":
        pytest.skip("see tests/pressure/test_lost_process.py")
    assert found["resumed"]["weights"] < 1e-6
    assert found["resumed"]["model"]


def test_a_callback_that_stops_one_process_stops_all(found):
    if found["backend"] != "torch":
        pytest.skip("one process")
    assert found["stopped"] == 1


def test_the_users_own_strategy_or_distribution_is_served(found):
    if found["backend"] == "torch":
        pytest.skip("PyTorch has none that Keras knows")
    assert found["own"]["weights"] < 1e-6
    if found["backend"] == "jax":
        assert found["own, sharded"]["weights"] < 1e-6
        assert found["sharded"]["weights"] < 1e-6
        assert not found["sharded"]["is_replicated"]
    else:
        assert found["own"]["served"]


def test_what_cannot_work_is_refused_with_a_reason(found):
    refused = found["refused"]
    assert "9 " in refused["too many"]
    assert "cannot be shared out" in refused["small batch"]
    assert "in force already" in refused["nested"]
    if found["backend"] == "torch":
        assert "FSDP2" in refused["sharded"]
    if found["backend"] == "tensorflow":
        assert "mirror" in refused["sharded"]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ENGINES)
def test_a_script_writes_the_same_files_on_three_devices_as_on_one(backend, tmp_path):
    needs(backend)
    settings = {"XLA_FLAGS": f"{QUICK_COMPILING} --xla_force_host_platform_device_count=3", "JAX_PLATFORMS": "cpu"}
    settings |= {"FITROOM_VOTE_SECONDS": "60", "OMP_NUM_THREADS": "1"}
    said = {}
    for number in (1, 3):
        command = ["tests/helpers/on_logical_devices.py", "run", "--devices", str(number)]
        command += ["tests/helpers/writes_files.py", str(tmp_path / str(number))]
        lines = run_python(command, backend=backend, keras_home=tmp_path, **settings).splitlines()
        [line] = [line for line in lines if line.startswith("evaluated")]  # one process prints
        said[number] = [float(word) for word in line.split()[1:]]
    assert said[3] == pytest.approx(said[1], abs=1e-5)
    names = {path.name for path in (tmp_path / "1").iterdir()}
    assert {path.name for path in (tmp_path / "3").iterdir()} == names
    for name in names:
        one, three = (numbers_of(tmp_path / number / name) for number in ("1", "3"))
        assert one.keys() == three.keys()
        for key, values in one.items():
            np.testing.assert_allclose(three[key], values, atol=1e-5, err_msg=f"{name}: {key}")


def numbers_of(path):
    """All numbers that a log, or a file of a model or its weights, holds, by name."""
    if path.suffix == ".csv":
        with path.open() as file:
            return {
                f"{at} {name}": float(value)
                for at, row in enumerate(csv.DictReader(file))
                for name, value in row.items()
            }
    content = path.read_bytes() if path.suffix == ".h5" else zipfile.ZipFile(path).read("model.weights.h5")
    found = {}
    with h5py.File(BytesIO(content)) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    assert found
    return found
