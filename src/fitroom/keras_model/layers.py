"""The layers of a Keras model: which there are, what they own, which precision they follow."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from fitroom.keras_model.private import all_layers


def layer_paths(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every layer of the model with its path, nested models opened: ("inner/conv", <Conv2D>), ..."""
    for layer in model.layers:
        path = prefix + layer.name
        if getattr(layer, "layers", None):
            yield from layer_paths(layer, path + "/")
        else:
            yield path, layer


def models_within(model: Any) -> Iterator[Any]:
    """The models nested in the model, at any depth."""
    for layer in model.layers:
        if getattr(layer, "layers", None):
            yield layer
            yield from models_within(layer)


def owners_of_variables(model: Any) -> dict[int, str]:
    """The path of the layer that owns each variable, by the variable's id.

    A layer may hold others that no public list shows; their names stand in the variable's own path.
    """
    owners: dict[int, str] = {}
    for path, layer in layer_paths(model):
        for variable in layer.variables:
            below = variable.path.split("/")[:-1]
            below = below[below.index(layer.name) + 1 :] if layer.name in below else []
            owners.setdefault(id(variable), "/".join([path, *below]))
    return owners


def owners_of_slots(model: Any, owners: dict[int, str]) -> dict[int, str]:
    """The path of the layer that each optimizer variable serves: its name starts with that of the weight it is for."""
    weights = {v.path.replace("/", "_"): owners.get(id(v)) for v in model.trainable_variables}
    found = {}
    for slot in model.optimizer.variables:
        for name in _prefixes(slot.path.rpartition("/")[2]):
            if layer := weights.get(name):
                found[id(slot)] = layer
                break
    return found


def _prefixes(name: str) -> Iterator[str]:
    """`a_b_c`, `a_b`, `a`: longest first."""
    while name:
        yield name
        name = name.rpartition("_")[0]


def layer_names(model: Any) -> frozenset[str]:
    """The names that can stand in the path of an operation: of layers, nested models, and owners of weights."""
    names = {part for path, _ in layer_paths(model) for part in path.split("/")}
    names.update(part for owner in owners_of_variables(model).values() for part in owner.split("/"))
    return frozenset(names)


def precision_of(model: Any) -> str:
    """The dtype policy that most layers with weights follow."""
    policies = Counter(layer.dtype_policy.name for _, layer in layer_paths(model) if layer.weights)
    return str(policies.most_common(1)[0][0] if policies else model.dtype_policy.name)


def cudnn_loops_note(model: Any) -> tuple[str, ...]:
    """A sentence for models whose recurrent layers may run as cuDNN kernels, which cannot be traced without a card."""
    paths = [path for path, layer in layer_paths(model) if getattr(layer, "use_cudnn", False)]
    if not paths:
        return ()
    return (
        f"On the card {', '.join(paths)} may run as one cuDNN kernel, which cannot be traced without one: this is for "
        "Keras's own loop, as with `use_cudnn=False`.",
    )


def can_be_jitted(model: Any) -> bool:
    """Whether XLA can compile a step of it, as far as its layers say."""
    return all(layer.supports_jit for layer in all_layers(model))
