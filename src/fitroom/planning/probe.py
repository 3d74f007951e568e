"""How long a step takes, by a few steps on the device in this machine."""

import time
from dataclasses import replace
from typing import Any

from fitroom.recipe import Recipe

_STEPS = 5


def seconds_of_step(model: Any, batch_size: int, recipe: Recipe, *, optimizer: Any = None, loss: Any = None) -> float:
    """Of one optimizer step. The steps are of a twin with values of its own, so that the model stays as it is."""
    from fitroom.train.step import Step

    twin = _twin(model, optimizer or recipe.optimizer, loss, recipe.frozen_layers)
    x, y = _batch(twin, batch_size, recipe)
    step = Step(twin, recipe=replace(recipe, input_dtype=None, optimizer=None, image_size=None, frozen_layers=None))
    step(x, y)  # compiles, and makes the optimizer's variables
    begun = time.perf_counter()
    for _ in range(_STEPS):
        step(x, y)  # its logs are numbers: the step is done
    return (time.perf_counter() - begun) / _STEPS


def _twin(model: Any, optimizer: Any, loss: Any, frozen_layers: int | None) -> Any:
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


def _batch(model: Any, batch_size: int, recipe: Recipe) -> tuple[Any, Any]:
    """Zeros in the shapes that the model takes; targets as its loss most likely wants them."""
    import keras
    import numpy as np

    from fitroom.keras_model.input_batch import input_specs, target_specs

    specs = input_specs(model, batch_size, Recipe(input_dtype=recipe.input_dtype))

    def zeros(spec: Any) -> Any:
        return np.zeros(spec.shape, spec.dtype)

    return keras.tree.map_structure(zeros, specs), keras.tree.map_structure(zeros, target_specs(model, specs)[0])
