"""Times a recipe by a few training steps on the device in this machine."""

import time
from dataclasses import replace
from typing import Any

from fitroom.recipe import Recipe

_STEPS = 5


def time_step(model: Any, batch_size: int, recipe: Recipe, *, optimizer: Any = None, loss: Any = None) -> float:
    """Return the seconds of one optimizer step. A copy of the model is trained, so that the model stays as it is."""
    from fitroom.train.step import Step

    twin = _copy(model, optimizer or recipe.optimizer, loss, recipe.frozen_layers)
    x, y = _make_batch(twin, batch_size, recipe)
    step = Step(twin, recipe=replace(recipe, input_dtype=None, optimizer=None, image_size=None, frozen_layers=None))
    step(x, y)  # compiles, and makes the optimizer's variables
    started = time.perf_counter()
    for _ in range(_STEPS):
        step(x, y)  # it returns numbers, so the step has finished
    return (time.perf_counter() - started) / _STEPS


def _copy(model: Any, optimizer: Any, loss: Any, frozen_layers: int | None) -> Any:
    import keras

    from fitroom.keras_model.freezing import freeze_first
    from fitroom.keras_model.prepared import DEFAULT_OPTIMIZER, default_loss

    twin = keras.models.clone_model(model)
    if frozen_layers:
        freeze_first(twin, frozen_layers)
    own = model.optimizer if model.compiled else DEFAULT_OPTIMIZER
    found = keras.optimizers.get(optimizer or own)
    twin.compile(
        optimizer=type(found).from_config(found.get_config()),
        loss=loss or (model.loss if model.compiled else default_loss(model)),
        jit_compile=model.jit_compile if model.compiled else "auto",
    )
    return twin


def _make_batch(model: Any, batch_size: int, recipe: Recipe) -> tuple[Any, Any]:
    """Make inputs and targets of zeros, in the shapes that the model takes and its loss most likely expects."""
    import keras
    import numpy as np

    from fitroom.keras_model.input_batch import input_specs, target_specs

    specs = input_specs(model, batch_size, Recipe(input_dtype=recipe.input_dtype))

    def zeros(spec: Any) -> Any:
        return np.zeros(spec.shape, spec.dtype)

    return keras.tree.map_structure(zeros, specs), keras.tree.map_structure(zeros, target_specs(model, specs)[0])
