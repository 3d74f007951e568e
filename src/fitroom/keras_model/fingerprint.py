"""A model's fingerprint: enough to refuse the run folder of another model, and to say how it differs.

One line of text for each layer and each variable, so that a difference can be read. Values of weights do not count, and
neither do the numbers that Keras gives to names: in a notebook `dense_1` is `dense_4` the next time.
"""

import hashlib
import json
import platform
import re
import sys
from collections.abc import Mapping
from typing import Any

from fitroom.keras_model.private import all_layers
from fitroom.version import __version__

_COUNTER = re.compile(r"_\d+(?=_|/|$)")
_LONGEST = 100

# A seed may be drawn anew by every process, and initial values matter no more.
_LEFT_OUT = re.compile(r"name|seed|dtype|trainable|.*initializer|build_config|registered_name|module")


def model_fingerprint(model: Any) -> dict[str, Any]:
    """A compiled and built model as JSON. Its learning rate is apart: callbacks change it (`given_learning_rate`)."""
    found: dict[str, Any] = {
        "layers": layer_lines(model),
        "variables": variable_lines(model),
        "optimizer": _optimizer(model.optimizer),
        "loss": _loss(getattr(model, "loss", None)),
        "loss_weights": _plain(getattr(model, "loss_weights", None)),
        "metrics": [describe_variable(variable) for variable in model.metrics_variables],
    }
    found["digest"] = hashlib.sha256(json.dumps(found).encode()).hexdigest()
    return found


def layer_lines(model: Any, *, with_precision: bool = True) -> list[str]:
    """Its layers, those within layers too, each in one line: "Dense dense units=10 activation=relu"."""
    return [_layer(layer, with_precision=with_precision) for layer in all_layers(model)]


def variable_lines(model: Any) -> list[str]:
    """Its variables, each in one line: "dense/kernel float32 (784, 10)"."""
    return [describe_variable(variable) for variable in model.variables]


def layers_digest(model: Any) -> str:
    """A digest of the layers and variables of a built model. Its precision, values and `compile` do not count."""
    lines = [*layer_lines(model, with_precision=False), *variable_lines(model)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def given_learning_rate(model: Any) -> float | None:
    """The learning rate where it is a plain number, not a schedule."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    try:
        rate = optimizer.get_config()["learning_rate"]
    except (AttributeError, KeyError, NotImplementedError):
        return None
    return float(rate) if isinstance(rate, int | float) else None


def current_versions() -> dict[str, str]:
    """The versions that a result may depend on."""
    import keras

    backend = keras.backend.backend()
    modules = {"keras": keras, backend: sys.modules.get(backend), "numpy": sys.modules["numpy"]}
    versions = {name: str(getattr(module, "__version__", "unknown")) for name, module in modules.items()}
    return {"python": platform.python_version(), "fitroom": __version__} | versions


def stable_path(path: str) -> str:
    """A variable's path without Keras's own counting.

    >>> stable_path("sequential_2/dense_14/kernel"), stable_path("adam/conv2d_1_kernel_momentum")
    ('sequential/dense/kernel', 'adam/conv2d_kernel_momentum')
    """
    return _COUNTER.sub("", path)


def describe_variable(variable: Any) -> str:
    """A variable in one line: "dense/kernel float32 (784, 10)"."""
    frozen = "" if variable.trainable else " not trainable"
    return f"{stable_path(variable.path)} {variable.dtype} {tuple(variable.shape)}{frozen}"


def _layer(layer: Any, *, with_precision: bool) -> str:
    import keras

    words = [type(layer).__name__, stable_path(layer.name)]
    if not isinstance(layer, keras.Model):  # whose layers stand for themselves
        words += [f"{name}={value}" for name, value in _config(layer).items()]
    if with_precision and layer.dtype_policy.name != "float32":
        words.append(f"in {layer.dtype_policy.name}")
    if not layer.trainable:
        words.append("not trainable")
    return " ".join(words)


def _optimizer(optimizer: Any) -> dict[str, Any] | None:
    if optimizer is None:
        return None
    return {"class": type(optimizer).__name__} | _config(optimizer)


def _loss(loss: Any) -> Any:
    if isinstance(loss, Mapping):
        return {str(name): _loss(one) for name, one in loss.items()}
    if isinstance(loss, list | tuple):
        return [_loss(one) for one in loss]
    if loss is None or isinstance(loss, str):
        return loss
    if hasattr(loss, "get_config"):
        return " ".join([type(loss).__name__, *(f"{name}={value}" for name, value in _config(loss).items())])
    return str(getattr(loss, "__name__", type(loss).__name__))


def _config(thing: Any) -> dict[str, Any]:
    """What an object was made with, as far as it tells and where it was said."""
    try:
        config = thing.get_config()
    except Exception:  # a user's own class, which need not have one
        return {}
    return {str(name): _plain(value) for name, value in config.items() if _counts(str(name), value)}


def _plain(value: Any) -> Any:
    """Numbers and short names as they are, Keras objects by class and configuration, the rest by type."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else hashlib.sha256(value.encode()).hexdigest()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        inner = {str(name): _plain(one) for name, one in value.items() if _counts(str(name), one)}
        if "class_name" in inner and isinstance(inner.get("config"), dict):
            return {"class": inner["class_name"]} | inner["config"]
        return inner
    return type(value).__name__


def _counts(name: str, value: Any) -> bool:
    is_rate = name == "learning_rate" and isinstance(value, int | float)
    return value is not None and not is_rate and not _LEFT_OUT.fullmatch(name)
