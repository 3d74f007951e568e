"""`fitroom.fit`: in place of `model.fit`, and it cannot die of memory."""

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

    Where a batch does not fit into memory, it is cut into micro-batches and trained to the same result: one optimizer
    update for the whole batch, the loss and the gradients of the whole batch. `recipe=fitroom.Recipe(micro_batch=32)`
    cuts from the start. `History.fitroom` says what was done.

    `plan` is what `fitroom.plan` found for this model and this batch, or the file that it was saved to: it is carried
    out, and where memory runs out all the same, its next smaller recipe. `budget="16GiB"` makes such a plan first. It
    limits nothing by itself. A model that leaves dimensions of its input open is planned for the shape of the first
    batch; where batches differ in size, `input_shape=(640, 640, 3)` says how large a sample can be.

    With `run_dir` nothing is lost either: the same call again goes on where the run was killed, with the same result.
    A checkpoint is written at the end of every epoch and every `checkpoint_seconds` (or `checkpoint_batches`).
    `seed` is that of the order of the samples; left out, it comes from NumPy's, and a run keeps its own.

    >>> history = fitroom.fit(model, x, y, batch_size=256, epochs=10, run_dir="runs/a")  # doctest: +SKIP
    """
    from fitroom.train.training import Data, Training

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
    """A whole number as Python's, be it NumPy's; None stays None."""
    try:
        return None if number is None else operator.index(number)
    except TypeError:
        raise InputError(f"`{name}` must be a whole number. Received: {number!r}.") from None
