"""Out of memory in a step: the same batch again, smaller, until it is done. On the fake backend.

There a step takes half the memory where something is recomputed.
"""

import numpy as np
import pytest

from fitroom.backends.fake.backend import FakeBackend
from fitroom.backends.fake.stepper import SAMPLE_BYTES, FakeStepper
from fitroom.batch import Batch
from fitroom.errors import FreshStart, OutOfMemoryError
from fitroom.events import Events
from fitroom.recipe import Recipe, Remat
from fitroom.train.sizing import FIRST_TRIAL_INTERVAL, Sizing
from fitroom.train.transaction import Transaction


def transaction(*, samples_that_fit, micro_batch=None, batch_statistics=False, recipes=None, whole=None):
    backend = FakeBackend(capacity_bytes=samples_that_fit * SAMPLE_BYTES)
    return Transaction(
        backend,
        lambda recipe: backend.stepper(None, jit=recipe.jit, remat=recipe.remat),
        Events(),
        recipes=recipes or (Recipe(micro_batch=micro_batch),),
        whole=whole,
        batch_statistics=lambda: batch_statistics,
    )


def batch_of(size):
    return Batch(x=np.zeros((size, 1)))


def test_a_batch_that_fits_is_trained_whole_and_nothing_is_said():
    steps = transaction(samples_that_fit=64)
    steps.train(batch_of(64))
    assert steps.stepper.trained == [64]
    assert steps.events.happened == []


def test_a_batch_that_does_not_fit_is_halved_until_it_does_and_done_once():
    steps = transaction(samples_that_fit=20)
    steps.train(batch_of(64))
    assert steps.stepper.trained == [64]
    assert steps.training.current == 16
    assert [event["samples"] for event in steps.events.happened] == [64, 32]


def test_the_size_that_worked_is_remembered():
    steps = transaction(samples_that_fit=20)
    for size in (64, 64, 30):
        steps.train(batch_of(size))
    assert steps.out_of_memory_count == 2
    assert steps.stepper.trained == [64, 64, 30]


def test_validation_has_a_size_of_its_own():
    steps = transaction(samples_that_fit=20)
    steps.test(batch_of(64))
    assert steps.testing.current == 16
    assert steps.training.current is None
    assert steps.stepper.tested == [64]


def test_validation_begins_at_what_training_found():
    steps = transaction(samples_that_fit=20)
    steps.train(batch_of(64))
    steps.test(batch_of(64))
    assert steps.out_of_memory_count == 2


def test_validation_that_cannot_be_cut_says_why_where_it_does_not_fit():
    steps = transaction(samples_that_fit=20)
    steps.stepper = FakeStepper(steps.backend._gpu_memory, why_whole="the model brings its own `test_step`")
    with pytest.raises(OutOfMemoryError, match=r"in validation with a batch of 64, .* its own `test_step`"):
        steps.test(batch_of(64))


def test_one_sample_that_does_not_fit_says_what_there_was_and_what_to_try():
    steps = transaction(samples_that_fit=0)
    with pytest.raises(OutOfMemoryError) as raised:
        steps.train(batch_of(4))
    assert "micro-batch 1" in raised.value.message
    assert "cannot give 100 bytes" in raised.value.message
    assert "fitroom estimate" in raised.value.hint


def test_memory_that_is_not_given_back_is_named_as_the_cause():
    steps = transaction(samples_that_fit=2)
    steps.backend._gpu_memory.allocate(2 * SAMPLE_BYTES)
    with pytest.raises(OutOfMemoryError) as raised:
        steps.train(batch_of(4))
    assert "although nothing runs" in raised.value.hint


def test_where_something_lies_in_the_way_a_fresh_process_begins_with_what_went_well_before():
    steps = transaction(samples_that_fit=6)
    steps.train(batch_of(8))  # at 4
    steps.backend._gpu_memory.allocate(6 * SAMPLE_BYTES)
    with pytest.raises(OutOfMemoryError) as raised:
        steps.train(batch_of(8))
    assert raised.value.fresh_start == FreshStart(micro_batch=4, during="training", is_known_to_fit=True)
    assert "Recipe(micro_batch=4), which succeeded before" in raised.value.hint


def test_a_first_try_that_fails_is_not_worth_another_process():
    steps = transaction(samples_that_fit=0, micro_batch=1)
    with pytest.raises(OutOfMemoryError) as raised:
        steps.train(batch_of(4))
    assert raised.value.fresh_start is None


def test_a_size_that_only_a_fresh_process_could_go_on_from_is_not_tried_again():
    sizing = Sizing(most=4)
    for _ in range(5 * FIRST_TRIAL_INTERVAL):
        sizing.succeeded(64)
    assert sizing.micro_batch_for(64) == 4
    sizing.failed(4)
    for _ in range(5 * FIRST_TRIAL_INTERVAL):
        sizing.succeeded(64)
    assert sizing.micro_batch_for(64) == 4


def test_a_batch_that_cannot_be_cut_says_why():
    steps = transaction(samples_that_fit=2)
    steps.stepper = FakeStepper(steps.backend._gpu_memory, why_whole="the model brings its own `train_step`")
    with pytest.raises(OutOfMemoryError, match="its own `train_step`"):
        steps.train(batch_of(4))


def test_other_errors_are_raised_untouched():
    steps = transaction(samples_that_fit=2)
    error = ValueError("shapes differ")

    def failing(*_):
        raise error

    steps.stepper.train = failing
    with pytest.raises(ValueError, match="shapes differ") as raised:
        steps.train(batch_of(1))
    assert raised.value is error


def test_batch_statistics_are_spoken_of_once_and_only_when_a_batch_was_cut():
    steps = transaction(samples_that_fit=64, micro_batch=8, batch_statistics=True)
    steps.train(batch_of(8))
    assert steps.events.happened == []
    for _ in range(3):
        steps.train(batch_of(16))
    assert [event["kind"] for event in steps.events.happened] == ["batch statistics"]
    assert "micro-batches of 8 samples instead" in steps.events.happened[0]["message"]


def test_batch_statistics_of_one_sample_are_spoken_of_in_the_singular():
    steps = transaction(samples_that_fit=64, micro_batch=1, batch_statistics=True)
    steps.train(batch_of(4))
    assert "micro-batches of 1 sample instead" in steps.events.happened[0]["message"]


def test_memory_that_comes_back_is_used_again_after_a_clean_stretch():
    steps = transaction(samples_that_fit=16)
    steps.train(batch_of(32))
    steps.backend._gpu_memory.capacity_bytes = 32 * SAMPLE_BYTES
    for _ in range(FIRST_TRIAL_INTERVAL + 1):
        steps.train(batch_of(32))
    assert steps.training.micro_batch_for(32) == 32
    assert steps.out_of_memory_count == 1


def test_growing_never_thrashes():
    steps = transaction(samples_that_fit=16)
    updates = 20 * FIRST_TRIAL_INTERVAL
    for _ in range(updates):
        steps.train(batch_of(32))
    # At first, then after 100, 200, 400 and 800 clean updates.
    assert steps.out_of_memory_count == 5
    assert steps.training.micro_batch_for(32) == 16
    assert len(steps.stepper.trained) == updates


def test_a_larger_size_that_does_not_last_counts_as_one_that_failed():
    sizing = Sizing()
    sizing.failed(64)
    for stretch in (100, 200, 400):
        assert sizing.trial_interval == stretch
        for _ in range(stretch + 50):  # tried after the stretch, and fine for a while
            sizing.succeeded(64)
        assert sizing.micro_batch_for(64) == 64
        sizing.failed(64)
        assert sizing.micro_batch_for(64) == 32
    for _ in range(2 * 800 + 1):  # now it lasts
        sizing.succeeded(64)
    assert (sizing.micro_batch_for(64), sizing.trial_interval) == (64, FIRST_TRIAL_INTERVAL)


def test_growing_stops_at_what_was_asked():
    sizing = Sizing(recipes=(Recipe(micro_batch=8),))
    sizing.failed(8)
    for _ in range(5 * FIRST_TRIAL_INTERVAL):
        sizing.succeeded(64)
    assert sizing.micro_batch_for(64) == 8


def test_a_sizing_survives_a_checkpoint():
    sizing = Sizing()
    sizing.failed(64)
    sizing.succeeded(64)
    again = Sizing()
    again.restore(sizing.to_dict())
    assert again == sizing


SEGMENTS = Remat(segments=[("conv1", "add")])
LADDER = (Recipe(), Recipe(remat=SEGMENTS), Recipe(remat="blocks"), Recipe(remat="blocks", micro_batch=24))


def planned(*, samples_that_fit, recipes=LADDER, **options):
    return transaction(samples_that_fit=samples_that_fit, recipes=recipes, whole=64, **options)


def in_force(steps):
    return steps.training.recipe.remat, steps.training.micro_batch_for(64)


def test_a_plan_recomputes_before_it_cuts_and_does_the_same_batch_again():
    steps = planned(samples_that_fit=40)
    steps.train(batch_of(64))
    assert in_force(steps) == (SEGMENTS, 64)
    assert steps.stepper.remat == SEGMENTS
    assert steps.stepper.trained == [64]
    [event] = steps.events.happened
    assert event["message"].startswith(
        "out of memory in training with micro-batch 64; the same batch again with 1 segment recomputed, micro-batch 64."
    )
    assert event["recomputed"] == "1 segment recomputed"


def test_below_the_last_recipe_of_a_plan_sizes_are_halved_with_what_that_recomputes():
    steps = planned(samples_that_fit=8)
    steps.train(batch_of(64))
    assert in_force(steps) == ("blocks", 12)
    said = [(event.get("recomputed"), event["smaller"]) for event in steps.events.happened]
    assert said == [("1 segment recomputed", 64), ("blocks recomputed", 64), (None, 24), (None, 12)]


def test_a_recipe_that_changes_nothing_for_a_short_batch_is_passed_over():
    steps = planned(samples_that_fit=8, recipes=(Recipe(micro_batch=32), Recipe(micro_batch=24), Recipe(micro_batch=8)))
    steps.train(batch_of(20))
    assert [event["smaller"] for event in steps.events.happened] == [8]


def test_a_batch_that_cannot_be_cut_is_recomputed_all_the_same():
    def whole_only(fits):
        steps = planned(samples_that_fit=fits)
        made = steps._make_stepper

        def stepper_of(recipe):
            stepper = made(recipe)
            stepper.whole_because = "the model brings its own `train_step`"
            return stepper

        steps._make_stepper, steps.stepper = stepper_of, stepper_of(Recipe())
        return steps

    steps = whole_only(fits=40)
    steps.train(batch_of(64))
    assert in_force(steps) == (SEGMENTS, 64)
    with pytest.raises(OutOfMemoryError, match="its own `train_step`"):
        whole_only(fits=20).train(batch_of(64))


def test_one_sample_is_recomputed_before_training_gives_up():
    steps = planned(samples_that_fit=1, recipes=(Recipe(), Recipe(remat="blocks")))
    steps.backend._gpu_memory.allocate(SAMPLE_BYTES // 2)
    steps.train(batch_of(1))
    assert in_force(steps)[0] == "blocks"


def test_memory_that_comes_back_takes_a_plan_up_again_one_recipe_at_a_time():
    steps = planned(samples_that_fit=6)
    steps.train(batch_of(64))
    assert in_force(steps) == ("blocks", 12)
    steps.backend._gpu_memory.capacity_bytes = 64 * SAMPLE_BYTES
    seen = []
    for _ in range(6 * FIRST_TRIAL_INTERVAL):
        steps.train(batch_of(64))
        if not seen or seen[-1] != in_force(steps):
            seen.append(in_force(steps))
    assert seen == [("blocks", 12), ("blocks", 24), ("blocks", 64), (SEGMENTS, 64), (None, 64)]
    assert steps.stepper.remat is None


def test_a_plan_that_simply_does_not_fit_is_tried_again_further_and_further_apart():
    steps = planned(samples_that_fit=40)
    for _ in range(20 * FIRST_TRIAL_INTERVAL):
        steps.train(batch_of(64))
    # At first, then after 100, 200, 400 and 800 clean updates.
    assert steps.out_of_memory_count == 5
    assert in_force(steps) == (SEGMENTS, 64)


def test_a_short_batch_is_no_reason_to_take_the_recipe_before():
    sizing = Sizing(recipes=LADDER[1:3], whole=64)
    for samples in (64, 64, 32):
        sizing.failed(samples)
    assert sizing.micro_batch_for(64) == 16
    for _ in range(5 * FIRST_TRIAL_INTERVAL):
        sizing.succeeded(5)
    assert (sizing.recipe.remat, sizing.micro_batch_for(64)) == ("blocks", 16)


def test_validation_recomputes_nothing_and_begins_at_the_size_that_training_found():
    steps = planned(samples_that_fit=24)
    steps.train(batch_of(64))
    steps.test(batch_of(64))
    assert in_force(steps) == ("blocks", 24)
    assert steps.testing.recipe == Recipe(micro_batch=24)


def test_a_sizing_of_a_plan_survives_a_checkpoint_also_while_it_tries():
    sizing = Sizing(recipes=LADDER, whole=64)
    sizing.failed(64)
    sizing.failed(64)
    for _ in range(FIRST_TRIAL_INTERVAL):
        sizing.succeeded(64)
    assert sizing.fallback == (2, None)
    again = Sizing(recipes=LADDER, whole=64)
    again.restore(sizing.to_dict())
    assert again == sizing


def test_a_sizing_goes_on_from_the_start_where_the_recipes_are_others():
    sizing = Sizing(recipes=LADDER, whole=64)
    sizing.failed(64)
    again = Sizing(recipes=(Recipe(), Recipe(remat="blocks")), whole=64)
    again.restore(sizing.to_dict())
    assert again.recipe == Recipe()
