"""Steppers from one training of a model to the next: compiling their programs takes a minute where XLA does it."""

from typing import Any

from fitroom.backends.tensorflow.train.stepper import TensorFlowStepper
from fitroom.recipe import Remat

_NAME = "_fitroom_steppers"


def kept_stepper(model: Any, *, jit: bool | None, remat: str | Remat | None) -> TensorFlowStepper:
    """The one of an earlier training that was asked for the same, if it holds for the model as it is."""
    # With the model, as they hold it too: a table elsewhere would keep both for good. Keras must not see it, for it
    # looks through all that is set on a model.
    kept: dict[Any, TensorFlowStepper] = model.__dict__.setdefault(_NAME, {})
    for asked in [asked for asked, stepper in kept.items() if not stepper.holds]:
        del kept[asked]
    if (jit, remat) not in kept:
        kept[jit, remat] = TensorFlowStepper(model, jit=jit, remat=remat)
    kept[jit, remat].trust(0)
    return kept[jit, remat]
