"""Trials that really train, on each backend: `fitroom.trials`, an Optuna study, a search of keras-tuner."""

import os

import keras
import numpy as np
import pytest

import fitroom
from processes import hide_tensorflow

X = np.linspace(0, 1, 64, dtype="float32").reshape(16, 4)
Y = X.sum(axis=1)


@pytest.fixture(autouse=True)
def without_tensorflow_where_it_is_not_the_backend(monkeypatch):
    if keras.backend.backend() != "tensorflow":
        monkeypatch.setenv("PYTHONPATH", hide_tensorflow(os.environ)["PYTHONPATH"])


def fit(units, epochs=2):
    import keras

    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model.fit(X, Y, epochs=epochs, verbose=0).history["loss"]


def test_a_training_in_a_process_of_its_own_returns_its_history(tmp_path):
    def train(units):
        loss = fit(units)
        return {"loss": loss, "backend": keras.backend.backend(), "array": np.float32(loss[-1])}

    [row] = fitroom.trials(train, [{"units": 3}], tmp_path, show=False)
    assert row.state == "finished", row.error
    assert row.result["backend"] == keras.backend.backend()
    assert len(row.result["loss"]) == 2
    assert row.result["array"] == pytest.approx(row.result["loss"][-1])
    assert row.host_bytes > 2**20
    assert (row.peak_bytes is not None) == (keras.backend.backend() == "tensorflow")  # which counts on the CPU here


def test_an_optuna_objective_trains_in_its_process(tmp_path):
    optuna = pytest.importorskip("optuna")

    def objective(trial):
        losses = fit(trial.suggest_int("units", 1, 4))
        for epoch, loss in enumerate(losses):
            trial.report(loss, epoch)
        return losses[-1]

    study = optuna.create_study()
    study.optimize(fitroom.isolate_objective(objective, logs=tmp_path), n_trials=1)
    [trial] = study.trials
    assert trial.state == optuna.trial.TrialState.COMPLETE, trial.user_attrs
    assert trial.value == trial.intermediate_values[1]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:keras_tuner")
def test_a_search_of_keras_tuner_builds_and_trains_in_processes(tmp_path):
    keras_tuner = pytest.importorskip("keras_tuner")
    told = []

    def build(hp):
        layers = [keras.layers.Input((4,)), keras.layers.Dense(hp.Int("units", 2, 4))]
        if hp.Boolean("deep", default=True):
            layers.append(keras.layers.Dense(hp.Int("second", 1, 3)))
        model = keras.Sequential([*layers, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def should_stop(trial, epoch, logs):
        told.append((trial.trial_id, epoch, set(logs)))
        return epoch == 1

    search = fitroom.isolate_tuner(keras_tuner.RandomSearch, should_stop=should_stop)
    tuner = search(build, objective="val_loss", max_trials=1, directory=tmp_path, project_name="search", seed=0)
    assert set(tuner.oracle.get_space().values) == {"units", "deep", "second"}
    tuner.search(X, Y, validation_data=(X, Y), epochs=4, verbose=0)
    [trial] = tuner.oracle.trials.values()
    assert trial.status == "COMPLETED", trial.message
    assert told == [(trial.trial_id, epoch, {"loss", "val_loss"}) for epoch in (0, 1)]
    full = fitroom.isolate_tuner(keras_tuner.RandomSearch, device_bytes="2TiB", budget="1TiB")
    more = full(build, objective="val_loss", max_trials=2, directory=tmp_path, project_name="search", seed=0)
    more.search(X, Y, validation_data=(X, Y), epochs=4, verbose=0)
    [_, refused] = more.oracle.trials.values()
    assert refused.status == "FAILED"
    assert "does not fit: It was not started: it is predicted to need 2,048.00 GiB" in refused.message
    [best] = tuner.get_best_models()
    best.compile("sgd", "mse")
    assert best.evaluate(X, Y, verbose=0) == pytest.approx(trial.score, rel=1e-4)


@pytest.mark.slow
@pytest.mark.backends("torch")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:keras_tuner")
def test_a_search_of_keras_tuner_does_not_start_what_cannot_fit_and_survives_what_raises(tmp_path):
    keras_tuner = pytest.importorskip("keras_tuner")

    def build(hp):
        size = hp.Choice("size", ["fits", "too large", "raises"])
        if size == "raises":
            raise ValueError("this size is not built")
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    def predict(hp):
        return "2TiB" if hp.get("size") == "too large" else "1MiB"

    search = fitroom.isolate_tuner(keras_tuner.GridSearch, device_bytes=predict, budget="1TiB")
    tuner = search(build, objective="loss", directory=tmp_path, project_name="search")
    tuner.search(X, Y, epochs=1, verbose=0)
    found = {trial.hyperparameters.get("size"): trial for trial in tuner.oracle.trials.values()}
    assert {size: trial.status for size, trial in found.items()} == {
        "fits": "COMPLETED",
        "too large": "FAILED",
        "raises": "FAILED",
    }
    assert "does not fit: It was not started: it is predicted to need 2,048.00 GiB" in found["too large"].message
    assert "this size is not built" in found["raises"].message


def test_what_is_no_objective_or_tuner_class_is_refused():
    pytest.importorskip("optuna")
    with pytest.raises(fitroom.InputError, match="must be a function of a trial"):
        fitroom.isolate_objective(3)
    pytest.importorskip("keras_tuner")
    with pytest.raises(fitroom.InputError, match="must be a tuner class"):
        fitroom.isolate_tuner(dict)
