"""`model.evaluate`, `predict`, `train_on_batch` and `test_on_batch`, surviving out-of-memory as `fitroom.fit` does.

Each takes and returns what Keras's method of that name does. The sizes that were found stay with the model from call to
call; those of evaluation and prediction never change training's.
"""

import operator
from dataclasses import replace
from typing import Any

from fitroom.batch import Batch
from fitroom.errors import InputError
from fitroom.inputs import Source, source_of
from fitroom.keras_model.state import needs_batch_to_build
from fitroom.recipe import Recipe
from fitroom.train.keras_settings import callback_list, limit_steps
from fitroom.train.loop import as_floats, brought_ahead, evaluate_batches, executions
from fitroom.train.training import check_model, new_transaction
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
    """The loss and the metrics of a compiled model on some data, as `model.evaluate` gives them."""
    check_model(model)
    source = _source_of(model, x, y, sample_weight, batch_size=batch_size, steps=steps)
    if needs_batch_to_build(model):
        source.look()
    known = callback_list(callbacks, model, verbose=verbose, steps=steps or source.num_batches)
    logs = evaluate_batches(model, source, _kept_transaction(model), known)
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def predict(
    model: Any,
    x: Any,
    batch_size: int | None = None,
    verbose: Any = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> Any:
    """The outputs of a model for some inputs, as `model.predict` gives them. Finished batches lie on the host."""
    source = _source_of(model, x, batch_size=batch_size, steps=steps)
    known = callback_list(callbacks, model, verbose=verbose, steps=steps or source.num_batches)
    transaction = _kept_transaction(model)
    stepper = transaction.stepper
    model.stop_predicting = False
    known.on_predict_begin()
    outputs = []
    with brought_ahead(source.epoch(0), transaction, stepper.batches_ahead, record=False) as items:
        for execution in executions(items, 0, model):
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
    """One update from one batch, and the logs of that batch, as `model.train_on_batch` gives them."""
    check_model(model)
    batch = one_batch(x, y, sample_weight, class_weight)
    transaction = _kept_transaction(model)
    transaction.prepare(batch)
    model.reset_metrics()
    logs = as_floats(transaction.train(batch))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def evaluate_on_batch(model: Any, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False) -> Any:
    """The logs of one batch that is not trained on, as `model.test_on_batch` gives them."""
    check_model(model)
    transaction = _kept_transaction(model)
    model.reset_metrics()
    logs = as_floats(transaction.test(one_batch(x, y, sample_weight)))
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def one_batch(x: Any, y: Any, sample_weight: Any, class_weight: dict[int, float] | None = None) -> Batch:
    """Arrays as one batch, packed as Keras's `train_on_batch` packs it: all three parts, None for those left out."""
    # Through the same door as `fit`: lists become arrays, lengths that differ are an error.
    whole = source_of(x, y, sample_weight, batch_size=_WHOLE, shuffle=False, class_weight=class_weight)
    return replace(whole.peek(), outline=(0, 1, 2))


def _source_of(model: Any, *data: Any, batch_size: int | None, steps: int | None) -> Source:
    """The batches of a call that trains nothing: in their order, once."""
    return source_of(
        *data,
        batch_size=batch_size,
        shuffle=False,
        steps_per_epoch=limit_steps(steps),
        steps_per_execution=model.steps_per_execution,
    )


def _kept_transaction(model: Any) -> Transaction:
    """The steps of earlier calls, unless the model was compiled anew since."""
    import keras

    compiled_with = [getattr(model, "optimizer", None), model._loss_tracker, model._compile_loss]
    if keras.backend.backend() == "jax":  # which, in Keras, sees at once that a layer is frozen or thawed
        compiled_with += [layer.trainable for layer in model._flatten_layers()]
    # With the model, as the steps hold it too: a table elsewhere would keep both for good. Past Keras, which looks
    # through all that is set on a model.
    kept = model.__dict__.get(_NAME)
    if kept is None or len(kept[0]) != len(compiled_with) or any(map(operator.is_not, kept[0], compiled_with)):
        transaction = new_transaction(model, (Recipe(),))
        transaction.names["test_step"] = "evaluation"
        kept = model.__dict__[_NAME] = (compiled_with, transaction)
    found: Transaction = kept[1]
    return found
