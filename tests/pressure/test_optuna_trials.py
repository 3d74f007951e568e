"""An Optuna study whose trials run in processes of their own: what they suggest, report and end with reaches it."""

import os
import signal
import time

import pytest

import fitroom

optuna = pytest.importorskip("optuna")
State = optuna.trial.TrialState


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def objective(trial):
    x = trial.suggest_float("x", -5, 5)
    kind = trial.suggest_categorical("kind", ["plain", None, 3])
    trial.set_user_attr("pid", os.getpid())
    if trial.number == 1:
        raise ValueError("bad x")
    if trial.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if trial.number == 3:
        time.sleep(600)
    for step in range(3):
        trial.report(10.0 * trial.number + step, step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    assert trial.params == {"x": x, "kind": kind, "size": trial.params["size"]}
    return x * x


def predict(trial):
    return trial.suggest_int("size", 1, 1) if trial.number != 4 else trial.suggest_int("size", 2**41, 2**41)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=0), pruner=optuna.pruners.MedianPruner(n_startup_trials=1)
    )
    isolated = fitroom.isolate_objective(
        objective, device_bytes=predict, budget="1TB", time_limit=15, logs=tmp_path_factory.mktemp("logs")
    )
    study.optimize(isolated, n_trials=6, n_jobs=2)
    return study


def test_values_suggested_and_reported_in_the_process_are_those_of_the_study(study):
    first = study.trials[0]
    assert first.state == State.COMPLETE
    assert first.value == first.params["x"] ** 2
    assert first.intermediate_values == {0: 0.0, 1: 1.0, 2: 2.0}
    assert first.user_attrs["pid"] != os.getpid()
    assert set(first.params) == {"x", "kind", "size"}


@pytest.mark.parametrize(("number", "state"), [(1, "failed"), (2, "killed"), (3, "timed out")])
def test_a_trial_that_dies_fails_and_the_study_goes_on(study, number, state):
    assert study.trials[number].state == State.FAIL
    assert study.trials[number].user_attrs["state"] == state


def test_a_configuration_that_cannot_fit_is_pruned_before_it_starts(study):
    pruned = study.trials[4]
    assert pruned.state == State.PRUNED
    assert "predicted to need 2,048.00 GiB" in pruned.user_attrs["error"]
    assert "x" not in pruned.params


def test_a_trial_is_pruned_by_what_it_reported(study):
    pruned = study.trials[5]
    assert pruned.state == State.PRUNED
    assert pruned.intermediate_values == {0: 50.0}
    assert pruned.user_attrs["state"] == "pruned"
