"""The channels of a whole model: every call of a layer, in order, nested models opened."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fitroom.errors import ModelError
from fitroom.lean.calls import Call
from fitroom.lean.channels import Channels, Layout
from fitroom.lean.rules import apply_rule
from fitroom.remat.graph import functional_of, nodes_of

OUTPUT = "the model's outputs"


@dataclass
class Network:
    """A model with its channels."""

    model: Any
    channels: Channels = field(default_factory=Channels)
    entries: dict[int, tuple[Layout, ...]] = field(default_factory=dict)
    """The layouts of the inputs of each nested model, by its id."""


def read_network(model: Any) -> Network:
    """Follow the channels through a Functional or Sequential model."""
    check_model(model)
    network = Network(model=model)
    functional = functional_of(model)
    inputs = [(None,) * len(tensor.shape) for tensor in functional.inputs]
    outputs = _walk(network, functional, inputs)
    network.channels.pin_all(outputs, OUTPUT)
    return network


def check_model(model: Any) -> None:
    """Raise ModelError if the model is not a built Functional or Sequential model."""
    import keras

    if not isinstance(model, keras.Model):
        raise ModelError(
            f"`model` must be a Keras model. Received: {type(model).__name__}.",
            hint="give a Functional or Sequential keras.Model",
        )
    if not model.built:
        raise ModelError(
            f"The model {model.name!r} is not built: its layers have no weights yet.",
            hint="begin it with keras.Input(shape), or call it once on a batch",
        )
    for each in (model, *_nested(model)):
        if functional_of(each) is None:
            raise ModelError(
                f"The model {each.name!r} is a {type(each).__name__} with a `call` of its own, which cannot be read.",
                hint="build it as a Functional or Sequential model: keras.Model(inputs, outputs)",
            )


def _check_not_quantized(layer: Any) -> None:
    if getattr(layer, "quantization_mode", None):
        raise ModelError(
            f"The layer {layer.name} is quantized ({layer.quantization_mode}): its scales do not follow the channels.",
            hint="prune first, quantize after",
        )


def _nested(model: Any) -> list[Any]:
    import keras

    found = [layer for layer in getattr(model, "layers", ()) if isinstance(layer, keras.Model)]
    return [*found, *(inner for each in found for inner in _nested(each))]


def _walk(network: Network, functional: Any, inputs: Sequence[Layout]) -> list[Layout]:
    """The layouts of what a model returns, given those of its inputs."""
    layouts = {id(tensor): layout for tensor, layout in zip(functional.inputs, inputs, strict=True)}
    for node in nodes_of(functional):
        given = tuple(layouts[id(tensor)] for tensor in node.input_tensors)
        inner = functional_of(node.operation)
        if inner is None:
            _check_not_quantized(node.operation)
            call = Call(
                layer=node.operation,
                arguments=node.arguments,
                layouts=given,
                shapes=tuple(tuple(tensor.shape) for tensor in node.input_tensors),
                outputs=tuple(tuple(tensor.shape) for tensor in node.outputs),
            )
            made: Sequence[Layout] = apply_rule(network.channels, call)
        else:
            made = _walk(network, inner, _enter(network, node.operation, given))
        layouts.update((id(tensor), layout) for tensor, layout in zip(node.outputs, made, strict=True))
    return [layouts[id(tensor)] for tensor in functional.outputs]


def _enter(network: Network, model: Any, given: tuple[Layout, ...]) -> tuple[Layout, ...]:
    """The layouts with which a nested model is entered; all its calls must agree."""
    if id(model) not in network.entries:
        network.entries[id(model)] = given
        return given
    reason = f"{model.name} is called with other channels as well"
    for before, now in zip(network.entries[id(model)], given, strict=True):
        for first, second in zip(before, now, strict=True):
            if first is not None or second is not None:
                network.channels.join(first, second, reason)
    return given
