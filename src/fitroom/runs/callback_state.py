"""What one callback knows that a new one made by the same script does not."""

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
    """The plain attributes that training changed.

    Those that are as they were when training began are what the script gave: a script that now gives another
    `patience` gets it. Models, functions, open files and the like are not data and stay the new callback's own.
    """

    skipped = frozenset({"model", "_model", "params"})

    def __init__(self, callback: Any) -> None:
        self.callback = callback
        self._given: dict[str, Any] = {}
        self._begin: dict[str, tuple[Any, list[str]]] = {}
        self._parameters = _parameters(type(callback))

    def continue_files(self, facts: Mapping[str, Any]) -> None:
        """Before training begins: let files that the callback will open go on from where they were."""

    def begun(self) -> None:
        """Training has begun: what the callback holds now is where it starts from."""
        self._begin.clear()
        for name, (value, arrays) in self._plain()[0].items():
            self._begin[name] = (value, [_digest(array) for array in arrays])
        self._given = {name: value for name, value in vars(self.callback).items() if name in self._parameters}

    def capture(self) -> Captured:
        """What differs from the beginning."""
        plain, left_out = self._plain()
        changed = {name: found for name, found in plain.items() if not self._is_as_begun(name, *found)}
        arrays = {
            f"{name}/{number}": np.array(array, copy=True)
            for name, (_, held) in changed.items()
            for number, array in enumerate(held)
        }
        return {"attributes": {name: value for name, (value, _) in changed.items()}, "left_out": left_out}, arrays

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Put it back. What did not differ from the beginning becomes again as it begins."""
        kept = facts["attributes"]
        for name, (value, held) in self._plain()[0].items():
            if name in self._begin and name not in kept and not self._is_as_begun(name, value, held):
                begin, digests = self._begin[name]
                if not digests:
                    self._set(name, decode(begin, []))
        for name, value in kept.items():
            self._set(name, decode(value, _numbered(arrays, name)))

    def _plain(self) -> tuple[dict[str, tuple[Any, list[Any]]], list[str]]:
        """Attributes as JSON with their arrays, and the names of those that are not data."""
        found: dict[str, tuple[Any, list[Any]]] = {}
        left_out: list[str] = []
        for name, value in list(vars(self.callback).items()):
            held: list[Any] = []
            # Keras turns its sign when it first chooses `monitor_op`, which a new callback does again.
            if name in self.skipped or (name == "min_delta" and hasattr(self.callback, "monitor_op")):
                continue
            try:
                encoded = encode(value, held)
            except NotPlainError:
                left_out.append(name)
                continue
            # Gigabytes of validation data may have been handed to it.
            if held and name in self._parameters and value is self._given.get(name, value):
                continue
            found[name] = (encoded, held)
        return found, left_out

    def _is_as_begun(self, name: str, value: Any, arrays: list[Any]) -> bool:
        if name not in self._begin:
            return False
        begin, digests = self._begin[name]
        return bool(value == begin) and all(map(_is_digest, arrays, digests))

    def _set(self, name: str, value: Any) -> None:
        """As `vars` gave it, past any property. A dict of a kind of its own (defaultdict) stays the object it is."""
        present = vars(self.callback).get(name)
        if isinstance(present, dict) and type(present) is not dict and isinstance(value, dict):
            present.clear()
            present.update(value)
        else:
            vars(self.callback)[name] = value


class OwnState(Attributes):
    """A callback with `get_state()` and `set_state(state)` says itself what it knows."""

    def begun(self) -> None:
        """Look whether its state can be kept at all, before hours of training."""
        self.capture()

    def capture(self) -> Captured:
        """What `get_state` gives."""
        held: list[Any] = []
        try:
            state = encode(self.callback.get_state(), held)
        except NotPlainError as error:
            raise InputError(
                f"`{type(self.callback).__name__}.get_state()` must give numbers, texts, arrays and lists or dicts of "
                f"them, to be kept in a checkpoint. Received: {error}."
            ) from None
        return {"state": state}, {f"state/{number}": np.array(array, copy=True) for number, array in enumerate(held)}

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Hand it back to `set_state`."""
        self.callback.set_state(decode(facts["state"], _numbered(arrays, "state")))


def _parameters(kind: type) -> set[str]:
    """The names of what the constructors of a class and its bases take."""
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
    """Keras's CSVLogger: its file is its state. Rows of epochs that will be done again go."""

    skipped = Attributes.skipped | {"append", "append_header", "keys"}

    def continue_files(self, facts: Mapping[str, Any]) -> None:
        """Append to the file, from where it ended at the checkpoint."""
        self.callback.append = True
        path, size = self.callback.filename, facts["file_bytes"]
        if os.path.isfile(path) and os.path.getsize(path) > size:
            os.truncate(path, size)

    def capture(self) -> Captured:
        """How long the file is."""
        facts, arrays = super().capture()
        path = self.callback.filename
        return facts | {"file_bytes": os.path.getsize(path) if os.path.isfile(path) else 0}, arrays


class TensorBoardSteps(Attributes):
    """Keras's TensorBoard: steps go on counting; a trace that was running is not, in a new process."""

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
        """The same, with the clock put back by the time already spent on the epoch."""
        super().restore(facts, arrays)
        if "epoch" in facts:
            self.callback._epoch_start_time = time.time() - facts["epoch"]["seconds"]
            self.callback._previous_epoch_iterations = facts["epoch"]["iterations"]
