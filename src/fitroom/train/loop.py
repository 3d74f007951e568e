"""Epochs and batches, with Keras's callbacks around them.

The order of events is that of Keras's own `fit`; what is different is that a step is a transaction, that validation
has a size of its own, and that a run can begin in the middle of an epoch.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fitroom.errors import OutOfMemoryError
from fitroom.events import Events
from fitroom.inputs.batches import Batches
from fitroom.inputs.contract import Source
from fitroom.inputs.prefetch import Prefetched, prefetched
from fitroom.train.losses import LossWatch
from fitroom.train.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a run is: the next batch to train is this one of this epoch."""

    epoch: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What is validated on, and when."""

    source: Source
    frequency: Any
    """Every so many epochs, or a collection of epochs counted from 1, as Keras takes it."""

    def is_due(self, epoch: int) -> bool:
        """Whether validation follows this epoch, counted from 0."""
        if isinstance(self.frequency, int):
            return (epoch + 1) % self.frequency == 0
        return epoch + 1 in self.frequency


class Keeper:
    """Whom the loop tells of its progress; this one keeps nothing. `RunKeeper` writes checkpoints."""

    records = False
    """Whether it wants to know in which state each batch was made."""

    last_logs: Mapping[str, Any] = MappingProxyType({})
    """Of the last batch that an unfinished run had done in its epoch."""

    def starts_at(self) -> Position | None:
        """Where an unfinished run was, or None where there is none."""
        return None

    def begins(self) -> None:
        """Callbacks are about to be told that training begins."""

    def begun(self, position: Position) -> None:
        """They know."""

    def restore(self) -> None:
        """Bring everything back to where the unfinished run was."""

    def opened(self) -> None:
        """The batches of an epoch are at hand, and none is made yet."""

    def batch_done(self, position: Position, batch: Prefetched, logs: Mapping[str, Any]) -> None:
        """A batch was trained, and callbacks know; `position` is the next one."""

    def epoch_done(self, position: Position) -> None:
        """An epoch is over, callbacks and all."""

    def gave_up(self, error: OutOfMemoryError) -> None:
        """Training ends with this error."""


@dataclass(kw_only=True)
class Loop:
    """One training."""

    model: Any
    source: Source
    transaction: Transaction
    callbacks: Any
    """A `keras.callbacks.CallbackList`."""

    epochs: int
    initial_epoch: int
    validation: Validation | None
    keeper: Keeper
    events: Events

    def run(self) -> None:
        """Train to the end, or until a callback stops it."""
        try:
            self._run()
        except OutOfMemoryError as error:
            self.keeper.gave_up(error)
            raise

    def _run(self) -> None:
        model, callbacks, keeper = self.model, self.callbacks, self.keeper
        start = keeper.starts_at()
        position = start or Position(epoch=self.initial_epoch, batch=0)
        model.stop_training = False
        keeper.begins()
        callbacks.on_train_begin()
        if start is None and model._initial_epoch:  # Keras's own BackupAndRestore says where to go on
            position = Position(epoch=model._initial_epoch, batch=0)
        keeper.begun(position)
        if start is not None and not start.batch:
            keeper.restore()
        logs: dict[str, Any] = {}
        while position.epoch < self.epochs and not model.stop_training:
            model.reset_metrics()
            callbacks.on_epoch_begin(position.epoch)
            if position == start and start.batch:  # what callbacks do when an epoch begins was done before
                keeper.restore()
            logs = self._epoch(position)
            self.source.on_epoch_end()
            if self.validation is not None and self.validation.is_due(position.epoch):
                found = self._validated(self.validation)
                logs |= {f"val_{name}": value for name, value in found.items()}
            callbacks.on_epoch_end(position.epoch, logs)
            position = Position(epoch=position.epoch + 1, batch=0)
            keeper.epoch_done(position)
        if self.epochs > 0 and model.optimizer is not None:
            model.optimizer.finalize_variable_values(model.trainable_weights)
        callbacks.on_train_end(logs or None)

    def _epoch(self, position: Position) -> dict[str, Any]:
        logs: dict[str, Any] = {}
        watch = LossWatch(self.events, self.transaction.backend)
        batches = self.source.epoch(position.epoch, position.batch)
        self.keeper.opened()
        # A stream may draw from generators that training draws from too: by turns, so that a run can go on exactly.
        by_turns = self.keeper.records and self.source.resumes != "exactly"
        depth = 0 if by_turns else self.transaction.stepper.batches_ahead
        with brought_ahead(batches, self.transaction, depth, record=self.keeper.records) as items:
            for execution in executions(items, position.batch, self.model):
                if position.batch and self.model.stop_training:  # a callback had stopped it before it was killed
                    break
                self.callbacks.on_train_batch_begin(execution.begin)
                for number, item in execution:
                    self.events.where = {"epoch": position.epoch, "batch": number}
                    logs = self.transaction.train(item.batch)
                    watch.look(logs, position.epoch, number)
                self.callbacks.on_train_batch_end(execution.end, logs)
                self.keeper.batch_done(Position(epoch=position.epoch, batch=number + 1), item, logs)
                if self.model.stop_training:
                    break
        watch.look(logs, position.epoch, None)
        if not logs and position.batch:  # all batches were done before it was killed
            logs = dict(self.keeper.last_logs)
        return results(self.model, logs)

    def _validated(self, validation: Validation) -> dict[str, Any]:
        self.events.where.pop("batch", None)
        return evaluate_batches(self.model, validation.source, self.transaction, self.callbacks)


@dataclass(kw_only=True)
class Execution:
    """The batches between two calls of callbacks: as many as `compile(steps_per_execution=...)` says."""

    begin: int
    """The number of its first batch in the epoch."""

    end: int
    """The number of its last batch, as Keras counts: also where the data end before."""

    items: Iterator[Prefetched]
    """The batches, made when they are asked for."""

    def __iter__(self) -> Iterator[tuple[int, Prefetched]]:
        return enumerate(self.items, start=self.begin)


def executions(items: Iterator[Prefetched], start: int, model: Any) -> Iterator[Execution]:
    """The batches of an epoch from number `start` on, in the groups between which callbacks are called."""
    size = model.steps_per_execution
    while True:
        # One that was broken off in the middle ends where it would have ended.
        end = (start // size + 1) * size - 1
        first = next(items, None)
        if first is None:
            return
        yield Execution(begin=start, end=end, items=itertools.chain([first], itertools.islice(items, end - start)))
        start = end + 1


def evaluate_batches(model: Any, source: Source, transaction: Transaction, callbacks: Any) -> dict[str, Any]:
    """What the model's metrics say of all batches of a source, with Keras's callbacks around them."""
    model.stop_evaluating = False
    callbacks.on_test_begin()
    model.reset_metrics()
    logs: dict[str, Any] = {}
    batches = source.epoch(0)
    with brought_ahead(batches, transaction, transaction.stepper.batches_ahead, record=False) as items:
        for execution in executions(items, 0, model):
            callbacks.on_test_batch_begin(execution.begin)
            for _, item in execution:
                logs = transaction.test(item.batch)
            callbacks.on_test_batch_end(execution.end, logs)
            if model.stop_evaluating:
                break
    source.on_epoch_end()
    found = as_floats(results(model, logs))
    callbacks.on_test_end(found)
    return found


@contextlib.contextmanager
def brought_ahead(
    batches: Batches, transaction: Transaction, depth: int, *, record: bool
) -> Iterator[Iterator[Prefetched]]:
    """The batches, each brought near to the device while one before it is being worked on."""
    try:
        with prefetched(batches, transaction.ahead, depth, record=record) as items:
            yield items
    finally:
        transaction.stepper.pause()


def results(model: Any, logs: dict[str, Any]) -> dict[str, Any]:
    """An epoch's logs: what the metrics say, unless the model's own step gave other names."""
    return dict(model._get_metrics_result_or_logs(logs)) if logs else {}


def as_floats(logs: dict[str, Any]) -> dict[str, Any]:
    """Numbers of the framework as Python's, in the dicts that metrics may give too."""
    found: dict[str, Any] = {}
    for name, value in logs.items():
        if isinstance(value, dict):
            found |= as_floats(value)
        else:
            try:
                found[name] = float(value)
            except (TypeError, ValueError):
                found[name] = value
    return found
