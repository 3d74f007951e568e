"""Seeding of all random generators. Keras's own `set_random_seed` imports TensorFlow on every backend."""

import random
from typing import Any


def set_seed(seed: int) -> None:
    """Seed the generators of Python, NumPy, Keras and the framework."""
    import keras
    import numpy as np

    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(seed)
        return
    random.seed(seed)  # Keras draws the seeds of its own generators from it
    np.random.seed(seed)
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed(seed)


def set_layer_seeds(model: Any, seed: int) -> None:
    """Seed the random generators of a model's layers.

    A model file does not hold their states: a phase that starts from a file after a kill must draw the same numbers as
    in the process that was killed.
    """
    import numpy as np

    generators = [generator for layer in model._flatten_layers() for generator in layer._seed_generators]
    seeds = np.random.default_rng(seed).integers(2**31, size=len(generators))
    for generator, own in zip(generators, seeds, strict=True):
        generator.state.assign(np.array([own, 0], generator.state.dtype))
