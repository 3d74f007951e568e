"""What trials will need on the card, predicted before they start."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fitroom.errors import InputError
from fitroom.loops.trials.process import TrialProcess, Work, pickle_function
from fitroom.loops.trials.room import Room
from fitroom.memory.estimate import Estimate
from fitroom.units import format_bytes, parse_bytes

Size = int | str | Estimate | None
DeviceBytes = Size | Callable[[dict[str, Any]], Size]


def predict_device_bytes(
    device_bytes: DeviceBytes,
    settings: Mapping[int, dict[str, Any]],
    work: Work,
    *,
    log: Path,
    say: Callable[[str], None],
) -> dict[int, int | None]:
    """The predicted bytes of each trial by its number; None where nothing is predicted, so that it runs alone.

    A function is called in one process of its own, for all settings: what an estimate leaves in memory, on the card
    too, is gone before the first trial starts.
    """
    if not callable(device_bytes):
        return dict.fromkeys(settings, parse_size(device_bytes))
    if not settings:
        return {}
    found: dict[int, int | None] = {}
    pickled = pickle_function(_PredictAll(device_bytes, dict(settings)), "device_bytes", inner=device_bytes)
    predict = Work(function=pickled, environment=work.environment)

    def note(name: str, arguments: list[Any], named: dict[str, Any]) -> None:
        number, size, error = arguments
        found[int(number)] = size
        if error:
            say(f"no prediction for trial {number}, which will run alone: {error}")

    ended = TrialProcess(predict, log=log, answer=note).wait()
    if ended.state != "finished":
        say(f"predicting the memory of trials ended early, so the others run alone: {ended.error}")
    return {number: found.get(number) for number in settings}


class _PredictAll:
    """Calls a function with the settings of each trial, and tells the loop what it returns."""

    def __init__(self, predict: Callable[[dict[str, Any]], Size], settings: dict[int, dict[str, Any]]) -> None:
        self.predict, self.settings = predict, settings

    def __call__(self) -> None:
        from fitroom.loops.trials.child import get_channel

        for number, one in self.settings.items():
            size, error = None, None
            try:
                size = parse_size(self.predict(one))
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
            get_channel().call("predicted", number, size, error)


def parse_size(size: Size) -> int | None:
    """The bytes that an answer stands for."""
    if size is None:
        return None
    if isinstance(size, Estimate):
        return size.device_bytes
    size = getattr(size, "item", lambda: size)()  # a number of NumPy
    if isinstance(size, bool) or not isinstance(size, int | str):
        raise InputError(
            "`device_bytes` must be a size, an Estimate, None, or a function that returns one. "
            f"Received: {size!r:.200}."
        )
    return parse_bytes(size)


def explain_no_fit(device_bytes: int | None, room: Room) -> str:
    """Why a trial was not started."""
    where = "of the card" if room.has_card else "of the host"
    return (
        f"It was not started: it is predicted to need {format_bytes(device_bytes)}, and trials may take "
        f"{format_bytes(room.budget_bytes)} {where}."
    )
