"""Rounds of a loop that leak, by kind, and rounds that do not. Each leaks the bytes that it is asked for."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

KEPT: list[Any] = []
"""Where most of them keep things."""

augment: Any = None
"""A layer that `layers_from_outside` shares between its rounds."""


def array(size_bytes: int) -> Any:
    """An array of the framework's."""
    return keras.ops.ones((size_bytes // 4,), "float32") * 2


def net(size_bytes: int) -> Any:
    """A compiled model whose weights take about that much; it is not trained, which would take long."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(size_bytes // 16, use_bias=False)])
    model.compile("sgd", "mse")
    return model


def arrays_in_a_list(size_bytes: int) -> Callable[[], None]:
    """Arrays of the framework's, kept."""
    return lambda: KEPT.append(array(size_bytes))


def numpy_arrays(size_bytes: int) -> Callable[[], None]:
    """NumPy arrays, kept."""
    return lambda: KEPT.append(np.ones(size_bytes // 8))


def models_in_a_list(size_bytes: int) -> Callable[[], None]:
    """Models, kept."""
    return lambda: KEPT.append(net(size_bytes))


def histories(size_bytes: int) -> Callable[[], None]:
    """What `fit` returns, which holds the model."""

    def one_round() -> None:
        history = keras.callbacks.History()
        history.set_model(net(size_bytes))
        KEPT.append(history)

    return one_round


def callbacks(size_bytes: int) -> Callable[[], None]:
    """Callbacks, which hold the model."""

    def one_round() -> None:
        callback = keras.callbacks.EarlyStopping()
        callback.set_model(net(size_bytes))
        KEPT.append(callback)

    return one_round


def optimizers(size_bytes: int) -> Callable[[], None]:
    """An optimizer a round, kept."""
    variable = keras.Variable(np.zeros(size_bytes // 8, "float32"))  # Adam keeps two slots for it

    def one_round() -> None:
        optimizer = keras.optimizers.Adam()
        optimizer.build([variable])
        KEPT.append(optimizer)

    return one_round


def errors(size_bytes: int) -> Callable[[], None]:
    """Errors, whose tracebacks hold the variables of what failed."""

    def fail() -> None:
        held = array(size_bytes)
        raise ValueError(f"an array of {held.shape} was not wanted")

    def one_round() -> None:
        try:
            fail()
        except ValueError as error:
            KEPT.append(error)

    return one_round


def notebook_outputs(size_bytes: int) -> Callable[[], None]:
    """What cells end with, as IPython keeps it."""
    outputs = vars(sys.modules["__main__"]).setdefault("Out", {})
    return lambda: outputs.__setitem__(len(outputs), array(size_bytes))


def unbounded_cache(size_bytes: int) -> Callable[[int], Any]:
    """A cache without a bound."""

    @functools.cache
    def features(number: int) -> Any:
        return array(size_bytes) + number

    KEPT.append(features)
    return lambda number: features(number)


def registered_objects(size_bytes: int) -> Callable[[int], None]:
    """A loss registered with Keras in each round."""

    def one_round(number: int) -> None:
        held = array(size_bytes)
        keras.saving.get_custom_objects()[f"loss_{number}"] = lambda y_true, y_pred: held

    return one_round


def closures(size_bytes: int) -> Callable[[], None]:
    """Functions that hold what they use."""

    def one_round() -> None:
        held = array(size_bytes)
        KEPT.append(lambda: held)

    return one_round


def layers_from_outside(size_bytes: int) -> Callable[[], None]:
    """Models on a layer that all of them share: it keeps a node for each, and by it the model."""
    global augment
    augment = keras.layers.Rescaling(2.0)

    def one_round() -> None:
        inputs = keras.Input((4,))
        keras.Model(inputs, keras.layers.Dense(size_bytes // 16, use_bias=False)(augment(inputs)))

    return one_round


def small_objects(size_bytes: int) -> Callable[[], None]:
    """Many small objects of Python."""
    return lambda: KEPT.append([{"step": step} for step in range(size_bytes // 240)])


def losses_with_graphs(size_bytes: int) -> Callable[[], None]:
    """On PyTorch: each loss, one number, holds what its backward pass would need."""
    import torch

    weight = torch.ones(size_bytes // 4, requires_grad=True)
    return lambda: KEPT.append((weight * torch.rand(size_bytes // 4)).exp().sum())


def retraces(size_bytes: int) -> Callable[[int], None]:
    """On JAX and TensorFlow: a function that is compiled anew for each Python number, with a constant in it."""
    name = keras.backend.backend()
    constant = np.random.default_rng(0).normal(size=size_bytes // 4).astype("float32")
    if name == "jax":
        import jax

        scale = jax.jit(lambda x, number: (x * constant).sum() * number, static_argnums=1)
    else:
        import tensorflow as tf

        scale = tf.function(lambda x, number: tf.reduce_sum(x * constant) * number)
    KEPT.append(scale)
    return lambda number: scale(keras.ops.ones(()), float(number))


PLANTED: dict[str, tuple[Callable[[int], Callable[..., Any]], tuple[str, ...]]] = {
    "arrays in a list": (arrays_in_a_list, ("array",)),
    "NumPy arrays": (numpy_arrays, ("array", "host")),
    "models": (models_in_a_list, ("model",)),
    "histories": (histories, ("history",)),
    "callbacks": (callbacks, ("callback",)),
    "optimizers": (optimizers, ("optimizer",)),
    "errors": (errors, ("traceback",)),
    "notebook outputs": (notebook_outputs, ("notebook",)),
    "unbounded cache": (unbounded_cache, ("cache",)),
    "registered objects": (registered_objects, ("keras",)),
    "closures": (closures, ("closure",)),
    "small objects": (small_objects, ("objects", "host")),
    "layers from outside": (layers_from_outside, ("layer",)),
}
"""By name, what plants it and the kinds by which it may be named."""

OF_BACKENDS = {
    "losses with graphs": (losses_with_graphs, ("loss",), ("torch",)),
    "retraces": (retraces, ("retrace",), ("jax", "tensorflow")),
}


def clean_rounds() -> dict[str, Callable[..., Any]]:
    """Rounds that do not leak, though some of them look like it at first."""
    scores: list[float] = []
    seen: dict[int, Any] = {}
    ring: list[Any] = [None] * 3
    best: dict[str, Any] = {}
    weight = keras.Variable(np.ones(1000, "float32"))

    def warm_up(number: int) -> None:
        if number < 3:
            seen[number] = array(2**20)

    def floats(number: int) -> None:
        scores.extend(float(number) for _ in range(20))

    def replace(number: int) -> None:
        ring[number % 3] = array(2**18)

    def keep_best(number: int) -> None:
        if number in (0, 4):
            best["array"] = array(2**18)

    def cycle() -> None:
        first: dict[str, Any] = {"array": array(2**18)}
        first["itself"] = first

    return {
        "nothing": lambda: None,
        "arrays that go": lambda: array(2**20),
        "NumPy arrays that go": lambda: np.ones(2**17),
        "a cycle": cycle,
        "warm-up": warm_up,
        "a list of floats": floats,
        "replaced": replace,
        "the best": keep_best,
        "an update in place": lambda: weight.assign(weight + 1),
        "a model that goes": lambda: net(2**16),
    }
