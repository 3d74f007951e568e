"""The training loop: epochs and batches, with Keras's callbacks around them.

The order of events is that of Keras's own `fit`. The differences: a step is a transaction, validation has a micro-batch
of its own, and a run can start in the middle of an epoch.
"""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fitroom.distribution.current import current_distribution
from fitroom.errors import OutOfMemoryError, PeerError
from fitroom.events import Events
from fitroom.inputs.batches import Batches
from fitroom.inputs.contract import Source
from fitroom.inputs.prefetch import PrefetchedBatch, prefetch
from fitroom.train.checkpointer import Checkpointer, Position
from fitroom.train.keras_logs import LossWatch, as_floats, epoch_logs
from fitroom.train.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The data that are validated on, and after which epochs."""

    source: Source
    frequency: Any
    """Every so many epochs, or a collection of epochs counted from 1, as Keras takes it."""

    def is_due(self, epoch: int) -> bool:
        """Whether validation follows this epoch, counted from 0."""
        if isinstance(self.frequency, int):
            return (epoch + 1) % self.frequency == 0
        return epoch + 1 in self.frequency


@dataclass(kw_only=True)
class Loop:
    """One training, from its first epoch or from a checkpoint to its end."""

    model: Any
    source: Source
    transaction: Transaction
    callbacks: Any
    """A `keras.callbacks.CallbackList`."""

    epochs: int
    initial_epoch: int
    validation: Validation | None
    checkpointer: Checkpointer
    events: Events

    def run(self) -> None:
        """Train to the end, or until a callback stops it."""
        try:
            self._run()
        except OutOfMemoryError as error:
            self.checkpointer.on_out_of_memory(error)
            raise
        except PeerError:
            self.checkpointer.on_peer_lost()
            raise

    def _run(self) -> None:
        model, callbacks, checkpointer = self.model, self.callbacks, self.checkpointer
        start = checkpointer.start_position()
        position = start or Position(epoch=self.initial_epoch, batch=0)
        model.stop_training = False
        checkpointer.before_train_begin()
        callbacks.on_train_begin()
        if start is None and model._initial_epoch:  # set by Keras's own BackupAndRestore
            position = Position(epoch=model._initial_epoch, batch=0)
        checkpointer.after_train_begin(position)
        if start is not None and not start.batch:
            checkpointer.restore()
        logs: dict[str, Any] = {}
        while position.epoch < self.epochs and not model.stop_training:
            model.reset_metrics()
            callbacks.on_epoch_begin(position.epoch)
            if position == start and start.batch:  # the callbacks' `on_epoch_begin` must not change what is restored
                checkpointer.restore()
            logs = self._train_epoch(position)
            self.source.on_epoch_end()
            if self.validation is not None and self.validation.is_due(position.epoch):
                found = self._validate(self.validation)
                logs |= {f"val_{name}": value for name, value in found.items()}
            callbacks.on_epoch_end(position.epoch, logs)
            position = Position(epoch=position.epoch + 1, batch=0)
            checkpointer.after_epoch(position)
            self._agree_on_stopping()
        if self.epochs > 0 and model.optimizer is not None:
            model.optimizer.finalize_variable_values(model.trainable_weights)
        callbacks.on_train_end(logs or None)

    def _train_epoch(self, position: Position) -> dict[str, Any]:
        logs: dict[str, Any] = {}
        watch = LossWatch(self.events, self.transaction.backend)
        batches = self.source.epoch(position.epoch, position.batch)
        self.checkpointer.after_open()
        # A stream may draw from the generators that training draws from. Without prefetching the order of the draws is
        # fixed, so that a resumed run repeats it exactly.
        by_turns = self.checkpointer.records and self.source.resumes != "exactly"
        depth = 0 if by_turns else self.transaction.stepper.batches_ahead
        with prefetch_batches(batches, self.transaction, depth, record=self.checkpointer.records) as items:
            for execution in group_executions(items, position.batch, self.model):
                if position.batch and self.model.stop_training:  # a callback had stopped the run before it was killed
                    break
                self.callbacks.on_train_batch_begin(execution.begin)
                for number, item in execution:
                    self.events.where = {"epoch": position.epoch, "batch": number}
                    logs = self.transaction.train(item.batch)
                    watch.check(logs, position.epoch, number)
                self.callbacks.on_train_batch_end(execution.end, logs)
                self.checkpointer.after_batch(Position(epoch=position.epoch, batch=number + 1), item, logs)
                self._agree_on_stopping()
                if self.model.stop_training:
                    break
        watch.check(logs, position.epoch, None)
        if not logs and position.batch:  # all batches were trained before the run was killed
            logs = dict(self.checkpointer.last_logs)
        return epoch_logs(self.model, logs)

    def _agree_on_stopping(self) -> None:
        """Where a callback of one process stops the training, by its own clock say, have all of them stop here.

        After the checkpointer has counted the batch: a process that lost another here saves what was trained.
        """
        distribution = current_distribution()
        if distribution is not None and distribution.num_processes > 1:
            self.model.stop_training = distribution.any_of(bool(self.model.stop_training))

    def _validate(self, validation: Validation) -> dict[str, Any]:
        self.events.where.pop("batch", None)
        return evaluate_batches(self.model, validation.source, self.transaction, self.callbacks)


@dataclass(kw_only=True)
class Execution:
    """The batches between two calls of callbacks: as many as `compile(steps_per_execution=...)` says."""

    begin: int
    """The number of its first batch in the epoch."""

    end: int
    """The number of its last batch, as Keras counts: also where the data end before."""

    items: Iterator[PrefetchedBatch]
    """The batches, each made when it is asked for."""

    def __iter__(self) -> Iterator[tuple[int, PrefetchedBatch]]:
        return enumerate(self.items, start=self.begin)


def group_executions(items: Iterator[PrefetchedBatch], start: int, model: Any) -> Iterator[Execution]:
    """Group the batches of an epoch, from number `start` on, between the calls of callbacks."""
    size = model.steps_per_execution
    while True:
        # A run resumed in the middle of a group ends the group where it would have ended.
        end = (start // size + 1) * size - 1
        first = next(items, None)
        if first is None:
            return
        yield Execution(begin=start, end=end, items=itertools.chain([first], itertools.islice(items, end - start)))
        start = end + 1


def evaluate_batches(model: Any, source: Source, transaction: Transaction, callbacks: Any) -> dict[str, Any]:
    """Evaluate the model on all batches of a source, with Keras's callbacks. Returns the logs."""
    model.stop_evaluating = False
    callbacks.on_test_begin()
    model.reset_metrics()
    logs: dict[str, Any] = {}
    batches = source.epoch(0)
    with prefetch_batches(batches, transaction, transaction.stepper.batches_ahead, record=False) as items:
        for execution in group_executions(items, 0, model):
            callbacks.on_test_batch_begin(execution.begin)
            for _, item in execution:
                logs = transaction.test(item.batch)
            callbacks.on_test_batch_end(execution.end, logs)
            if model.stop_evaluating:
                break
    source.on_epoch_end()
    found = as_floats(epoch_logs(model, logs))
    callbacks.on_test_end(found)
    return found


@contextlib.contextmanager
def prefetch_batches(
    batches: Batches, transaction: Transaction, depth: int, *, record: bool
) -> Iterator[Iterator[PrefetchedBatch]]:
    """Iterate over batches, each prefetched towards the device while one before it is being worked on."""
    try:
        with prefetch(batches, transaction.prefetch, depth, record=record) as items:
            yield items
    finally:
        transaction.stepper.pause()
