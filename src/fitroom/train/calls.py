"""`model.evaluate`, `predict`, `train_on_batch` and `test_on_batch`, surviving out-of-memory as `fitroom.fit` does.

Each takes and returns what Keras's method of that name does. The micro-batches that were found are kept with the model
from call to call; those of evaluation and prediction never change that of training.
"""

import operator
from dataclasses import replace
from typing import Any

from fitroom.batch import Batch
from fitroom.errors import InputError
from fitroom.inputs import Source, source_of
from fitroom.keras_model.state import needs_batch_to_build
from fitroom.recipe import Recipe
from fitroom.train.keras_logs import as_floats
from fitroom.train.keras_settings import callback_list, limit_steps
from fitroom.train.loop import evaluate_batches, group_executions, prefetch_batches
from fitroom.train.training import build_transaction, check_model
from fitroom.train.transaction import Transaction

_NAME = "_fitroom_calls"

_WHOLE = 2**31
"""More samples than any batch has."""


def evaluate(
    model: Any,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    verbose: Any = "auto",
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    return_dict: bool = False,
) -> Any:
    """Evaluate a compiled model on some data. Returns the loss and the metrics as `model.evaluate` does."""
    check_model(model)
    source = _source_of(model, x, y, sample_weight, batch_size=batch_size, steps=steps)
    if needs_batch_to_build(model):
        source.look()
    known = callback_list(callbacks, model, verbose=verbose, steps=steps or source.num_batches)
    logs = evaluate_batches(model, source, _cached_transaction(model), known)
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def predict(
    model: Any,
    x: Any,
    batch_size: int | None = None,
    verbose: Any = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> Any:
    """Predict the outputs for some inputs, as `model.predict` does. The outputs of finished batches are on the host."""
    source = _source_of(model, x, batch_size=batch_size, steps=steps)
    known = callback_list(callbacks, model, verbose=verbose, steps=steps or source.num_batches)
    transaction = _cached_transaction(model)
    stepper = transaction.stepper
    model.stop_predicting = False
    known.on_predict_begin()
    outputs = []
    with prefetch_batches(source.epoch(0), transaction, stepper.batches_ahead, record=False) as items:
        for execution in group_executions(items, 0, model):
            known.on_predict_batch_begin(execution.begin)
            found = stepper.join([transaction.predict(item.batch) for _, item in execution])
            outputs.append(found)
            known.on_predict_batch_end(execution.end, {"outputs": found})
            if model.stop_predicting:
                break
    source.on_epoch_end()
    known.on_predict_end()
    if not outputs:
        raise InputError("There are no batches to predict on. Received: data that end before the first batch.")
    return stepper.join(outputs)


def train_on_batch(
    model: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: dict[int, float] | None = None,
    return_dict: bool = False,
) -> Any:
    """Train on one batch with one update. Returns the logs of that batch as `model.train_on_batch` does."""
    check_model(model)
    batch = one_batch(x, y, sample_weight, class_weight)
    transaction = _cached_transaction(model)
    transaction.prepare(batch)
    model.reset_metrics()
    logs = as_floats(transaction.train(batch))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def evaluate_on_batch(model: Any, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
    """Evaluate on one batch. Returns its logs as `model.test_on_batch` does."""
    check_model(model)
    transaction = _cached_transaction(model)
    model.reset_metrics()
    logs = as_floats(transaction.test(one_batch(x, y, sample_weight)))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def one_batch(x: Any, y: Any, sample_weight: Any, class_weight: dict[int, float] | None = None) -> Batch:
    """Make one batch of arrays, packed as in Keras's `train_on_batch`: all three of them, None for those left out."""
    # By the same way as in `fit`: lists become arrays, lengths that differ are an error.
    whole = source_of(x, y, sample_weight, batch_size=_WHOLE, shuffle=False, class_weight=class_weight)
    return replace(whole.peek(), outline=(0, 1, 2))


def _source_of(model: Any, *data: Any, batch_size: int | None, steps: int | None) -> Source:
    """The batches of a call that does not train: unshuffled, one pass."""
    return source_of(
        *data,
        batch_size=batch_size,
        shuffle=False,
        steps_per_epoch=limit_steps(steps),
        steps_per_execution=model.steps_per_execution,
    )


def _cached_transaction(model: Any) -> Transaction:
    """The transaction of earlier calls of this model, unless it was compiled again since."""
    import keras

    compiled_with = [getattr(model, "optimizer", None), model._loss_tracker, model._compile_loss]
    if keras.backend.backend() == "jax":  # where Keras notices by itself that `trainable` of a layer changed
        compiled_with += [layer.trainable for layer in model._flatten_layers()]
    # Stored on the model, which the steps refer to: a table elsewhere would keep both alive for good. Not by `setattr`,
    # since Keras tracks what is set on a model.
    cached = model.__dict__.get(_NAME)
    if cached is None or len(cached[0]) != len(compiled_with) or any(map(operator.is_not, cached[0], compiled_with)):
        transaction = build_transaction(model, (Recipe(),))
        transaction.names["test_step"] = "evaluation"
        cached = model.__dict__[_NAME] = (compiled_with, transaction)
    found: Transaction = cached[1]
    return found
