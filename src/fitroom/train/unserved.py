"""What fitroom does not serve, and leaves to Keras's own methods. docs/training.md lists the same."""

from typing import Any

_OWN_LOOPS = {
    "fit": ("make_train_function", "train_function"),
    "train_on_batch": ("make_train_function", "train_function"),
    "evaluate": ("make_test_function", "test_function"),
    "test_on_batch": ("make_test_function", "test_function"),
    "predict": ("make_predict_function", "predict_function"),
}
"""What a model may bring to run its batches itself, by the method that would use it."""


def why_left_to_keras(model: Any, method: str, arguments: dict[str, Any]) -> str | None:
    """Why a call of `model.fit` or its like cannot be served, or None where it can."""
    import keras

    backend = keras.backend.backend()
    distribution = keras.distribution.distribution()
    if distribution is not None:
        return f"`keras.distribution` spreads training over devices ({type(distribution).__name__})"
    if backend == "tensorflow":
        strategy = model.distribute_strategy
        if strategy.num_replicas_in_sync > 1:
            return f"{type(strategy).__name__} spreads the model over {strategy.num_replicas_in_sync} devices"
        if any("Distributed" in kind.__name__ for kind in type(arguments.get("x")).__mro__):
            return "the dataset is a distributed one"
    if getattr(keras.config, "is_nnx_enabled", bool)():
        return "Flax NNX holds the variables of Keras"
    if any("DataAdapter" in kind.__name__ for kind in type(arguments.get("x")).__mro__):
        return "the data are an adapter of Keras's own"
    for name in _OWN_LOOPS[method]:
        own = getattr(type(model), name, None)
        if own is not None and not str(getattr(own, "__module__", "keras.")).startswith("keras."):
            return f"the model brings its own `{name}`"
    return None
