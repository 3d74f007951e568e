"""Scripts as strangers write them: `fitroom run` prints the losses of plain Keras, and survives what that dies of.

benchmarks/compatibility/strangers.py runs all of them on all backends.
"""

import os
from pathlib import Path

import pytest

from processes import needs
from ready_process import run_forked
from stranger_scripts import SCRIPTS, compare, survival

BY_NAME = {script.name: script for script in SCRIPTS}
QUICK = {("vae", "jax"), ("image_folder", "tensorflow"), ("several_inputs", "torch")}


def cases():
    for script in SCRIPTS:
        for backend in script.backends:
            marks = [] if (script.name, backend) in QUICK else [pytest.mark.slow]
            yield pytest.param(script, backend, id=f"{script.name}-{backend}", marks=marks)


@pytest.mark.parametrize(("script", "backend"), list(cases()))
def test_a_script_has_the_losses_of_plain_keras(script, backend):
    needs(backend)
    found = compare(script, backend, forks=True)
    assert found["losses"] in ("equal", "rounding", "order not fixed"), found


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_survives_the_limit_that_plain_keras_dies_of_or_says_why_not(script):
    needs("tensorflow")
    found = survival(script)
    assert found["plain"] == "dies"
    assert found["served"] == ("survives" if script.uncut is None else "says why"), found["said"]


def test_a_batch_is_not_cut_where_a_layer_adds_a_loss_that_couples_its_samples():
    needs("torch")
    command = "-m", "fitroom", "run", "--backend", "torch", "--micro-batch", "16", BY_NAME["contrastive"].path
    done = run_forked(*command, backend="torch", cwd=Path.cwd(), env=os.environ)
    assert done.returncode == 1
    assert "couples the samples of a batch" in done.stderr
