"""Training on several devices of the real engines, on CPU devices: the result of one device, within rounding.

One child process an engine trains all cases; the tests read what it found.
"""

import json
import os

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
