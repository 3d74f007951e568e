"""Passes over data that are read as a stream, and how to return to the middle of one."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fitroom.batch import map_structure
from fitroom.inputs import attribute_state, randomness
from fitroom.inputs.batches import host_memory_error, is_host_memory
from fitroom.inputs.keras_loader import draw_as_loader, keras_backend
from fitroom.inputs.kinds import Kind

END = object()
_READ_BEFOREHAND = 2
"""How many batches of a generator Keras reads beforehand; it gives them again at the start of each pass."""


class StreamReader:
    """Reads the pass that is under way."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._before = [attribute_state.plain_values(holder) for holder in kind.holders]
        self._live: Iterator[Any] | None = None
        self._kept: list[Any] = []
        self._first: list[Any] = []
        """The first batches of data that cannot be iterated anew, which are given again all the same."""
        self._num_first, self._num_read = 0, 0
        """How many of the first batches this pass has given, and how many batches were read in all passes."""
        self._at_start: dict[str, Any] = {}
        self.number = -1
        """The number of the pass."""

        self.drawn = 0
        """How many batches of the pass were given."""

        self.is_over = True

    @property
    def is_fresh(self) -> bool:
        """Whether no batch of the pass was given yet."""
        return not self.is_over and self.drawn == 0

    def begin(self) -> None:
        """Begin the next pass. Data that cannot be iterated anew repeat their first batches, as in Keras."""
        if self._live is None or self._kind.begins_again:
            self._at_start = {"random": randomness.capture(), "own": self._own()}
            self._live, self._kept = iter(self._kind.data), []
            if not self._kind.begins_again:
                self._read_first()
        self._draw()
        self.number, self.drawn, self.is_over, self._num_first = self.number + 1, 0, False, 0

    def make_spare(self, *, look: bool) -> None:
        """Make an iterator that no pass reads, as Keras does. It may draw an order, which no pass then gets."""
        if self._kind.native == keras_backend() or (look and self._kind.native is not None):
            spare = iter(self._kind.data)
            if look:
                next(spare, END)
            self.number += 1
        self._draw()

    def draw(self) -> Any:
        """The next batch as the dataset gives it, or END."""
        found = self._kept.pop() if self._kept else self._read()
        if found is END:
            self.is_over = True
        else:
            self.drawn += 1
        return found

    def peek(self) -> Any:
        """The next batch, which stays the next one, or END."""
        if self._live is None:
            self.begin()
        if not self._kept:
            self._kept = [self._read()]
        return self._kept[-1]

    def skip(self, count: int) -> None:
        """Read batches and drop them."""
        for number in range(count):
            try:
                found = self.draw()
            except Exception as error:
                if is_host_memory(error):
                    raise host_memory_error(number, self._kind.batch_size, error) from error
                raise
            if found is END:
                return

    def state(self) -> dict[str, Any]:
        """The position in the pass, and the states that it began with."""
        position = {"number": self.number, "drawn": self.drawn, "is_over": self.is_over, "is_ahead": bool(self._kept)}
        num_read = self._num_read - (len(self._kept) if self.drawn >= len(self._first) else 0)
        return {**position, "num_read": num_read, "at_start": self._at_start, "own": self._own()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go to the position that another process had when it gave this state."""
        number, drawn = int(state["number"]), int(state["drawn"])
        if self._kind.counts_passes:  # each pass advances its shuffle
            while self.number < number:
                self.begin()
        elif self._kind.begins_again and state["at_start"]:
            randomness.restore(state["at_start"]["random"])
            self._restore_own(state["at_start"]["own"])
            self.begin()
        else:
            self._read_again(drawn, int(state.get("num_read", drawn)))
        if not state["is_over"]:
            self.skip(drawn - self.drawn)
            if state["is_ahead"]:  # its next batch was made already
                self.peek()
        self.number, self.drawn, self.is_over = number, drawn, bool(state["is_over"])
        self._at_start = state["at_start"]
        self._restore_own(state["own"])

    def _read_again(self, drawn: int, num_read: int) -> None:
        """Read data that cannot be iterated anew up to so many batches of their pass, and of all passes."""
        if self._live is None:
            self.begin()
        self._kept = []  # a batch that was peeked at is given again from the first ones
        while self._num_read < num_read and self._take() is not END:
            pass
        self._num_first, self.drawn = min(drawn, len(self._first)), drawn

    def _read_first(self) -> None:
        """Read as many batches as Keras does beforehand: others may draw from the same random generators."""
        while len(self._first) < _READ_BEFOREHAND and (found := self._take()) is not END:
            self._first.append(found)

    def _draw(self) -> None:
        if self._kind.native != "torch":  # whose DataLoader has drawn itself
            draw_as_loader()

    def _own(self) -> dict[str, Any]:
        pairs = zip(self._kind.holders, self._before, strict=True)
        return {str(number): attribute_state.changes(*pair) for number, pair in enumerate(pairs)}

    def _restore_own(self, own: dict[str, Any]) -> None:
        for number, holder in enumerate(self._kind.holders):
            attribute_state.restore(holder, own[str(number)])

    def _read(self) -> Any:
        if self._num_first < len(self._first):
            self._num_first += 1
            return self._first[self._num_first - 1]
        return self._take()

    def _take(self) -> Any:
        """The next batch of the data that was not read before."""
        found = END if self._live is None else next(self._live, END)
        if found is END:
            return END
        self._num_read += 1
        if not self._kind.fills_again:
            return found
        return map_structure(lambda array: array.copy() if isinstance(array, np.ndarray) else array, found)
