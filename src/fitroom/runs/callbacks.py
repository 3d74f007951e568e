"""The state of all callbacks of a training, captured for checkpoints and restored into those of a resumed run."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fitroom.runs.callback_state import Attributes, Captured, CsvFile, OwnState, TensorBoardSteps

PREFIX = "callbacks"
"""The prefix of the names of their arrays in a checkpoint."""


class CallbackStates:
    """The callbacks of one training, each found again by its class and its place among those of its class.

    In the order of a run: `continue_files` (only to resume), Keras's `on_train_begin`, `record_start`, `restore` (only
    to resume), and `capture` whenever a checkpoint is taken.
    """

    def __init__(self, callbacks: Any) -> None:
        """Takes a `keras.callbacks.CallbackList`."""
        self._list = callbacks
        self._states: dict[str, Attributes] = {}
        count: Counter[str] = Counter()
        for callback in callbacks.callbacks:
            kind = _state_class(callback)
            if kind is not None:
                name = type(callback).__qualname__
                self._states[f"{name}.{count[name]}"] = kind(callback)
                count[name] += 1

    def continue_files(self, facts: Mapping[str, Any]) -> None:
        """Before `on_train_begin` of a resumed run: have callbacks append to their files, not overwrite them."""
        for name, state in self._states.items():
            if name in facts:
                state.continue_files(facts[name])

    def record_start(self) -> None:
        """After `on_train_begin`: record what callbacks start with, to capture later what training changed."""
        for state in self._states.values():
            state.record_start()

    def capture(self) -> Captured:
        """The state of all callbacks: facts by callback, and arrays by their names in the checkpoint."""
        flush = getattr(self._list, "_flush_futures", None)
        if flush is not None:  # Keras may call some in another thread, which must have finished the last batch
            flush()
        facts: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        for name, state in self._states.items():
            facts[name], held = state.capture()
            arrays |= {f"{PREFIX}/{name}/{inner}": array for inner, array in held.items()}
        return facts, arrays

    def restore(self, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[str]:
        """Restore the state of each callback. Returns notes for people on what could not be restored."""
        notes = [f"The callback {name} of the run is not there any more." for name in facts if name not in self._states]
        for name, state in self._states.items():
            if name not in facts:
                notes.append(f"The callback {name} is new to the run and starts afresh.")
                continue
            start = f"{PREFIX}/{name}/"
            held = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
            state.restore(facts[name], held)
        return notes


def _state_class(callback: Any) -> type[Attributes] | None:
    """How the state of a callback is captured; None for a progress bar, which has none."""
    import keras

    if isinstance(callback, keras.callbacks.ProgbarLogger):
        return None
    if callable(getattr(callback, "get_state", None)) and callable(getattr(callback, "set_state", None)):
        return OwnState
    if isinstance(callback, keras.callbacks.CSVLogger):
        return CsvFile
    if isinstance(callback, keras.callbacks.TensorBoard):
        return TensorBoardSteps
    return Attributes
