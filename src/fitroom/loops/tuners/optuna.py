"""`fitroom.isolate_objective`: the objective of an Optuna study, carried out in a fresh process for each trial."""

import logging
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fitroom.budget import Budget
from fitroom.errors import InputError, MissingExtraError
from fitroom.loops.trials.plain import convert_to_plain
from fitroom.loops.trials.predictions import Size
from fitroom.loops.trials.process import pickle_function
from fitroom.loops.tuners.tuner_trials import TunerTrials

_SUGGESTIONS = ("float", "int", "categorical", "uniform", "loguniform", "discrete_uniform")
_METHODS = frozenset(
    [*(f"suggest_{kind}" for kind in _SUGGESTIONS), "report", "should_prune", "set_user_attr", "set_constraint"]
)
_VALUES = frozenset(("number", "params", "user_attrs"))
_log = logging.getLogger("fitroom")


def isolate_objective(
    objective: Callable[[Any], Any],
    *,
    device_bytes: Size | Callable[[Any], Size] = None,
    budget: Budget | int | str | None = None,
    host_bytes: int | str | None = None,
    time_limit: float | None = None,
    logs: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Callable[[Any], Any]:
    """Make an Optuna objective that runs each trial in a process of its own, with fresh memory.

    The objective is yours, unchanged: `suggest_*`, `report` and `should_prune` of its trial reach the study, and the
    answers travel back. A trial that raises, is killed, takes too long or runs out of memory, also when tried again
    alone, is marked as failed and the study goes on; why is in its `user_attrs`. With `n_jobs`, as many run at once as
    their predicted `device_bytes` and the host's memory allow; without a prediction it is one at a time.

    Args:
        objective: called with the trial, in the process.
        device_bytes: what a trial needs on the card, context and libraries included: a size, an `Estimate`, or a
            function of the trial that returns either, called in a process of its own before the objective. Suggest
            there what the size depends on: the objective gets the same values. A trial that needs more than the budget
            is pruned before it starts, and says so.
        budget: bytes of the card for all trials together. Default: what is free now; without a card, the host's memory.
        host_bytes: bytes of the host that a process needs. Default: 2 GiB.
        time_limit: seconds that a trial may take.
        logs: the folder for what trials print. Default: a temporary one, named in `user_attrs`.
        environment: environment variables of the processes, beside those of this one.

    Example:
        >>> study = optuna.create_study(direction="maximize")  # doctest: +SKIP
        >>> study.optimize(fitroom.isolate_objective(objective, time_limit=600), n_trials=20)  # doctest: +SKIP
    """
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("Running an Optuna study", package="optuna", extra="tuners") from error

    if not callable(objective):
        raise InputError(
            f"`objective` must be a function of a trial. Received: {objective!r}.",
            hint="study.optimize(fitroom.isolate_objective(objective), n_trials=20)",
        )
    pickled = pickle_function(_InChild(objective), "objective", inner=objective)
    attempts = TunerTrials(
        device_bytes=device_bytes,
        budget=budget,
        host_bytes=host_bytes,
        time_limit=time_limit,
        environment=environment,
    )
    folder = Path(logs).expanduser() if logs is not None else Path(tempfile.mkdtemp(prefix="fitroom-trials-"))

    def run_in_process(trial: Any) -> Any:
        return _run_trial(trial, pickled, attempts, folder / f"{trial.number:04}.log")

    return run_in_process


def _run_trial(trial: Any, objective: bytes, attempts: TunerTrials, log: Path) -> Any:
    """Carry out one trial, and tell Optuna what came of it."""
    import optuna

    trial.set_user_attr("log", str(log))
    ended = attempts.carry_out(objective, (), log=log, answer=lambda *call: _answer(trial, *call), wrap=RemoteTrial)
    if ended.state == "finished":
        return tuple(ended.result) if isinstance(ended.result, list) else ended.result
    trial.set_user_attr("state", ended.state)
    trial.set_user_attr("error", ended.error)
    if ended.state == "pruned":
        raise optuna.TrialPruned((ended.error or "").removeprefix("TrialPruned").lstrip(": "))
    _log.warning("fitroom: trial %d: %s. %s", trial.number, ended.state, ended.error)
    if ended.state == "does not fit":
        raise optuna.TrialPruned(ended.error)
    return math.nan  # which Optuna marks as failed, and goes on


def _answer(trial: Any, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
    """Do with the study's trial what was asked of the one in the process."""
    if name in _METHODS:
        return convert_to_plain(getattr(trial, name)(*arguments, **named))
    if name in _VALUES:
        return convert_to_plain(getattr(trial, name))
    raise AttributeError(f"a trial in a process of its own has no {name!r}")


class _InChild:
    """The objective with a trial that asks the study for everything."""

    def __init__(self, objective: Callable[[Any], Any]) -> None:
        self.objective = objective

    def __call__(self) -> Any:
        return self.objective(RemoteTrial())


class RemoteTrial:
    """A trial of an Optuna study in another process: what is called on it is called on the study's own."""

    def __getattr__(self, name: str) -> Any:
        from fitroom.loops.trials.child import get_channel

        if name in _VALUES:
            return get_channel().call(name)
        if name not in _METHODS:
            raise AttributeError(
                f"a trial in a process of its own has no {name!r}; it has {', '.join(sorted(_METHODS | _VALUES))}"
            )

        def call(*arguments: Any, **named: Any) -> Any:
            return get_channel().call(name, *convert_to_plain(list(arguments)), **convert_to_plain(named))

        return call
