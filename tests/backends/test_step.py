"""Steps in micro-batches are those of the whole batch.

Models are trained beside twins that Keras trains by itself on whole batches.
"""

import keras
import numpy as np
import pytest

from fitroom.batch import Batch
from fitroom.errors import ModelError
from step_cases import CASES, CUTS, FIRST, LATER, MICRO_BATCHES, compiled, dense, dense_batch, state_of
from step_comparison import (
    OwnStep,
    assert_close,
    assert_identical,
    expected_of,
    numbers,
    step_of,
    trained_by_keras,
    trained_by_us,
    untraced,
)

pytestmark = pytest.mark.usefixtures("loops_as_on_a_card")


# One step is the whole batch's, however it is cut.


@pytest.mark.parametrize(("name", "num_parts"), CUTS)
def test_a_step_in_parts_is_that_of_the_whole_batch(name, num_parts):
    case = CASES[name]
    batches = case.batches()
    assert len(batches[0].micro_batches(MICRO_BATCHES[num_parts])) == num_parts
    expected_logs, expected = expected_of(name)
    logs, state = trained_by_us(case.make(), MICRO_BATCHES[num_parts], *batches)
    for found, wanted in zip(logs, expected_logs, strict=True):
        assert_close(found, wanted, rtol=case.rtol, atol=case.atol)
    miscounted = {each for each in expected if is_miscounted(name, each)}
    assert_close(without(state, miscounted), without(expected, miscounted), rtol=case.rtol, atol=case.atol)


def is_miscounted(name, variable):
    """In a second batch size TensorFlow's trace has no size, and Keras takes the batch for one sample of an output."""
    return keras.config.backend() == "tensorflow" and name.startswith("two outputs") and variable.startswith("metrics")


def without(state, names):
    return {name: value for name, value in state.items() if name not in names}


@pytest.mark.parametrize("num_parts", [1, 3])
@pytest.mark.parametrize("name", ["plain", "masks", "two outputs", "activity regularizer", "sum"])
def test_a_batch_of_evaluate_in_parts_is_the_whole_one(name, num_parts):
    case = CASES[name]
    batch, model = case.batches()[0], case.make()
    expected = untraced(case.make()).test_on_batch(batch.x, batch.y, batch.sample_weight, return_dict=True)
    stepper = step_of(model)
    stepper.prepare(batch)
    before = state_of(model, metrics=False)
    assert_close(numbers(stepper.test(batch, MICRO_BATCHES[num_parts])), expected)
    assert_identical(state_of(model, metrics=False), before)


def test_predict_gives_the_outputs_in_their_structure():
    case = CASES["two outputs"]
    model, batch = case.make(), case.batches()[0]
    outputs = step_of(model).predict(batch.x)
    expected = model.predict_on_batch(batch.x)
    keras.tree.map_structure(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-5), outputs, expected)


def test_metrics_go_on_from_batch_to_batch():
    model, twin = dense(metrics=["mae"]), dense(metrics=["mae"])
    batch = dense_batch(FIRST + LATER)
    untraced(twin).fit(batch.x, batch.y, batch_size=FIRST, shuffle=False, verbose=0)
    stepper = step_of(model)
    stepper.train(batch.slice(0, FIRST), 7)
    logs = numbers(stepper.train(batch.slice(FIRST, FIRST + LATER), 7))
    assert_close(logs, twin.history.history | {name: each[0] for name, each in twin.history.history.items()})


def test_a_batch_brought_ahead_is_the_same_batch():
    model, twin = dense(), dense()
    batch = dense_batch(FIRST)
    stepper = step_of(model)
    stepper.train(stepper.prefetch(batch), 7)
    step_of(twin).train(batch, 7)
    assert_identical(state_of(model), state_of(twin))


def test_after_forgetting_a_step_is_the_same_step():
    model, twin = dense(), dense()
    batch = dense_batch(FIRST)
    stepper, other = step_of(model), step_of(twin)
    for _ in range(2):
        stepper.train(batch, 7)
        stepper.forget()
        other.train(batch, 7)
    assert_identical(state_of(model), state_of(twin))


# Mixed precision.


def overflowing():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return dense(optimizer=keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**40))
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize("num_parts", MICRO_BATCHES)
def test_an_overflow_skips_one_update_and_halves_the_scale_once(num_parts):
    model = overflowing()
    stepper = step_of(model)
    stepper.prepare(dense_batch(FIRST))
    before = [keras.ops.convert_to_numpy(variable).copy() for variable in model.trainable_variables]
    stepper.train(dense_batch(FIRST), MICRO_BATCHES[num_parts])
    assert float(keras.ops.convert_to_numpy(model.optimizer.dynamic_scale)) == 2.0**39
    assert int(model.optimizer.iterations) == 0
    for variable, value in zip(model.trainable_variables, before, strict=True):
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), value)


# Losses that cannot be cut, and models that bring their own step.


def spread(y_true, y_pred):
    """Couples the samples: how far apart their errors are."""
    return keras.ops.std(y_true - y_pred)


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return 2.0 * super().compute_loss(x, y, y_pred, sample_weight, training)


@pytest.mark.parametrize("loss", [spread, keras.losses.Dice()], ids=["spread", "dice"])
def test_a_loss_that_couples_samples_is_trained_whole_and_never_cut(loss):
    model, twin = (compiled(lambda x: keras.layers.Dense(3)(x), loss=loss) for _ in range(2))
    batch = dense_batch(FIRST)
    stepper = step_of(model)
    before = state_of(model)
    with pytest.raises(ModelError, match="couples the samples"):
        stepper.train(batch, 7)
    assert_identical({name: state_of(model)[name] for name in before}, before)
    model.reset_metrics()
    logs = numbers(stepper.train(batch, FIRST))
    expected_logs, expected = trained_by_keras(twin, batch)
    assert_close(logs, expected_logs[0])
    assert_close(state_of(model), expected)


@pytest.mark.parametrize(("kind", "name"), [(OwnStep, "train_step"), (OwnLoss, "compute_loss")])
def test_a_model_with_a_step_or_loss_of_its_own_is_trained_whole_and_never_cut(kind, name):
    model, twin = dense(kind=kind), dense(kind=kind)
    batch = dense_batch(FIRST)
    stepper = step_of(model)
    assert name in stepper.why_whole()
    with pytest.raises(ModelError, match=name):
        stepper.train(batch, 7)
    logs = numbers(stepper.train(batch, FIRST))
    expected_logs, expected = trained_by_keras(twin, batch)
    assert_close(logs, expected_logs[0])
    assert_close(state_of(model), expected)


def test_other_models_say_nothing_against_being_cut():
    stepper = step_of(dense())
    stepper.prepare(dense_batch(FIRST))
    assert stepper.why_whole() is None


# What a forward pass changes.


@pytest.mark.parametrize("num_parts", MICRO_BATCHES)
def test_batch_statistics_move_by_the_mean_over_parts_that_start_alike(num_parts):
    momentum = 0.9
    model = compiled(
        lambda x: keras.layers.Dense(3)(keras.layers.BatchNormalization(momentum=momentum, name="norm")(x)),
        loss="mse",
    )
    batch = dense_batch(FIRST)
    norm = model.get_layer("norm")
    norm.moving_mean.assign(np.linspace(-1, 1, 6))
    norm.moving_variance.assign(np.linspace(0.5, 2, 6))
    start = [keras.ops.convert_to_numpy(each).copy() for each in (norm.moving_mean, norm.moving_variance)]
    step_of(model).train(batch, MICRO_BATCHES[num_parts])
    parts = batch.micro_batches(MICRO_BATCHES[num_parts])
    for before, variable, of_part in zip(
        start, (norm.moving_mean, norm.moving_variance), (np.mean, np.var), strict=True
    ):
        outcomes = [momentum * before + (1 - momentum) * of_part(part.x, axis=0) for part in parts]
        expected = sum(part.size / FIRST * outcome for part, outcome in zip(parts, outcomes, strict=True))
        np.testing.assert_allclose(keras.ops.convert_to_numpy(variable), expected, rtol=1e-5)


def test_frozen_statistics_do_not_move_at_all():
    model = compiled(lambda x: keras.layers.Dense(3)(keras.layers.BatchNormalization(name="norm")(x)), loss="mse")
    norm = model.get_layer("norm")
    norm.moving_mean.assign(np.linspace(-1, 1, 6) / 3)
    norm.trainable = False
    model.compile("sgd", "mse")
    before = keras.ops.convert_to_numpy(norm.moving_mean).copy()
    step_of(model).train(dense_batch(FIRST), 3)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(norm.moving_mean), before)


def mean_output(y_true, y_pred):
    return keras.ops.mean(y_pred)


def test_the_parts_draw_dropout_masks_of_their_own():
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dropout(0.5), keras.layers.Dense(1, kernel_initializer="zeros")]
    )
    model.compile(keras.optimizers.SGD(1.0), mean_output)
    step_of(model).train(Batch(x=np.ones((2, 64), "float32"), y=np.zeros((2, 1), "float32")), 1)
    moves = -keras.ops.convert_to_numpy(model.trainable_variables[0])
    # Where both masks keep an input its weight moves by 2, where one does by 1: alike, they would never be one alone.
    assert {0.0, 1.0, 2.0} == set(np.round(moves.ravel(), 4).tolist())


def test_the_random_state_goes_on_after_a_step():
    model = compiled(lambda x: keras.layers.Dense(3)(keras.layers.Dropout(0.5, seed=5)(x)), loss="mse")
    batch = dense_batch(FIRST)
    stepper, seeds = step_of(model), []
    for _ in range(3):
        stepper.train(batch, 7)
        seeds.append([value.tolist() for name, value in state_of(model).items() if "seed" in name])
    assert seeds[0]
    assert seeds[0] != seeds[1] != seeds[2]
