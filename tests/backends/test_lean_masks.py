"""Unstructured pruning: the sparsity is reached, and kept by fit, checkpoints and resumed runs."""

import keras
import numpy as np
import pytest
from keras import layers

import fitroom
from fitroom.lean import PolynomialSchedule, prune
from stopped_training import Stop, StopAt

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(64, 8)).astype("float32")
Y = (X[:, 0] > 0).astype("int32")
SCHEDULE = PolynomialSchedule(begin=1, end=12, frequency=2)


def classifier():
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(20, activation="relu"), layers.BatchNormalization(), layers.Dense(2)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model


class Sparsities(keras.callbacks.Callback):
    """The share of zeros in the kernels at the begin of each batch."""

    def __init__(self, pruning):
        super().__init__()
        self.pruning, self.seen = pruning, []

    def on_train_batch_begin(self, batch, logs=None):
        self.seen.append(round(self.pruning.sparsity(self.model), 3))


def weights_of(model):
    return [np.array(each) for each in model.get_weights()]


@pytest.mark.parametrize("fit", [keras.Model.fit, fitroom.fit], ids=["keras", "fitroom"])
def test_sparsity_rises_by_the_schedule_and_stays(fit):
    model = classifier()
    pruning = prune(model, 0.75, structured=False, schedule=SCHEDULE)
    watched = Sparsities(pruning)
    fit(model, X, Y, batch_size=16, epochs=5, verbose=0, callbacks=[pruning, watched])
    assert watched.seen[0] == 0
    assert watched.seen == sorted(watched.seen)
    assert watched.seen[12:] == [0.75] * 8
    assert pruning.sparsity(model) == pytest.approx(0.75, abs=0.01)


def test_without_schedule_weights_are_zero_from_the_first_batch():
    model = classifier()
    pruning = prune(model, 0.5, structured=False)
    watched = Sparsities(pruning)
    model.fit(X, Y, batch_size=32, epochs=2, verbose=0, callbacks=[pruning, watched])
    assert watched.seen == [0.5] * 4
    assert pruning.sparsity(model) == 0.5


@pytest.mark.quick_on("torch")
def test_schedule_counts_from_its_begin_and_averages_of_weights_are_masked():
    model = classifier()
    model.compile(keras.optimizers.SGD(0.01, use_ema=True), model.loss)
    model.fit(X, Y, batch_size=16, epochs=4, verbose=0)
    pruning = prune(model, 0.75, structured=False, schedule=SCHEDULE)
    watched = Sparsities(pruning)
    with pytest.warns(UserWarning, match="reaches 0.75 at update 12"):
        model.fit(X, Y, batch_size=16, epochs=1, verbose=0, callbacks=[pruning, watched])
    assert watched.seen[0] == 0
    model.fit(X, Y, batch_size=16, epochs=4, verbose=0, callbacks=[pruning, watched])
    assert watched.seen == sorted(watched.seen)
    assert pruning.sparsity(model) == 0.75  # the averages of the weights, which Keras puts in place at the end, too


def test_choice_is_not_missed_where_batches_are_counted_in_steps():
    schedule = PolynomialSchedule(begin=2, end=40, frequency=3)
    assert [step for step in range(7, 70, 7) if schedule.is_due(step, step - 7)] == [7, 14, 21, 28, 35, 42]
    assert [step for step in range(1, 70) if schedule.is_due(step, step - 1)] == [*range(2, 40, 3), 40]


def test_stopped_run_resumes_with_its_masks(tmp_path):
    def train(folder, *more):
        model = classifier()
        pruning = prune(model, 0.75, structured=False, schedule=SCHEDULE)
        callbacks = [pruning, *more]
        settings = {"batch_size": 16, "epochs": 5, "verbose": 0, "run_dir": tmp_path / folder, "checkpoint_batches": 1}
        fitroom.fit(model, X, Y, callbacks=callbacks, **settings)
        return weights_of(model)

    expected = train("whole")
    with pytest.raises(Stop):
        train("stopped", StopAt(9))
    for found, wanted in zip(train("stopped"), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_zeros_of_a_saved_model_stay_zero(tmp_path):
    model = classifier()
    model.fit(X, Y, batch_size=32, verbose=0, callbacks=[prune(model, 0.5, structured=False)])
    model.save(tmp_path / "pruned.keras")
    again = keras.models.load_model(tmp_path / "pruned.keras")
    zeros = [each == 0 for each in weights_of(again)[:1]]
    schedule = PolynomialSchedule(end=100, frequency=50)
    again.fit(X, Y, batch_size=32, verbose=0, callbacks=[prune(again, 0.9, structured=False, schedule=schedule)])
    assert (weights_of(again)[0][zeros[0]] == 0).all()


def test_wrong_settings_are_refused():
    with pytest.raises(fitroom.InputError, match="`end` must come after"):
        PolynomialSchedule(begin=5, end=5)
    with pytest.raises(fitroom.InputError, match="PolynomialSchedule"):
        prune(classifier(), 0.5, structured=False, schedule="polynomial")
    with pytest.raises(fitroom.InputError, match="for unstructured"):
        prune(classifier(), 0.5, schedule=SCHEDULE)
    model = keras.Sequential([keras.Input((8,)), layers.BatchNormalization()])
    model.compile(loss="mse")
    with pytest.raises(fitroom.ModelError, match="no kernels"):
        model.fit(X, X, verbose=0, callbacks=[prune(model, 0.5, structured=False)])
