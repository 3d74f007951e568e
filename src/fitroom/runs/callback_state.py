"""The state of one callback that training changed, captured and restored into a new one made by the same script."""

import hashlib
import inspect
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fitroom.errors import InputError
from fitroom.files.values import NotPlainError, decode, encode

Captured = tuple[dict[str, Any], dict[str, Any]]
"""Facts as JSON, and arrays by a name within the callback."""


class Attributes:
    """The plain attributes of a callback that training changed.

    An attribute that training did not change was given by the script, and is not restored: a script that now gives
    another `patience` gets it. Models, functions, open files and the like are not data and stay the new callback's own.
    """

    skipped = frozenset({"model", "_model", "params"})

    def __init__(self, callback: Any) -> None:
        self.callback = callback
        self._given: dict[str, Any] = {}
        self._start: dict[str, tuple[Any, list[str]]] = {}
        self._parameters = _parameters(type(callback))

    def continue_files(self, facts: Mapping[str, Any]) -> None:
        """Before training begins: prepare files that the callback will open to be continued."""

    def record_start(self) -> None:
        """Record the attributes when training begins."""
        self._start.clear()
        for name, (value, arrays) in self._plain()[0].items():
            self._start[name] = (value, [_digest(array) for array in arrays])
        self._given = {name: value for name, value in vars(self.callback).items() if name in self._parameters}

    def capture(self) -> Captured:
        """The attributes that differ from those recorded at the start."""
        plain, left_out = self._plain()
        changed = {name: found for name, found in plain.items() if not self._is_unchanged(name, *found)}
        arrays = {
            f"{name}/{number}": np.array(array, copy=True)
            for name, (_, held) in changed.items()
            for number, array in enumerate(held)
        }
        return {"attributes": {name: value for name, (value, _) in changed.items()}, "left_out": left_out}, arrays

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Set the captured attributes. Others that differ from the recorded start are set back to it."""
        saved = facts["attributes"]
        for name, (value, held) in self._plain()[0].items():
            if name in self._start and name not in saved and not self._is_unchanged(name, value, held):
                begin, digests = self._start[name]
                if not digests:
                    self._set(name, decode(begin, []))
        for name, value in saved.items():
            self._set(name, decode(value, _numbered(arrays, name)))

    def _plain(self) -> tuple[dict[str, tuple[Any, list[Any]]], list[str]]:
        """The attributes as JSON with their arrays, and the names of those that are not data."""
        found: dict[str, tuple[Any, list[Any]]] = {}
        left_out: list[str] = []
        for name, value in list(vars(self.callback).items()):
            held: list[Any] = []
            # Keras flips its sign when it first chooses `monitor_op`, which a new callback does again.
            if name in self.skipped or (name == "min_delta" and hasattr(self.callback, "monitor_op")):
                continue
            try:
                encoded = encode(value, held)
            except NotPlainError:
                left_out.append(name)
                continue
            # An array that the script gave may be gigabytes of validation data.
            if held and name in self._parameters and value is self._given.get(name, value):
                continue
            found[name] = (encoded, held)
        return found, left_out

    def _is_unchanged(self, name: str, value: Any, arrays: list[Any]) -> bool:
        if name not in self._start:
            return False
        begin, digests = self._start[name]
        return bool(value == begin) and all(map(_is_digest, arrays, digests))

    def _set(self, name: str, value: Any) -> None:
        """Set an attribute as `vars` gave it, past any property. A dict of another class (defaultdict) is updated."""
        present = vars(self.callback).get(name)
        if isinstance(present, dict) and type(present) is not dict and isinstance(value, dict):
            present.clear()
            present.update(value)
        else:
            vars(self.callback)[name] = value


class OwnState(Attributes):
    """The state that a callback gives by `get_state()` and takes by `set_state(state)`."""

    def record_start(self) -> None:
        """Check that the state can be written to a checkpoint, before hours of training."""
        self.capture()

    def capture(self) -> Captured:
        """The state that `get_state` gives."""
        held: list[Any] = []
        try:
            state = encode(self.callback.get_state(), held)
        except NotPlainError as error:
            raise InputError(
                f"`{type(self.callback).__name__}.get_state()` must give numbers, texts, arrays and lists or dicts of "
                f"them, to be written to a checkpoint. Received: {error}."
            ) from None
        return {"state": state}, {f"state/{number}": np.array(array, copy=True) for number, array in enumerate(held)}

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Pass the state to `set_state`."""
        self.callback.set_state(decode(facts["state"], _numbered(arrays, "state")))


def _parameters(kind: type) -> set[str]:
    """The parameters of the constructors of a class and its bases."""
    found: set[str] = set()
    for one in kind.__mro__:
        if "__init__" in vars(one) and one is not object:
            found |= set(inspect.signature(one.__init__).parameters)  # type: ignore[misc]
    return found


def _numbered(arrays: Mapping[str, Any], name: str) -> list[Any]:
    found: list[Any] = []
    while f"{name}/{len(found)}" in arrays:
        found.append(arrays[f"{name}/{len(found)}"])
    return found


def _digest(array: Any) -> str:
    data = np.ascontiguousarray(array)
    return hashlib.sha256(memoryview(data.reshape(-1).view(np.uint8))).hexdigest() + str(array.shape)


def _is_digest(array: Any, digest: str) -> bool:
    return _digest(array) == digest


class CsvFile(Attributes):
    """Keras's CSVLogger, whose file is its state. Rows of epochs that will be trained again are removed."""

    skipped = Attributes.skipped | {"append", "append_header", "keys"}

    def continue_files(self, facts: Mapping[str, Any]) -> None:
        """Truncate the file to its length at the checkpoint, and append to it."""
        self.callback.append = True
        path, size = self.callback.filename, facts["file_bytes"]
        if os.path.isfile(path) and os.path.getsize(path) > size:
            os.truncate(path, size)

    def capture(self) -> Captured:
        """The attributes, and the length of the file."""
        facts, arrays = super().capture()
        path = self.callback.filename
        return facts | {"file_bytes": os.path.getsize(path) if os.path.isfile(path) else 0}, arrays


class TensorBoardSteps(Attributes):
    """Keras's TensorBoard: steps continue; a trace that was running is not continued in a new process."""

    skipped = Attributes.skipped | {
        "_is_tracing",
        "_profiler_started",
        "_batch_start_time",
        "_epoch_start_time",
        "_previous_epoch_iterations",
        "_should_write_train_graph",
    }

    def capture(self) -> Captured:
        """The counters, and the epoch so far where steps per second are written."""
        facts, arrays = super().capture()
        if hasattr(self.callback, "_epoch_start_time"):
            facts["epoch"] = {
                "seconds": time.time() - self.callback._epoch_start_time,
                "iterations": float(self.callback._previous_epoch_iterations),
            }
        return facts, arrays

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Restore the counters, with the clock set back by the time already spent on the epoch."""
        super().restore(facts, arrays)
        if "epoch" in facts:
            self.callback._epoch_start_time = time.time() - facts["epoch"]["seconds"]
            self.callback._previous_epoch_iterations = facts["epoch"]["iterations"]
