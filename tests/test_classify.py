"""Pictures in, classifier out: the pieces, and the search for the largest micro-batch."""

from dataclasses import replace

import pytest

from fitroom.classify.micro_batch import largest_cut
from fitroom.classify.options import TrainOptions, difference
from sample_estimates import estimate_of, small_timeline
from test_backend_contract import needs, run_checks


def test_networks_weights_schedules_and_predictions(tmp_path):
    needs("jax")
    quick = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    run_checks(["classify_checks.py"], backend="jax", keras_home=tmp_path, **quick)


@pytest.mark.parametrize("batch_size", [1, 7, 32, 100, 256])
@pytest.mark.parametrize("resting_mib", [10, 400])
@pytest.mark.parametrize("limit_mib", [300, 500, 1000, 5000])
def test_the_fewest_parts_that_fit_are_found_with_few_estimates(batch_size, resting_mib, limit_mib):
    """Memory is a line with a step between whole batches and cut ones, as accumulated gradients make it."""
    asked = []

    def estimate(samples):
        asked.append(samples)
        required_mib = resting_mib + 9 * samples + (0 if samples == batch_size else 30)
        return replace(
            estimate_of(small_timeline()), required_bytes=required_mib * 2**20, limit_bytes=limit_mib * 2**20
        )

    cut = largest_cut(batch_size, estimate)
    sizes = [-(-batch_size // parts) for parts in range(1, batch_size + 1)]
    fitting = [size for size in sizes if resting_mib + 9 * size + (0 if size == batch_size else 30) <= limit_mib]
    if fitting:
        assert cut.samples == fitting[0]
        assert cut.estimate.fits
    else:
        assert not cut.estimate.fits
    assert len(asked) <= 6


def test_what_may_change_when_a_run_goes_on_is_no_difference():
    options = TrainOptions(folder="flowers", run_dir="a").to_dict()
    assert difference(options, options | {"budget": "8GiB", "workers": 3, "run_dir": "b"}) is None
    said = difference(options, options | {"model": "resnet50", "augment": False})
    assert said == "it was begun with --model xception, --augment; now it is --model resnet50, --no-augment"
