"""`fitroom.isolate_tuner`: a tuner of keras-tuner that builds and trains in a fresh process for each trial."""

import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fitroom.budget import Budget
from fitroom.errors import InputError, MissingExtraError
from fitroom.loops.trials.predictions import Size
from fitroom.loops.trials.process import Ended, pickle_function
from fitroom.loops.tuners.tuner_trials import TunerTrials

_log = logging.getLogger("fitroom")


def isolate_tuner(
    tuner_class: type,
    *,
    device_bytes: Size | Callable[[Any], Size] = None,
    budget: Budget | int | str | None = None,
    host_bytes: int | str | None = None,
    time_limit: float | None = None,
    should_stop: Callable[[Any, int, dict[str, float]], bool] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Make of a tuner class of keras-tuner one whose trials run in processes of their own, with fresh memory.

    The class is used as before: `search`, `get_best_models` and all else work. Models are built and trained in the
    processes only, also when the search space is looked for, so that this process takes nothing of the card. A trial
    that raises, is killed, takes too long or runs out of memory, also when tried again alone, is marked as failed, and
    the search goes on, up to the tuner's own `max_consecutive_failed_trials`. What a trial prints is in `log.txt` in
    its folder.

    Args:
        tuner_class: `keras_tuner.RandomSearch`, `Hyperband`, `BayesianOptimization`, or one of your own.
        device_bytes: what a trial needs on the card, context and libraries included: a size, an `Estimate`, or a
            function of the `HyperParameters` that returns either, called in a process of its own before the trial. A
            trial that needs more than the budget is not started, and says so.
        budget: bytes of the card for a trial. Default: what is free now; without a card, the host's memory.
        host_bytes: bytes of the host that a process needs. Default: 2 GiB.
        time_limit: seconds that a trial may take.
        should_stop: called here after each epoch of a trial, with the trial, the epoch from 0 and its metrics; where it
            returns True, the training ends early.
        environment: environment variables of the processes, beside those of this one.

    Example:
        >>> RandomSearch = fitroom.isolate_tuner(keras_tuner.RandomSearch, time_limit=600)  # doctest: +SKIP
        >>> tuner = RandomSearch(build_model, objective="val_accuracy", max_trials=20)  # doctest: +SKIP
        >>> tuner.search(x, y, epochs=5, validation_split=0.2)  # doctest: +SKIP
    """
    try:
        import keras_tuner
    except ImportError as error:
        raise MissingExtraError("Running a search of keras-tuner", package="keras-tuner", extra="tuners") from error

    if not (isinstance(tuner_class, type) and issubclass(tuner_class, keras_tuner.Tuner)):
        raise InputError(
            f"`tuner_class` must be a tuner class, such as keras_tuner.RandomSearch. Received: {tuner_class!r}.",
            hint="give the class, and make the tuner with what this function returns",
        )
    attempts = TunerTrials(
        device_bytes=device_bytes,
        budget=budget,
        host_bytes=host_bytes,
        time_limit=time_limit,
        environment=environment,
    )

    class IsolatedTuner(tuner_class):  # type: ignore[misc]
        """Runs its trials in processes of their own."""

        def _populate_initial_space(self) -> None:
            """Find the hyperparameters in a process: that builds models."""
            if self.hypermodel is None:
                return
            function = _pickle_task(self, tuner_class, _find_space)
            ended = attempts.run_now(function, (), log=Path(self.project_dir) / "space.txt")
            if ended.state != "finished":
                raise InputError(f"The hypermodel could not be built: {ended.error}", hint=ended.traceback)
            self.oracle.update_space(keras_tuner.HyperParameters.from_config(ended.result))

        def run_trial(self, trial: Any, *arguments: Any, **named: Any) -> Any:
            """Build and train in a process, and return the histories."""

            def answer(name: str, given: list[Any], _: dict[str, Any]) -> bool:
                epoch, logs = given
                return bool(should_stop and should_stop(trial, epoch, logs))

            task = _Training(trial.get_state(), arguments, named, reports=should_stop is not None)
            ended = attempts.carry_out(
                _pickle_task(self, tuner_class, task),
                (trial.hyperparameters.get_config(),),
                log=Path(self.get_trial_dir(trial.trial_id)) / "log.txt",
                answer=answer,
                wrap=_read_hyperparameters,
            )
            if ended.state != "finished":
                raise _make_error(trial, ended)
            trial.hyperparameters = keras_tuner.HyperParameters.from_config(ended.result["hyperparameters"])
            return [_restore_history(one) for one in ended.result["results"]]

    IsolatedTuner.__name__ = IsolatedTuner.__qualname__ = f"Isolated{tuner_class.__name__}"
    return IsolatedTuner


def _pickle_task(tuner: Any, tuner_class: type, task: Callable[..., Any]) -> bytes:
    """Pickle a task with all that a tuner of the user's class needs for it."""
    inner = getattr(tuner.hypermodel, "build", None)
    return pickle_function(_InChild(tuner_class, dict(vars(tuner)), task), "hypermodel", inner=inner)


class _InChild:
    """Makes a copy of a tuner, of the class as the user gave it, and has a task carried out with it."""

    def __init__(self, tuner_class: type, state: dict[str, Any], task: Callable[..., Any]) -> None:
        self.tuner_class, self.state, self.task = tuner_class, state, task

    def __call__(self, *arguments: Any) -> Any:
        tuner: Any = object.__new__(self.tuner_class)
        vars(tuner).update(self.state)
        return self.task(tuner, *arguments)


def _find_space(tuner: Any) -> Any:
    tuner._populate_initial_space()
    return tuner.oracle.get_space().get_config()


def _read_hyperparameters(config: dict[str, Any]) -> Any:
    import keras_tuner

    return keras_tuner.HyperParameters.from_config(config)


class _Training:
    """One trial: builds and trains as the tuner would, and returns what of it JSON can hold."""

    def __init__(
        self, state: dict[str, Any], arguments: tuple[Any, ...], named: dict[str, Any], *, reports: bool
    ) -> None:
        self.state, self.arguments, self.named, self.reports = state, arguments, named, reports

    def __call__(self, tuner: Any, hyperparameters: dict[str, Any]) -> dict[str, Any]:
        from keras_tuner.engine.trial import Trial

        trial = Trial.from_state(self.state | {"hyperparameters": hyperparameters})
        if self.reports:
            tuner.on_epoch_end = _report_epochs(tuner.on_epoch_end)
        found = tuner.run_trial(trial, *self.arguments, **self.named)
        results = found if isinstance(found, list) else [found]
        return {
            "hyperparameters": trial.hyperparameters.get_config(),
            "results": [_describe_history(one) for one in results],
        }


def _describe_history(result: Any) -> Any:
    return {"history": result.history, "epoch": result.epoch} if hasattr(result, "history") else result


def _report_epochs(on_epoch_end: Callable[..., None]) -> Callable[..., None]:
    """The tuner's own method for the end of an epoch, which also asks the loop whether the training is to end."""
    from fitroom.loops.trials.child import get_channel
    from fitroom.loops.trials.plain import convert_to_plain

    def report(trial: Any, model: Any, epoch: int, logs: Any = None) -> None:
        on_epoch_end(trial, model, epoch, logs=logs)
        if get_channel().call("epoch ended", epoch, convert_to_plain(dict(logs or {}))):
            model.stop_training = True

    return report


def _restore_history(result: Any) -> Any:
    """A result as keras-tuner expects it: a `History` where there was one; NaN, which JSON lacks, in place of None."""
    if not (isinstance(result, dict) and set(result) == {"history", "epoch"}):
        return result
    import keras

    history = keras.callbacks.History()
    history.epoch = result["epoch"]
    history.history = {
        name: [math.nan if value is None else value for value in values] for name, values in result["history"].items()
    }
    return history


def _make_error(trial: Any, ended: Ended) -> Exception:
    """The error by which keras-tuner learns of a trial that did not finish.

    A bug of the search itself ends the search; what raised may be tried again, as `max_retries_per_trial` says; the
    rest would only fail again.
    """
    from keras_tuner import errors

    said = f"{ended.state}: {ended.error}"
    if (ended.error or "").startswith("Fatal"):
        return errors.FatalError(said)  # type: ignore[no-any-return]
    _log.warning("fitroom: trial %s: %s", trial.trial_id, said)
    return RuntimeError(said) if ended.state == "failed" else errors.FailedTrialError(said)
