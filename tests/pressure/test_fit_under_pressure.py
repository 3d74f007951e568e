"""`fitroom.fit` on TensorFlow whose CPU allocator is limited: every out-of-memory here is a real one.

TensorFlow waits ten seconds before it gives up on an allocation, so the processes run side by side. A few errors here;
benchmarks/faults/stress.py makes more than a hundred.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pressure import SUM_OF_NUMBERS, trained
from processes import needs

NO_LIMIT_MB = 8000
STRESSED, EPOCHS = range(3), 2


@pytest.fixture(scope="module")
def runs():
    """All of the trainings under a limit."""
    needs("tensorflow")
    ways = ("too_large", "jitted", "tightens", "validation", "outside", "sub_pixel", "weights")
    wanted = [*((way,) for way in ways), *(("stress", seed, EPOCHS) for seed in STRESSED)]
    # One operation at a time, as on a card: what two take at once is a matter of the machine's load.
    alone = {"limit_mb": 70, "TF_NUM_INTEROP_THREADS": "1"}
    others = {("sub_pixel",): alone, ("weights",): {"limit_mb": 60}}
    with ThreadPoolExecutor(len(wanted)) as pool:
        found = pool.map(lambda way: trained(*way, **others.get(way, {})), wanted)
        return dict(zip(wanted, found, strict=True))


def test_a_batch_that_cannot_fit_trains_to_the_weights_of_an_unlimited_run_with_the_same_parts(runs):
    found = runs["too_large",]
    assert found["out_of_memory"] > 0
    unlimited = trained("too_large", found["micro_batch"], limit_mb=NO_LIMIT_MB)
    assert unlimited["out_of_memory"] == 0
    assert found["weights"] == unlimited["weights"]
    assert found["updates"] == unlimited["updates"] == 2


def test_a_jitted_step_that_cannot_fit_runs_out_of_memory_in_graph_mode_where_it_does_no_harm(runs):
    """One that fits in graph mode may still be too large for XLA, which takes more than that on a CPU."""
    found = runs["jitted",]
    assert found["failed"][0] == "graph"
    assert found["updates"] == 2
    assert found["seen_count"] == [720] * 2


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


def test_evaluation_and_prediction_that_are_too_large_shrink_themselves_and_not_training(runs):
    found = runs["outside",]
    assert found["counts"] == [1600] * 3
    assert found["same"]
    assert found["micro_batch"] is None
    assert found["out_of_memory"] == 0
    assert found["updates"] == 12


def test_what_a_batch_that_was_too_large_leaves_behind_is_not_in_the_way_of_a_smaller_one(runs):
    """The pool in regions of 32 MB and less, none of which the allocator gives back, has no room for a block of 35."""
    found = runs["sub_pixel",]
    assert found["out_of_memory"] > 0
    assert found["micro_batch"] < 8
    assert found["updates"] == 2


def test_weights_that_find_no_room_are_told_as_such_and_leave_the_model_as_it_was(runs):
    found = runs["weights",]
    assert "Out of memory while the weights and the optimizer's variables were made" in found["said"]
    assert "What to try, in the order of what it changes about the result" in found["said"]
    assert found["explained"]["failure"]["framework"] == "tensorflow"
    assert found["explained"]["failure"]["requested_bytes"] == 80 * 2**20
    assert found["built"] == []
    assert found["variables"] == 0
    assert found["updates"] == 1


def test_memory_that_comes_and_goes_loses_no_sample_and_shows_none_twice(runs):
    stressed = [runs["stress", seed, EPOCHS] for seed in STRESSED]
    assert sum(found["out_of_memory"] for found in stressed) >= 10
    for found in stressed:
        assert found["updates"] == 3 * EPOCHS
        assert found["seen_count"] == [720] * EPOCHS
        assert found["seen_sum"] == [SUM_OF_NUMBERS] * EPOCHS
