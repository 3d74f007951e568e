"""One trial at a time for a tuner, which decides what comes next: predicted, carried out, tried again alone."""

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fitroom.budget import Budget
from fitroom.errors import InputError
from fitroom.loops.trials.predictions import DeviceBytes, explain_no_fit, parse_size
from fitroom.loops.trials.process import Answer, Ended, TrialProcess, Work, pickle_function
from fitroom.loops.trials.room import Room
from fitroom.loops.trials.table import OUT_OF_MEMORY

_log = logging.getLogger("fitroom")


class TunerTrials:
    """Carries out a tuner's trials in processes of their own. Several threads may use it: they share the memory."""

    def __init__(
        self,
        *,
        device_bytes: DeviceBytes = None,
        budget: Budget | int | str | None = None,
        host_bytes: int | str | None = None,
        at_once: int | None = None,
        time_limit: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if time_limit is not None and not time_limit > 0:
            raise InputError(f"`time_limit` must be a number of seconds above 0. Received: {time_limit!r}.")
        self._time_limit = time_limit
        self._environment = environment or {}
        self._predict = pickle_function(device_bytes, "device_bytes") if callable(device_bytes) else None
        self._device_bytes = None if callable(device_bytes) else parse_size(device_bytes)
        self.room = Room(
            budget=budget.bytes if isinstance(budget, Budget) else budget, host_bytes=host_bytes, at_once=at_once
        )

    def carry_out(
        self, function: bytes, arguments: tuple[Any, ...], *, log: Path, answer: Answer, wrap: Any = None
    ) -> Ended:
        """Predict what a trial needs, wait for room, run it, and after out of memory once more, alone.

        Args:
            function: pickled.
            arguments: what it is called with.
            log: where what it prints goes.
            answer: answers what it asks.
            wrap: makes of the arguments, in the process, what the function that predicts is called with.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        device_bytes = self._device_bytes
        if self._predict is not None:
            predicted = self.run_now(
                pickle_function(_Prediction(self._predict, wrap)), arguments, log=log, answer=answer
            )
            if predicted.state == "pruned":
                return predicted
            if predicted.state != "finished":
                _log.warning("fitroom: no prediction, so the trial runs alone: %s", predicted.error)
            device_bytes = predicted.result
        if not self.room.fits(device_bytes):
            return Ended(state="does not fit", seconds=0.0, error=explain_no_fit(device_bytes, self.room))
        ended = self._run(function, arguments, device_bytes, log=log, answer=answer, is_alone=False)
        if ended.state in OUT_OF_MEMORY:
            ended = self._run(function, arguments, device_bytes, log=log, answer=answer, is_alone=True)
        return ended

    def run_now(self, function: bytes, arguments: tuple[Any, ...], *, log: Path, answer: Answer | None = None) -> Ended:
        """Carry out what trains nothing in a process of its own: on a card alone, since frameworks take most of one."""
        log.parent.mkdir(parents=True, exist_ok=True)
        return self._run(function, arguments, 0, log=log, answer=answer, is_alone=self.room.has_card)

    def _run(
        self,
        function: bytes,
        arguments: tuple[Any, ...],
        device_bytes: int | None,
        *,
        log: Path,
        answer: Answer | None,
        is_alone: bool,
    ) -> Ended:
        work = Work(function=function, environment={**os.environ, **self._environment}, time_limit=self._time_limit)
        limit_bytes = self.room.find_cap(device_bytes) if not is_alone else None
        with self.room.take(device_bytes, is_alone=is_alone) as seat, contextlib.ExitStack() as stack:
            process = TrialProcess(work, arguments=arguments, log=log, limit_bytes=limit_bytes, answer=answer)
            stack.callback(process.kill)
            seat.pid = process.pid
            return process.wait()


class _Prediction:
    """Calls the user's function that predicts, in another process."""

    def __init__(self, predict: bytes | None, wrap: Any) -> None:
        self.predict, self.wrap = predict, wrap

    def __call__(self, *arguments: Any) -> int | None:
        import cloudpickle

        return parse_size(cloudpickle.loads(self.predict)(self.wrap(*arguments)))
