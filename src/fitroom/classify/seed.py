"""One seed for everything random, as Keras's `set_random_seed` does it, which imports TensorFlow on every backend."""

import random


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
