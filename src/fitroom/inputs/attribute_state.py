"""The state that a dataset keeps in its own attributes, so that a resumed run gets the same batches.

Three kinds are known: random generators, orders (each of the numbers 0 to n-1 once), and plain values that changed
since training began, such as a count of epochs. Data themselves are not captured: the user's script makes them again.
"""

import random
from typing import Any

import numpy as np

from fitroom.inputs import randomness

_PLAIN = (bool, int, float, str, type(None))


def plain_values(holder: Any) -> dict[str, Any]:
    """The attributes that are numbers, texts or None."""
    attributes = _attributes(holder).items()
    found = {name: value.item() if isinstance(value, np.number) else value for name, value in attributes}
    return {name: value for name, value in found.items() if type(value) in _PLAIN}


def changes(holder: Any, before: dict[str, Any]) -> dict[str, Any]:
    """The plain attributes that differ from `before`, and the states of random generators."""
    nothing = object()
    now = plain_values(holder)
    changed = {name: value for name, value in now.items() if before.get(name, nothing) != value or name not in before}
    states = {name: _generator_state(value) for name, value in _attributes(holder).items()}
    return {"plain": changed, "generators": {name: state for name, state in states.items() if state is not None}}


def orders(holder: Any) -> dict[str, Any]:
    """The attributes that are an order of samples, as arrays."""
    return {name: np.array(value) for name, value in _attributes(holder).items() if _is_order(value)}


def restore(holder: Any, saved: dict[str, Any], saved_orders: dict[str, Any] | None = None) -> None:
    """Set the attributes to saved values; generators that the user's class no longer has are left out."""
    attributes = _attributes(holder)
    attributes.update(saved["plain"])
    for name, state in saved["generators"].items():
        if name in attributes:
            _restore_generator(attributes[name], state)
    for name, order in (saved_orders or {}).items():
        attributes[name] = order.tolist() if isinstance(attributes.get(name), list) else np.array(order)


def _attributes(holder: Any) -> dict[str, Any]:
    return getattr(holder, "__dict__", {})


def _is_order(value: Any) -> bool:
    if isinstance(value, list):
        if not value or type(value[0]) is not int:
            return False
        if not all(type(number) is int for number in value):
            return False
        value = np.array(value)
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "iu" or not value.size:
        return False
    if value.min() != 0 or value.max() != value.size - 1:
        return False
    return bool((np.bincount(value.astype("int64"), minlength=value.size) == 1).all())


def _generator_state(value: Any) -> Any:
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    if isinstance(value, random.Random):
        return randomness.python_state(value)
    name, module = type(value).__name__, type(value).__module__
    if name == "Generator" and module.startswith("torch"):
        return {"torch": value.get_state().cpu().numpy()}
    if name == "SeedGenerator" and module.startswith("keras"):
        return {"keras": randomness.keras_seed(value)}
    return None


def _restore_generator(value: Any, state: Any) -> None:
    if isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    elif isinstance(value, np.random.RandomState):
        value.set_state(state)
    elif isinstance(value, random.Random):
        randomness.restore_python(value, state)
    elif "torch" in state:
        import torch

        value.set_state(torch.from_numpy(np.array(state["torch"])))
    elif "keras" in state:
        value.state.assign(state["keras"])
