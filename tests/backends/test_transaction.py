"""A step that fails leaves nothing behind. The errors are planted."""

import numpy as np
import pytest

from failing_steps import (
    FUSE,
    PARTS_OF_SEVEN,
    PLACES,
    WHOLE,
    check_that_a_failed_step_leaves_every_bit,
    model_with_fuse,
)
from step_cases import FIRST, dense_batch, state_of
from step_comparison import assert_identical, numbers, step_of


@pytest.mark.parametrize("micro_batch", [WHOLE, PARTS_OF_SEVEN], ids=["whole", "cut"])
@pytest.mark.parametrize("place", PLACES)
def test_a_step_that_fails_leaves_every_bit_as_it_was(place, micro_batch):
    check_that_a_failed_step_leaves_every_bit(place, micro_batch)


@pytest.mark.parametrize("micro_batch", [WHOLE, PARTS_OF_SEVEN], ids=["whole", "cut"])
def test_a_batch_of_evaluate_that_fails_is_not_counted(micro_batch):
    model = model_with_fuse("metric")
    stepper = step_of(model)
    batch = dense_batch(FIRST)
    expected = numbers(stepper.test(batch, micro_batch))
    before = state_of(model)
    FUSE.light(1 if micro_batch == WHOLE else 2)
    with pytest.raises(Exception, match="planted"):
        stepper.test(batch, micro_batch)
    assert_identical(state_of(model), before)
    np.testing.assert_allclose(list(numbers(stepper.test(batch, micro_batch)).values()), list(expected.values()))


def test_a_batch_of_a_wrong_shape_changes_nothing():
    model = model_with_fuse("forward")
    stepper = step_of(model)
    stepper.train(dense_batch(FIRST), WHOLE)
    before = state_of(model)
    good = dense_batch(FIRST)
    with pytest.raises(ValueError, match="shape"):
        stepper.train(type(good)(x=good.x[:, :4], y=good.y), PARTS_OF_SEVEN)
    assert_identical(state_of(model), before)
