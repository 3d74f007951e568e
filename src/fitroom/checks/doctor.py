"""`fitroom.doctor`: checks the machine, or times the input of a training."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fitroom.checks.finding import Diagnosis


def doctor(
    backend: str | None = None,
    *,
    data: Any = None,
    model: Any = None,
    batch_size: int = 32,
    run_dir: str | Path = "runs",
) -> "Diagnosis":
    """Check whether this machine trains on its GPU, and what stands in the way; with `data`, whether the input is fast.

    A backend is started in a process of its own, which takes some seconds and little memory of the card. Returns the
    findings, which print themselves.

    >>> diagnosis = fitroom.doctor()  # doctest: +SKIP
    >>> print(diagnosis)  # doctest: +SKIP
    >>> [finding.fix for finding in diagnosis.having("failure")]  # doctest: +SKIP
    ['unset CUDA_VISIBLE_DEVICES']

    Args:
        backend: "jax", "tensorflow" or "torch". Left out: that of the imported Keras, of `KERAS_BACKEND` or of
            keras.json, else the first that is installed.
        data: what `fit` gets as `x`, arrays as `(x, y)`, or a folder of images: times it in place of the machine.
        model: a compiled Keras model, whose step is timed beside the data; its variables are put back afterwards.
        batch_size: of arrays and folders.
        run_dir: where checkpoints will be written, for the room on its disk.
    """
    from fitroom.backends.choose import settle_backend
    from fitroom.checks.diagnose import diagnose
    from fitroom.checks.finding import Diagnosis
    from fitroom.errors import InputError, ModelError

    if data is None and model is not None:
        raise InputError("`model` is timed beside `data`. Received: no data.", hint="doctor(data=dataset, model=model)")
    with _environment_kept():
        if data is None:
            return diagnose(backend, run_dir=Path(run_dir), why="`backend`")
        choice = settle_backend(backend, why="`backend`")
        if model is not None and not model.compiled:
            raise ModelError(f"The model {model.name!r} is not compiled.", hint="call model.compile(optimizer, loss)")
        from fitroom.checks.input_timing import check_input

        findings = check_input(data, model=model, batch_size=batch_size)
        return Diagnosis(backend=choice.name, findings=tuple(findings))


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Leave KERAS_BACKEND as it was: looking decides nothing for the process that asks."""
    before = os.environ.get("KERAS_BACKEND")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("KERAS_BACKEND", None)
        else:
            os.environ["KERAS_BACKEND"] = before
