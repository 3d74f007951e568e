"""`fitroom.fit` on TensorFlow whose CPU allocator is limited: every out-of-memory here is a real one.

TensorFlow waits ten seconds before it gives up on an allocation, so the processes run side by side.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from test_backend_contract import needs

SCRIPT = Path(__file__).with_name("pressure_run.py")
LIMIT_MB, NO_LIMIT_MB = 250, 8000
STRESSED = range(6)
SUM_OF_NUMBERS = 22296
"""Of the numbers that the 720 pictures carry."""


def trained(*arguments, limit_mb=LIMIT_MB):
    environment = os.environ | {
        "KERAS_BACKEND": "tensorflow",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_CPU_ALLOCATOR_USE_BFC": "true",
        "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mb),
        "TF_ENABLE_ONEDNN_OPTS": "0",  # its kernels crash when memory runs out
    }
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, done.stderr[-3000:]
    return json.loads(results[-1][7:])


@pytest.fixture(scope="module")
def runs():
    """All of the trainings under a limit."""
    needs("tensorflow")
    wanted = [("too_large",), ("tightens",), ("validation",), *(("stress", seed) for seed in STRESSED)]
    with ThreadPoolExecutor(len(wanted)) as pool:
        return dict(zip(wanted, pool.map(lambda arguments: trained(*arguments), wanted), strict=True))


def test_a_batch_that_cannot_fit_trains_to_the_weights_of_an_unlimited_run_with_the_same_parts(runs):
    found = runs["too_large",]
    assert found["out_of_memory"] > 0
    unlimited = trained("too_large", found["micro_batch"], limit_mb=NO_LIMIT_MB)
    assert unlimited["out_of_memory"] == 0
    assert found["weights"] == unlimited["weights"]
    assert found["updates"] == unlimited["updates"] == 2


def test_a_limit_that_tightens_in_mid_run_is_survived(runs):
    found = runs["tightens",]
    assert found["out_of_memory"] > 0
    assert found["updates"] == 9
    assert found["seen_count"] == [720] * 3


def test_validation_that_is_too_large_shrinks_itself_and_not_training(runs):
    found = runs["validation",]
    assert found["during"]
    assert set(found["during"]) == {"validation"}
    assert found["micro_batch"] is None
    assert found["validation_micro_batch"] < 1600
    assert found["val_seen_count"] == [1600]
    assert found["updates"] == 12


def test_a_hundred_out_of_memory_errors_lose_no_sample_and_see_none_twice(runs):
    stressed = [runs["stress", seed] for seed in STRESSED]
    assert sum(found["out_of_memory"] for found in stressed) >= 100
    for found in stressed:
        assert found["updates"] == 12
        assert found["seen_count"] == [720] * 4
        assert found["seen_sum"] == [SUM_OF_NUMBERS] * 4
