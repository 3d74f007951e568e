"""Sweeps: several trainings of `fitroom train`, described in a TOML file, each in a process of its own.

folder = "flowers"          # what all have in common: the options of `fitroom train`
epochs = 5

[vary]                      # all combinations of these
model = ["xception", "resnet50"]
learning-rate = [0.001, 0.0001]

[[trials]]                  # and, or instead, single ones
model = "mobilenetv2"
freeze = true
"""

import itertools
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fitroom.classify.options import TrainOptions, check_stored_options
from fitroom.errors import InputError, UnknownNameError, message_of
from fitroom.loops.trials.plain import make_key

_VARY, _TRIALS = "vary", "trials"
_NOT_IN_A_SWEEP = ("run_dir", "fold")
_OPTIONS = tuple(field.name for field in fields(TrainOptions) if field.name not in _NOT_IN_A_SWEEP)
_DEFAULTS = {field.name: field.default for field in fields(TrainOptions)}
_LONGEST_NAME = 60


@dataclass(frozen=True, kw_only=True)
class SweptTraining:
    """One training of a sweep, all folds of it."""

    name: str
    """What it varies, as the name of its folder: batch-size-32,model-xception."""

    options: dict[str, Any]
    """As given; the rest is as in `fitroom train`."""

    def list_runs(self, folder: Path, folds: int | None) -> Iterator[dict[str, Any]]:
        """The options of each of its runs, for `train_once`."""
        if folds is None:
            yield {"run_dir": str(folder / self.name), **self.options}
            return
        for number in range(1, folds + 1):
            place = folder / self.name / f"fold-{number}"
            yield {"run_dir": str(place), **self.options, "fold": f"{number}/{folds}"}


def read_sweep(path: Path) -> list[SweptTraining]:
    """Read a sweep and check all of it. Raises InputError."""
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{path} cannot be read as a sweep: {said}.", hint="`fitroom trials --help` has an example"
        ) from None
    varied = content.pop(_VARY, {})
    singles = content.pop(_TRIALS, [])
    if not isinstance(varied, dict) or not isinstance(singles, list) or not all(isinstance(s, dict) for s in singles):
        raise InputError(f"In {path}, [{_VARY}] must be one table and [[{_TRIALS}]] tables.")
    common = _read_options(path, content)
    lists = _read_options(path, varied)
    if wrong := [name for name, values in lists.items() if not isinstance(values, list) or not values]:
        raise InputError(
            f"In [{_VARY}] of {path} each option must have a list. Received: {wrong[0]} = {lists[wrong[0]]!r:.80}.",
            hint=f"write {wrong[0].replace('_', '-')} = [..., ...]",
        )
    combinations = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    if singles and not lists:
        combinations = []
    own = [*combinations, *(_read_options(path, one) for one in singles)]
    if twice := [one for at, one in enumerate(own) if one in own[:at]]:
        raise InputError(f"{path} has the same training twice: {make_name(twice[0])}.", hint="remove one of them")
    names = [make_name(one) for one in own]
    found = [
        SweptTraining(name=name if names.count(name) == 1 else f"{name}-{make_key(one)[:6]}", options=common | one)
        for name, one in zip(names, own, strict=True)
    ]
    for training in found:
        _check(path, training)
    return found


def make_name(varied: Mapping[str, Any]) -> str:
    """The name of a training by what it varies.

    >>> make_name({"model": "nets/small.py:make", "learning_rate": 0.001})
    'model-small.py-make,learning-rate-0.001'
    """
    parts = []
    for name, value in varied.items():
        text = (
            Path(value).name
            if isinstance(value, str)
            else "+".join(map(str, value))
            if isinstance(value, list)
            else value
        )
        parts.append(f"{name.replace('_', '-')}-{re.sub(r'[^A-Za-z0-9.+]+', '-', str(text)).strip('-')}")
    name = ",".join(parts) or "train"
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}-{make_key(varied)[:6]}"


def train_once(**options: Any) -> dict[str, Any]:
    """Carry out one run of a sweep in this process, or resume it; its results, for the table."""
    from fitroom.backends.choose import choose_backend
    from fitroom.classify import records
    from fitroom.classify.job import TrainJob
    from fitroom.report.progress.lines import LineView
    from fitroom.runs.run import open_run

    asked = TrainOptions(**_complete(options))
    folder = Path(asked.run_dir)
    if not records.is_finished(folder):
        previous = records.read_job(folder)
        choose_backend(previous.backend if previous else asked.backend)
        with LineView(sys.stderr) as view:
            TrainJob(options=asked, command=make_command(options)).run(view)
    run = open_run(folder)
    metrics = run.results.metrics if run.results else {}
    return {
        "accuracy": metrics.get("accuracy"),
        "loss": metrics.get("loss"),
        "split": run.results.split if run.results else None,
        "epochs": run.num_epochs,
    }


def predict_bytes(options: dict[str, Any]) -> int | None:
    """What a run of a sweep takes on the card: its budget, which is enforced, and the context. Without one: None."""
    from fitroom.budget import Budget
    from fitroom.cards.overhead import context_bytes

    if options.get("budget") is None:
        return None
    backend = options.get("backend") or os.environ.get("KERAS_BACKEND")
    return Budget.of(options["budget"], backend=backend).bytes + context_bytes(None, backend)


def make_command(options: Mapping[str, Any]) -> list[str]:
    """The `fitroom train` that does the same as one run of a sweep.

    >>> make_command({"folder": "flowers", "augment": False, "freeze": True, "batch_size": 8, "run_dir": "runs/a"})
    ['fitroom', 'train', 'flowers', '--no-augment', '--freeze', '--batch-size', '8', '--run-dir', 'runs/a']
    """
    words = ["fitroom", "train", str(options["folder"])]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "folder" or value is None or (value is False and name not in ("augment", "jit")):
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        elif isinstance(value, list | tuple):
            words += [flag, ",".join(map(str, value))] if value else []
        else:
            words += [flag, str(value)]
    return words


def _read_options(path: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options by their names in Python; hyphens are as good."""
    known = [name.replace("_", "-") for name in _OPTIONS]
    for name in given:
        if name.replace("-", "_") in _NOT_IN_A_SWEEP:
            raise InputError(
                f"{path} must not have {name!r}: each training of a sweep gets its own.",
                hint="--folder says where runs go, and --folds how many there are",
            )
        if name.replace("-", "_") not in _OPTIONS:
            raise UnknownNameError(f"option in {path}", name, [*known, _VARY, _TRIALS])
    return {name.replace("-", "_"): value for name, value in given.items()}


def _complete(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with numbers as `fitroom train` has them: a share of 0 in TOML is a whole number."""
    return {
        name: float(value) if isinstance(_DEFAULTS[name], float) and type(value) is int else value
        for name, value in options.items()
    }


def _check(path: Path, training: SweptTraining) -> None:
    from fitroom.keras_model.loading.source import check_model

    if "folder" not in training.options:
        raise InputError(f"{path} does not say which images to train on.", hint='write folder = "flowers" on top')
    try:
        check_stored_options(_complete(training.options) | {"run_dir": "run"})
    except (ValueError, TypeError) as error:
        raise InputError(
            f"In {path}, {training.name}: {message_of(error)}", hint=getattr(error, "hint", None)
        ) from None
    check_model(training.options.get("model", _DEFAULTS["model"]))
    if not Path(training.options["folder"]).exists():
        raise InputError(
            f"There is no folder {training.options['folder']!r}, which {path} names.",
            hint="relative paths start at the current folder",
        )
