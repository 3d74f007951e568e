"""One seed for everything random, as Keras's `set_random_seed` does it, which imports TensorFlow on every backend."""

import random
from typing import Any


def set_seed(seed: int) -> None:
    """Begin all generators anew."""
    import keras
    import numpy as np

    if keras.backend.backend() == "tensorflow":
        keras.utils.set_random_seed(seed)
        return
    random.seed(seed)  # from which Keras draws the seeds of its own generators
    np.random.seed(seed)
    if keras.backend.backend() == "torch":
        import torch

        torch.manual_seed(seed)


def set_layer_seeds(model: Any, seed: int) -> None:
    """Begin the random generators of a model's layers anew.

    A file of the model does not hold their states: a stretch that begins with weights from a file, after a kill, must
    draw what it would have drawn in the process that was killed.
    """
    import numpy as np

    generators = [generator for layer in model._flatten_layers() for generator in layer._seed_generators]
    seeds = np.random.default_rng(seed).integers(2**31, size=len(generators))
    for generator, own in zip(generators, seeds, strict=True):
        generator.state.assign(np.array([own, 0], generator.state.dtype))
