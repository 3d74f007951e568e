"""Runs side by side as values: those of one training, such as the folds of a cross-validation, are one group."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fitroom.loops.trials.plain import find_differing
from fitroom.runs.run import Run

_NOT_COMPARED = ("run_dir", "fold", "workers", "cache", "cache_limit")
"""Options that say nothing of what is trained, or tell the runs of a group apart."""

_FACTS = ("batch_size", "epochs", "seed", "backend")
"""What is compared of runs of `fitroom.fit`."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over the runs of a group."""

    mean: float
    low: float
    high: float
    deviation: float | None
    """The standard deviation over the runs; None for one run."""

    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """The spread of some values; None where there are none."""
        if not values:
            return None
        return cls(
            mean=statistics.fmean(values),
            low=min(values),
            high=max(values),
            deviation=statistics.stdev(values) if len(values) > 1 else None,
            count=len(values),
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Group:
    """Runs of one training."""

    name: str
    runs: tuple[Run, ...]

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The options of the training; of a run of `fitroom.fit`, the facts that describe it."""
        return read_settings(self.runs[0])

    @property
    def state(self) -> str:
        """The state of the run, or how many of several are finished."""
        states = [run.state for run in self.runs]
        if len(set(states)) == 1:
            return states[0]
        return f"{states.count('finished')} of {len(states)} finished"

    @property
    def accuracy(self) -> Spread | None:
        """On held-out images; of runs without results, the best of validation."""
        return self._spread(read_accuracy)

    @property
    def loss(self) -> Spread | None:
        """On held-out images; of runs without results the last of validation, else of training."""
        return self._spread(_read_loss)

    @property
    def peak_bytes(self) -> int | None:
        """The most memory of the device that any of the runs had in use."""
        return max((peak for run in self.runs if (peak := run.readings.peak_bytes) is not None), default=None)

    @property
    def limit_bytes(self) -> int | None:
        """The smallest limit that any of the runs had."""
        return min((limit for run in self.runs if (limit := run.limit_bytes) is not None), default=None)

    @property
    def seconds(self) -> Spread | None:
        """How long a run trained."""
        return self._spread(lambda run: run.seconds)

    @property
    def images_per_second(self) -> Spread | None:
        """The speed of training."""
        return self._spread(lambda run: run.readings.pictures_per_second)

    @property
    def num_epochs(self) -> int:
        """The most epochs of a run."""
        return max(run.num_epochs for run in self.runs)

    def average_history(self, metric: str) -> list[float | None]:
        """A metric by epoch, the mean over the runs that have it."""
        found: list[float | None] = []
        for epoch in range(self.num_epochs):
            values = [run.history[metric][epoch] for run in self.runs if len(run.history.get(metric, ())) > epoch]
            known = [value for value in values if value is not None]
            found.append(statistics.fmean(known) if known else None)
        return found

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        spreads = {name: getattr(self, name) for name in ("accuracy", "loss", "seconds", "images_per_second")}
        return {
            "name": self.name,
            "runs": [str(run.path) for run in self.runs],
            "state": self.state,
            "settings": self.settings,
            "epochs": self.num_epochs,
            **{name: spread and spread.to_dict() for name, spread in spreads.items()},
            "peak_bytes": self.peak_bytes,
            "limit_bytes": self.limit_bytes,
        }

    def _spread(self, read: Callable[[Run], float | None]) -> Spread | None:
        return Spread.of([value for run in self.runs if (value := read(run)) is not None])


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Runs as groups: folds of one training in one folder are together, all others are alone."""
    members: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        is_fold = run.train_job.options.get("fold") is not None
        key = ("folds", str(run.path.absolute().parent)) if is_fold else ("run", str(run.path.absolute()))
        members.setdefault(key, []).append(run)
    places = [found[0].path.absolute() if len(found) == 1 else Path(key[1]) for key, found in members.items()]
    names = shorten_names(places)
    return [Group(name, tuple(found)) for name, found in zip(names, members.values(), strict=True)]


def shorten_names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or as many parts as tell them apart.

    >>> shorten_names([Path("/runs/a"), Path("/runs/b")]), shorten_names([Path("/x/a"), Path("/y/a")])
    (['a', 'b'], ['x/a', 'y/a'])
    """
    longest = max((len(path.parts) for path in paths), default=1)
    for count in range(1, longest + 1):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def read_settings(run: Run) -> dict[str, Any]:
    """What identifies the training of a run: its options, or the facts of a run of `fitroom.fit`."""
    job = run.train_job
    if job:
        found = {name: value for name, value in job.options.items() if name not in _NOT_COMPARED}
        return found | ({"backend": job.backend} if job.backend else {})
    return {name: run.facts[name] for name in _FACTS if name in run.facts}


def list_differences(groups: Sequence[Group]) -> list[str]:
    """The names of the settings that are not the same in all groups."""
    return find_differing([group.settings for group in groups]) if len(groups) > 1 else []


def read_accuracy(run: Run) -> float | None:
    """The accuracy of a run on held-out images; without results, the best of validation."""
    if run.results is not None:
        return run.results.metrics.get("accuracy")
    names = [name for name in run.history if name.startswith("val_") and name.endswith(("accuracy", "acc"))]
    return max((value for value in run.history[names[0]] if value is not None), default=None) if names else None


def _read_loss(run: Run) -> float | None:
    if run.results is not None:
        return run.results.metrics.get("loss")
    values = run.history.get("val_loss") or run.history.get("loss") or []
    return values[-1] if values else None
