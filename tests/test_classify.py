"""Pictures in, classifier out: the pieces, and what is settled before training."""

import pytest

from fitroom.classify.options import TrainOptions, difference
from test_backend_contract import needs, run_checks


def test_networks_weights_schedules_and_predictions(tmp_path):
    needs("jax")
    quick = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    run_checks(["classify_checks.py"], backend="jax", keras_home=tmp_path, **quick)


@pytest.mark.slow
def test_what_is_settled_before_training(tmp_path):
    needs("torch")
    run_checks(["choice_checks.py"], backend="torch", keras_home=tmp_path, CUDA_VISIBLE_DEVICES="")


def test_what_may_change_when_a_run_goes_on_is_no_difference():
    options = TrainOptions(folder="flowers", run_dir="a").to_dict()
    assert difference(options, options | {"budget": "8GiB", "keep": ["remat"], "workers": 3, "run_dir": "b"}) is None
    said = difference(options, options | {"model": "resnet50", "augment": False})
    assert said == "it was started with --model xception, --augment; now it is --model resnet50, --no-augment"
