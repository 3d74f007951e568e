"""`fitroom.fit`: takes the place of `model.fit`, and survives out-of-memory."""

import operator
from typing import TYPE_CHECKING, Any

from fitroom.errors import InputError
from fitroom.recipe import Recipe

if TYPE_CHECKING:
    from pathlib import Path

    from fitroom.budget import Budget
    from fitroom.input_sizes import InputShape
    from fitroom.planning.result import Plan


def fit(
    model: Any,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: Any = True,
    class_weight: dict[int, float] | None = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: Any = 1,
    *,
    recipe: Recipe | None = None,
    plan: "Plan | str | Path | None" = None,
    budget: "Budget | int | str | None" = None,
    input_shape: "InputShape | None" = None,
    run_dir: "str | Path | None" = None,
    seed: int | None = None,
    checkpoint_seconds: float = 60.0,
    checkpoint_batches: int | None = None,
) -> Any:
    """Train a compiled Keras model. Takes what `model.fit` takes and returns Keras's `History`.

    Where a batch does not fit into memory, it is split into micro-batches and trained to the same result: one optimizer
    update for the whole batch, the loss and the gradients of the whole batch. `History.fitroom` says what was done.

    Args:
        model: A compiled `keras.Model`.
        x, y, batch_size, ..., validation_freq: As in `model.fit`.
        recipe: How each step is carried out; `fitroom.Recipe(micro_batch=32)` uses micro-batches from the start.
        plan: What `fitroom.plan` found for this model and this batch, or the file that it was saved to. It is carried
            out; where memory runs out all the same, its next smaller recipe is.
        budget: A size such as "16GiB", for which a plan is made first. It limits nothing by itself.
        input_shape: How large a sample can be, such as (640, 640, 3), for a plan of a model that leaves dimensions of
            its input open. Left out, the shape of the first batch is used.
        run_dir: A folder for checkpoints, history and model. The same call again resumes a killed run from it, with the
            same result.
        seed: Of the order of the samples. Left out, it is drawn from NumPy's; a resumed run keeps its own.
        checkpoint_seconds: A checkpoint is written this often, and at the end of every epoch.
        checkpoint_batches: Write checkpoints every so many batches instead.

    >>> history = fitroom.fit(model, x, y, batch_size=256, epochs=10, run_dir="runs/a")  # doctest: +SKIP
    """
    from fitroom.train.own_fit import check_own_fit
    from fitroom.train.training import Data, Training

    check_own_fit(model)
    batch_size, steps_per_epoch = _whole("batch_size", batch_size), _whole("steps_per_epoch", steps_per_epoch)
    data = Data(
        x=x,
        y=y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        shuffle=shuffle,
        class_weight=class_weight,
        steps_per_epoch=steps_per_epoch,
        validation_split=validation_split,
        validation_data=validation_data,
        validation_steps=_whole("validation_steps", validation_steps),
        validation_batch_size=_whole("validation_batch_size", validation_batch_size),
        validation_frequency=validation_freq,
    )
    training = Training(
        model=model,
        data=data,
        recipe=recipe,
        plan=plan,
        budget=budget,
        run_dir=run_dir,
        seed=_whole("seed", seed),
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_batches=checkpoint_batches,
        input_shape=input_shape,
    )
    return training.run(
        epochs=_whole("epochs", epochs),
        initial_epoch=_whole("initial_epoch", initial_epoch),
        verbose=verbose,
        callbacks=callbacks,
    )


def _whole(name: str, number: Any) -> Any:
    """A Python int of a whole number, which may be NumPy's; None stays None."""
    try:
        return None if number is None else operator.index(number)
    except TypeError:
        raise InputError(f"`{name}` must be a whole number. Received: {number!r}.") from None
