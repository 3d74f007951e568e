"""The random state of the process, as values that can be written to disk without pickle.

Python's `random`, `np.random`, Keras's seed of unseeded operations, and those of PyTorch and TensorFlow where they are
imported. JAX keeps none. Generators that a user made are captured with the objects that hold them.

    state = capture()
    ...
    restore(state)      # what is drawn from here on was drawn before
"""

import random
import sys
from typing import Any

import numpy as np


def capture() -> dict[str, Any]:
    """Capture the random state: a dict of dicts whose values are JSON values or NumPy arrays."""
    state: dict[str, Any] = {
        "python": python_state(random),
        "numpy": np.random.get_state(legacy=False),
        "keras": _keras(),
    }
    if _is_imported("torch"):
        state["torch"] = _torch()
    if _is_imported("tensorflow"):
        state["tensorflow"] = _tensorflow()
    return state


def _is_imported(framework: str) -> bool:
    """Whether it is; None in its place keeps Python from importing it."""
    return sys.modules.get(framework) is not None


def restore(state: dict[str, Any]) -> None:
    """Restore what `capture` gave. A framework that is not imported here is left alone."""
    restore_python(random, state["python"])
    np.random.set_state(state["numpy"])
    _restore_keras(state["keras"])
    restore_frameworks(state)


def restore_frameworks(state: dict[str, Any]) -> None:
    """Restore only the frameworks' generators, from which training itself draws: PyTorch's dropout has no other."""
    if "torch" in state and _is_imported("torch"):
        _restore_torch(state["torch"])
    if "tensorflow" in state and _is_imported("tensorflow"):
        _restore_tensorflow(state["tensorflow"])


def python_state(generator: Any) -> dict[str, Any]:
    """Capture the state of the `random` module or of a `random.Random`."""
    version, words, gauss = generator.getstate()
    return {"version": version, "words": np.array(words, "uint32"), "gauss": gauss}


def restore_python(generator: Any, state: dict[str, Any]) -> None:
    """Restore the state of the `random` module or of a `random.Random`."""
    generator.setstate((int(state["version"]), tuple(int(word) for word in state["words"]), state["gauss"]))


def keras_seed(generator: Any) -> Any:
    """The state of a `keras.random.SeedGenerator`."""
    import keras

    return np.array(keras.ops.convert_to_numpy(generator.state.value))


def _keras() -> dict[str, Any]:
    generator = _keras_globals().get_global_attribute("global_seed_generator") if "keras" in sys.modules else None
    return {"seed": None if generator is None else keras_seed(generator)}


def _restore_keras(state: dict[str, Any]) -> None:
    if "keras" not in sys.modules:
        return
    known = _keras_globals()
    if state["seed"] is None:  # it is made when first needed, from Python's random numbers
        known.set_global_attribute("global_seed_generator", None)
        return
    generator = known.get_global_attribute("global_seed_generator")
    if generator is None:
        import keras

        generator = keras.random.SeedGenerator(seed=0)
        known.set_global_attribute("global_seed_generator", generator)
    generator.state.assign(state["seed"])


def _keras_globals() -> Any:
    from keras.src.backend.common import global_state  # no public name reaches the generator of unseeded operations

    return global_state


def _torch() -> dict[str, Any]:
    import torch

    state: dict[str, Any] = {"cpu": torch.get_rng_state().numpy()}
    if torch.cuda.is_initialized():
        state["cuda"] = {str(number): device.numpy() for number, device in enumerate(torch.cuda.get_rng_state_all())}
    return state


def _restore_torch(state: dict[str, Any]) -> None:
    import torch

    torch.set_rng_state(torch.from_numpy(np.array(state["cpu"])))
    for number, device in state.get("cuda", {}).items():
        if int(number) < torch.cuda.device_count():
            torch.cuda.set_rng_state(torch.from_numpy(np.array(device)), int(number))


def _tensorflow() -> dict[str, Any]:
    """The seed that `tf.random.set_seed` set, the numbers drawn from it, and the global generator."""
    context, generators = _tensorflow_modules()
    numbers = getattr(context, "_rng", None)
    made = generators.global_generator
    return {
        "seed": context._seed,
        "numbers": None if numbers is None else python_state(numbers),
        "generator": None if made is None else made.state.numpy(),
    }


def _restore_tensorflow(state: dict[str, Any]) -> None:
    import tensorflow as tf

    context, generators = _tensorflow_modules()
    if state["numbers"] is not None:
        tf.random.set_seed(state["seed"])
        restore_python(context._rng, state["numbers"])
    if state["generator"] is not None:
        tf.random.get_global_generator().state.assign(state["generator"])
    elif generators.global_generator is not None:
        generators.global_generator = None


def _tensorflow_modules() -> tuple[Any, Any]:
    # No public name tells whether a global generator was made, nor how many seeds were drawn.
    from tensorflow.python.eager import context
    from tensorflow.python.ops import stateful_random_ops

    return context.context(), stateful_random_ops
