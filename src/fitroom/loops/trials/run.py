"""`fitroom.trials`: a function carried out once for each of several settings, each time in a fresh process."""

import hashlib
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fitroom.budget import Budget
from fitroom.errors import FitroomError, InputError
from fitroom.loops.trials.folder import TrialsFolder, parse_row
from fitroom.loops.trials.plain import make_key, parse_settings
from fitroom.loops.trials.predictions import DeviceBytes, explain_no_fit, predict_device_bytes
from fitroom.loops.trials.process import Ended, TrialProcess, Work, pickle_function, refuse_while_loading
from fitroom.loops.trials.progress import TrialsProgress
from fitroom.loops.trials.room import Room, Seat
from fitroom.loops.trials.table import OUT_OF_MEMORY, Trial, Trials

Again = Literal["failed", "all"]
_MOST_ATTEMPTS = 2
"""How often a trial that runs out of memory is tried, the first time included; from the second on alone."""
_SECONDS_BETWEEN_LOOKS = 1.0
"""How often it is looked whether memory of the host became free, while no trial ends."""


def trials(
    function: Callable[..., Any],
    settings: Iterable[Mapping[str, Any]],
    folder: str | Path,
    *,
    device_bytes: DeviceBytes = None,
    budget: Budget | int | str | None = None,
    host_bytes: int | str | None = None,
    at_once: int | None = None,
    time_limit: float | None = None,
    again: Again | None = None,
    environment: Mapping[str, str] | None = None,
    show: bool = True,
) -> Trials:
    """Call a function once for each of several settings, each time in a process of its own, with fresh memory.

    A trial that raises, is killed, takes too long or runs out of memory is a row of the table, and the others go on.
    Rows are written to `folder` as they come: after a kill the same call resumes with the trials that are missing. One
    that runs out of memory is tried once more, alone. What a trial prints is in a log file of its own.

    As many trials run at once as their predicted `device_bytes` and the host's memory allow; without a prediction it
    is one at a time.

    Args:
        function: called with the settings as keyword arguments. It may be of a notebook, or a lambda. What it returns
            must be numbers, texts, and lists and dicts of these; a number that is not finite becomes None.
        settings: a dict for each trial, of numbers, texts, and lists and dicts of these. They identify the trial.
        folder: where rows and logs go: a new folder, or that of the same loop before.
        device_bytes: what a trial needs on the card, context and libraries included: a size, an `Estimate`, or a
            function that returns either for the settings; it is called in a process of its own before the trials.
            A trial that needs more than the budget is not started.
        budget: bytes of the card for all trials together. Default: what is free now; without a card, the host's memory.
        host_bytes: bytes of the host that a process needs. Default: 2 GiB.
        at_once: the most trials at once; with it, trials without a prediction run side by side, too. Default: as many
            as fit; without a card at most one for each core.
        time_limit: seconds that a trial may take.
        again: which trials that are in the folder to carry out again: "failed" or "all". Default: none; those that
            failed too where the source of `function` has changed.
        environment: environment variables of the processes, beside those of this one.
        show: whether to show progress on stderr.

    Example:
        >>> def train(units, rate):
        ...     import keras
        ...     model = keras.Sequential([keras.layers.Dense(units), keras.layers.Dense(1)])
        ...     model.compile(keras.optimizers.Adam(rate), "mse")
        ...     return model.fit(x, y, epochs=5, verbose=0).history
        >>> grid = [{"units": units, "rate": rate} for units in (16, 64) for rate in (0.01, 0.001)]
        >>> table = fitroom.trials(train, grid, "runs/units", time_limit=600)  # doctest: +SKIP
        >>> print(table)  # doctest: +SKIP
    """
    refuse_while_loading()
    plain = parse_settings(settings)
    if time_limit is not None and not time_limit > 0:
        raise InputError(f"`time_limit` must be a number of seconds above 0. Received: {time_limit!r}.")
    if again not in (None, "failed", "all"):
        raise InputError(f'`again` must be "failed", "all" or None. Received: {again!r}.')
    work = Work(
        function=pickle_function(function),
        environment={**os.environ, **(environment or {})},
        time_limit=time_limit,
    )
    room = Room(budget=budget.bytes if isinstance(budget, Budget) else budget, host_bytes=host_bytes, at_once=at_once)
    place = TrialsFolder(folder)
    try:
        loop = _Loop(place, work, room, plain, digest=digest_function(function))
        with TrialsProgress(plain, show=show) as progress:
            return loop.run(progress, device_bytes, again)
    finally:
        place.close()


@dataclass(eq=False, kw_only=True)
class _Running:
    """A trial whose process runs."""

    number: int
    attempt: int
    seat: Seat
    process: TrialProcess


@dataclass
class _Loop:
    """The loop over all trials. `wanted` has the settings; a trial's number is its place there, from 1."""

    place: TrialsFolder
    work: Work
    room: Room
    wanted: list[dict[str, Any]]
    digest: str
    _rows: dict[int, Trial] = field(default_factory=dict)
    _running: list[_Running] = field(default_factory=list)
    _changed: threading.Event = field(default_factory=threading.Event)

    def run(self, progress: TrialsProgress, device_bytes: DeviceBytes, again: Again | None) -> Trials:
        """Carry out what is missing; the whole table."""
        self._rows = self._take_earlier(progress, again)
        num_earlier = len(self._rows)
        waiting = [number for number in range(1, len(self.wanted) + 1) if number not in self._rows]
        log = self.place.path / "logs" / "predictions.log"
        predicted = predict_device_bytes(
            device_bytes, {number: self.wanted[number - 1] for number in waiting}, self.work, log=log, say=progress.say
        )
        for number in list(waiting):
            if not self.room.fits(predicted[number]):
                waiting.remove(number)
                self._record(progress, self._refuse(number, predicted[number]))
        try:
            self._run_all(progress, waiting, predicted, num_earlier)
        except BaseException as error:
            for one in self._running:
                one.process.kill()
            if isinstance(error, KeyboardInterrupt):
                progress.say(f"stopped: {len(self._rows)} of {len(self.wanted)} trials are done; the same call resumes")
            raise
        return Trials(tuple(self._rows[number] for number in sorted(self._rows)), self.place.path)

    def _run_all(
        self, progress: TrialsProgress, waiting: list[int], predicted: Mapping[int, int | None], num_earlier: int
    ) -> None:
        attempts = dict.fromkeys(waiting, 1)
        next_look = 0.0
        while waiting or self._running:
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
                for number in list(waiting):
                    seat = self.room.try_take(predicted[number], is_alone=attempts[number] > 1)
                    if seat is not None:
                        waiting.remove(number)
                        self._start(number, attempts[number], seat)
            progress.running([self.wanted[one.number - 1] for one in self._running], num_earlier)
            self._changed.wait(0.1)
            self._changed.clear()
            for one, ended in self._collect():
                next_look = 0.0
                if ended.state in OUT_OF_MEMORY and one.attempt < _MOST_ATTEMPTS:
                    progress.say(f"trial {one.number} ran {ended.state}; it is tried again, alone")
                    attempts[one.number] += 1
                    waiting.append(one.number)  # behind the others, which then need not wait for it
                else:
                    self._record(progress, self._make_row(one, ended))

    def _take_earlier(self, progress: TrialsProgress, again: Again | None) -> dict[int, Trial]:
        """The rows of the folder that need not be made again, by their number now."""
        found = self.place.read()
        rows: dict[int, Trial] = {}
        num_changed = num_failed = 0
        for number, settings in enumerate(self.wanted, 1):
            row = found.pop(make_key(settings), None)
            if row is None or again == "all" or row["state"] == "does not fit":  # there may be more memory now
                continue
            is_failed, is_changed = row["state"] != "finished", row.get("function") != self.digest
            if is_failed and (is_changed or again == "failed"):
                continue
            rows[number] = parse_row(row, number=number, settings=settings, folder=self.place.path)
            num_changed += is_changed
            num_failed += is_failed
        if rows:
            progress.say(f"{len(rows)} of {len(self.wanted)} trials are in {self.place.path} and are not repeated")
        if num_changed:
            progress.say(
                f"the function has changed since {num_changed} of them finished; again='all' carries them out again"
            )
        if num_failed:
            progress.say(f"{num_failed} of them did not finish; again='failed' carries those out again")
        if found:
            progress.say(f"the folder has {len(found)} more of other settings; they stay in its file")
        return rows

    def _start(self, number: int, attempt: int, seat: Seat) -> None:
        settings = self.wanted[number - 1]
        log = self.place.log_path(number, settings)
        # Alone after out-of-memory, it has all of the card.
        limit_bytes = self.room.find_cap(seat.device_bytes) if attempt == 1 else None
        try:
            with open(log, "wb" if attempt == 1 else "ab") as file:
                file.write(f"\n--- attempt {attempt}, alone ---\n".encode() if attempt > 1 else b"")
            process = TrialProcess(self.work, named=settings, log=log, limit_bytes=limit_bytes, changed=self._changed)
        except OSError as error:
            raise FitroomError(
                f"Trial {number} could not be started: {error.strerror or error}.",
                hint="look whether the disk is full or the system out of processes; the same call resumes",
            ) from error
        seat.pid = process.pid
        self._running.append(_Running(number=number, attempt=attempt, seat=seat, process=process))

    def _collect(self) -> list[tuple[_Running, Ended]]:
        """The trials whose processes have ended since."""
        found = [(one, ended) for one in self._running if (ended := one.process.poll()) is not None]
        for one, _ in found:
            self._running.remove(one)
            self.room.give_back(one.seat)
        return found

    def _make_row(self, one: _Running, ended: Ended) -> Trial:
        settings = self.wanted[one.number - 1]
        return Trial(
            number=one.number,
            settings=settings,
            attempts=one.attempt,
            device_bytes=one.seat.device_bytes,
            log=self.place.log_path(one.number, settings),
            **vars(replace(ended, seconds=round(ended.seconds, 3))),
        )

    def _refuse(self, number: int, device_bytes: int | None) -> Trial:
        return Trial(
            number=number,
            settings=self.wanted[number - 1],
            state="does not fit",
            attempts=0,
            error=explain_no_fit(device_bytes, self.room),
            device_bytes=device_bytes,
        )

    def _record(self, progress: TrialsProgress, row: Trial) -> None:
        self._rows[row.number] = row
        self.place.append(row, function=self.digest)
        progress.ended(row)


def digest_function(function: Any) -> str:
    """A hash of a function's source; of its code where there is none, as for what was typed into a plain shell."""
    inner = inspect.unwrap(getattr(function, "func", function))  # of a functools.partial
    try:
        text = inspect.getsource(inner)
    except (OSError, TypeError):
        code = getattr(inner, "__code__", None)
        text = repr((code.co_code, code.co_names, code.co_varnames)) if code else type(inner).__qualname__
    return hashlib.sha256(text.encode()).hexdigest()[:16]
