"""`keras.utils.PyDataset` as a source: batches by their number. Keras's legacy iterators of images are such datasets.

To resume a run, the dataset's `on_epoch_begin` and `on_epoch_end` are called again, as often as they were and each in
the random state of its first call: that restores data which they reorder or load. Then its attributes get the values
they had (`attribute_state.py`): orders, random generators, counters.
"""

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fitroom.batch import Batch
from fitroom.errors import InputError
from fitroom.inputs import attribute_state, randomness
from fitroom.inputs.batches import Batches, keep_random_state
from fitroom.inputs.contract import Resumes
from fitroom.inputs.host import batch_of, is_x_y_weight, pack_for_step
from fitroom.inputs.keras_loader import draw_as_loader
from fitroom.inputs.passes import epoch_window, seeded_generator, warn_of_end
from fitroom.inputs.prefetch import in_order

_MANY_WORKERS = (
    "The batches are made by {workers} threads, which draw from the same random generators in no fixed order: a "
    "resumed run has the same samples in each batch, but not the same random changes to them. With workers=1 it has."
)


class PyDatasetSource:
    """The batches of a PyDataset. With `shuffle` their order is drawn from (seed, epoch) alone."""

    resumes: Resumes = "exactly"

    def __init__(
        self,
        dataset: Any,
        *,
        shuffle: Any,
        class_weight: dict[int, float] | None,
        steps_per_epoch: int | None,
        seed: int,
    ) -> None:
        self._dataset, self._shuffle, self._seed = dataset, shuffle, seed
        self._class_weight, self._steps = class_weight, steps_per_epoch
        if dataset.num_batches == 0:
            raise InputError("The PyDataset has no batches. Received: a length of 0.")
        self._workers = int(dataset.workers)
        if dataset.use_multiprocessing and self._workers > 0:
            warnings.warn(
                f"`use_multiprocessing` is served by {self._workers} threads in this process: the order of the "
                "batches is kept, and a GPU in use does not survive a fork.",
                stacklevel=4,
            )
        self._hooked = HookedDataset(dataset)
        self._pending: dict[str, Any] | None = None
        self._last_epoch, self._is_last = -1, False

    @property
    def num_batches(self) -> int | None:
        """The number of batches in an epoch; None where it is not known."""
        return self._steps or self._length()

    @property
    def batch_size(self) -> int | None:
        """The dataset's `batch_size`, if it has one."""
        size = getattr(self._dataset, "batch_size", None)
        return size if isinstance(size, int) else None

    @property
    def num_samples(self) -> int | None:
        """The number of samples, which only the legacy iterators know."""
        legacy = any("legacy" in kind.__module__ for kind in type(self._dataset).__mro__)
        return int(self._dataset.n) if legacy else None

    @property
    def resume_note(self) -> str:
        """For people: that several threads draw random numbers in no fixed order."""
        return _MANY_WORKERS.format(workers=self._workers) if self._workers > 1 else ""

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The class and the counts; no batch is made, because making one may change the next."""
        return {
            "kind": "PyDataset",
            "class": type(self._dataset).__name__,
            "num_samples": self.num_samples,
            "batch_size": self.batch_size,
            "num_batches": self._length(),
            "steps_per_epoch": self._steps,
            "shuffle": str(self._shuffle),
        }

    def peek(self) -> Batch:
        """A batch; the state of the dataset stays as it was."""
        batch: Batch = self._hooked.without_trace(lambda: self._batch(0))
        return batch

    def epoch(self, epoch: int, start: int = 0) -> Batches:
        """The batches of an epoch, from batch `start` on."""
        state, self._pending = self._pending, None
        if state is not None:
            with keep_random_state(state, start):
                self._hooked.restore(state)
        is_again = epoch <= self._last_epoch
        if not self._hooked.within_epoch or (state is None and start == 0):
            self._hooked.begin_epoch(is_first=is_again)
        if start == 0 and (self._steps is None or is_again or self._last_epoch < 0):
            draw_as_loader()
        self._last_epoch = epoch
        made = self._made(*self._numbers(epoch, start))
        return Batches(made, first=start, batch_size=self.batch_size, state=self.state)

    def on_epoch_end(self) -> None:
        """Call the dataset's own `on_epoch_end`, in which many shuffle."""
        self._hooked.end_epoch()
        if self._is_last:
            draw_as_loader()

    def look(self) -> None:
        """Draw the random numbers that Keras draws when it reads a batch to build a model, in a pass of its own."""
        draw_as_loader()

    def state(self) -> dict[str, Any]:
        """The state of the dataset and the last epoch that was begun."""
        return {**self._hooked.state(), "last_epoch": self._last_epoch}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state that the next call of `epoch` will restore."""
        self._pending = state
        self._last_epoch = int(state.get("last_epoch", -1))

    def _numbers(self, epoch: int, start: int) -> tuple[Iterable[int], int | None]:
        """The numbers of the batches to make; and how many the epoch has, if fewer than the steps asked for."""
        length = self._length()
        if length is None:  # infinite: numbers continue from epoch to epoch
            first = epoch * (self._steps or 0)
            if self._steps is None:
                return itertools.count(first + start), None
            return range(first + start, first + self._steps), None
        found = epoch_window(length, self._steps, epoch)
        self._is_last = found.stop == length
        order: Any = range(length)
        if self._shuffle:
            order = seeded_generator(self._seed, found.number).permutation(length).tolist()
        ends_at = found.stop - found.first if found.falls_short else None
        return order[found.first + start : found.stop], ends_at

    def _made(self, numbers: Iterable[int], ends_at: int | None) -> Iterator[Batch]:
        if self._workers > 1:
            ahead = max(int(self._dataset.max_queue_size), self._workers)
            yield from in_order(self._batch, numbers, workers=self._workers, ahead=ahead)
        else:
            yield from map(self._batch, numbers)
        if ends_at is not None and self._steps is not None:
            warn_of_end(ends_at, self._steps)

    def _batch(self, number: int) -> Batch:
        return batch_of(pack_for_step(_pack(self._dataset[number])), self._class_weight)

    def _length(self) -> int | None:
        length = self._dataset.num_batches
        return None if length is None else int(length)


class HookedDataset:
    """A dataset with a record of the calls of its hooks."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._before = attribute_state.plain_values(dataset)
        self._orders = attribute_state.orders(dataset)
        self._calls: dict[str, Any] = {}
        self._began = False
        self.within_epoch = False

    def begin_epoch(self, *, is_first: bool = False) -> None:
        """Call `on_epoch_begin`; before a first epoch also `on_epoch_end`, as Keras does."""
        if is_first or not self._began:
            self._call("on_epoch_end")
            self._began = True
        self._call("on_epoch_begin")
        self.within_epoch = True

    def end_epoch(self) -> None:
        """Call `on_epoch_end`, in which the dataset may shuffle."""
        self._call("on_epoch_end")
        self.within_epoch = False

    def state(self) -> dict[str, Any]:
        """The random state, the state of the dataset, and the states in which its hooks were called."""
        return {
            "random": randomness.capture(),
            "own": attribute_state.changes(self.dataset, self._before),
            "orders": self._orders,
            "calls": dict(self._calls),
            "began": self._began,
            "within_epoch": self.within_epoch,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a dataset that the user's script has just made to this state."""
        for number in sorted(state["calls"], key=int):
            call = state["calls"][number]
            randomness.restore(call["random"])
            attribute_state.restore(self.dataset, call["own"])
            getattr(self.dataset, call["name"])()
        attribute_state.restore(self.dataset, state["own"], state["orders"])
        self._calls, self._orders = dict(state["calls"]), state["orders"]
        self._began, self.within_epoch = bool(state["began"]), bool(state["within_epoch"])

    def without_trace(self, make: Callable[[], Any]) -> Any:
        """Call `make`, and set the random state and that of the dataset back to what they were."""
        random, own = randomness.capture(), attribute_state.changes(self.dataset, {})
        made = make()
        attribute_state.restore(self.dataset, own)
        randomness.restore(random)
        return made

    def _call(self, name: str) -> None:
        hook = getattr(self.dataset, name)
        if getattr(hook, "__qualname__", "") == f"PyDataset.{name}":  # Keras's own, which does nothing
            return
        own = attribute_state.changes(self.dataset, self._before)
        self._calls[str(len(self._calls))] = {"name": name, "random": randomness.capture(), "own": own}
        hook()
        self._orders = attribute_state.orders(self.dataset)


def _pack(data: Any) -> Any:
    """A batch of a PyDataset as Keras packs it: a tuple, unless it is a dict of inputs."""
    if isinstance(data, list) or (isinstance(data, tuple) and is_x_y_weight(data)):
        data = tuple(data)
    if isinstance(data, dict):
        return data
    if not isinstance(data, tuple):
        return (data,)
    if not is_x_y_weight(data):
        raise InputError(
            "A PyDataset must give `(x,)`, `(x, y)` or `(x, y, sample_weight)`, or a dict of inputs. "
            f"Received: a tuple of {len(data)} elements.",
            hint="several inputs go into one element: ((first, second), y)",
        )
    return data
