"""Pruning of whole channels: the model becomes smaller, for training and for prediction."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitroom.errors import InputError, ModelError, UnknownNameError
from fitroom.lean.changes_made import Changes, remember_changes
from fitroom.lean.channels import Axis, Channels
from fitroom.lean.importance import score_channels, weights_times_gradients
from fitroom.lean.network import OUTPUT, Network, read_network
from fitroom.lean.rebuilding import Rebuilt, copy_layer
from fitroom.lean.selection import Selection, select_channels


def remove_channels(model: Any, sparsity: float, *, by_gradient: bool, data: Any, keep: Iterable[str]) -> Any:
    """The model without the least important channels of each group of layers, compiled as before."""
    network = read_network(model)
    channels = network.channels
    _pin_layers(channels, (keep,) if isinstance(keep, str) else tuple(keep))
    values = weights_times_gradients(model, data) if by_gradient else None
    selection = select_channels(channels, score_channels(channels, values), sparsity)
    if sparsity and not selection.removed:
        raise _make_nothing_error(model, selection, sparsity)
    return build_pruned(network, selection)


@dataclass(frozen=True)
class Sizes:
    """How large a model is at a sparsity, without building it."""

    network: Network
    scores: dict[int, float]

    @classmethod
    def of(cls, model: Any) -> "Sizes":
        """The sizes of a model pruned by magnitude."""
        network = read_network(model)
        return cls(network, score_channels(network.channels))

    def parameters(self, sparsity: float) -> int:
        """The number of parameters that are left at a sparsity."""
        channels = self.network.channels
        selection = select_channels(channels, self.scores, sparsity)
        total = sum(int(np.prod(weight.shape)) for weight in self.network.model.weights)
        kept = _kept_axes(channels, selection)
        for layer, axes in kept.values():
            for number, weight in enumerate(layer.weights):
                shape = [
                    len(axes[number, axis]) if (number, axis) in axes else size
                    for axis, size in enumerate(weight.shape)
                ]
                if _is_grouped(layer, number):
                    shape[-2] //= layer.groups
                total += int(np.prod(shape)) - int(np.prod(weight.shape))
        return total


def build_pruned(network: Network, selection: Selection, *, values: bool = True) -> Any:
    """The model that is left of a network; without `values`, for estimates, its weights have none."""
    channels = network.channels

    def count(along: Axis) -> int:
        return len(selection.kept_places(channels, along))

    def new_shape(shape: Sequence[int | None], layout: Sequence[Axis]) -> tuple[int | None, ...]:
        return tuple(size if axis is None else count(axis) for size, axis in zip(shape, layout, strict=True))

    configs: dict[int, dict[str, Any]] = {}
    for (key, entry), (_, along) in channels.sizes.items():
        # Where nothing is removed, too: an attention without `output_shape` would take the size of its query.
        configs.setdefault(key, {})[entry] = count(along)
    for key, (_, entry, left_out, layout, shape) in channels.shapes.items():
        if any(axis is not None and count(axis) < len(axis) for axis in layout):
            fixed = [-1 if size is None else size for size in new_shape(shape, layout)]
            configs[key] = {entry: tuple(fixed[left_out:])}

    def entry_shapes(model: Any) -> list[tuple[int | None, ...]] | None:
        layouts = network.entries.get(id(model))
        if layouts is None:
            return None
        return [new_shape(tensor.shape, layout) for tensor, layout in zip(model.inputs, layouts, strict=True)]

    def make_layer(layer: Any) -> Any:
        copy = copy_layer(layer, **configs.get(id(layer), {}))
        _forget_arrays(copy)
        return copy

    rebuilt = Rebuilt(network.model, make_layer, entry_shapes, values=values)
    if values:
        kept = _kept_axes(channels, selection)
        rebuilt.copy_weights({key: _cut_weights(layer, axes) for key, (layer, axes) in kept.items()})
    rebuilt.compile_as_before()
    remember_changes(rebuilt.model, Changes(groups=selection.groups))
    return rebuilt.model


def _forget_arrays(layer: Any) -> None:
    """Give a layer no initial values of the old shape, as from Constant(array); it gets its weights by themselves."""
    import keras

    for name in ("kernel_initializer", "embeddings_initializer", "depthwise_initializer", "pointwise_initializer"):
        initial = getattr(layer, name, None)
        if isinstance(initial, keras.initializers.Constant) and np.ndim(initial.value):
            setattr(layer, name, keras.initializers.Zeros())


Axes = dict[tuple[int, int], Any]
"""The places that stay along axes of a layer's weights, by the number of the weight and the axis."""


def _kept_axes(channels: Channels, selection: Selection) -> dict[int, tuple[Any, Axes]]:
    found: dict[int, tuple[Any, Axes]] = {}
    for place in channels.places.values():
        if place.channels is not None:
            axes = found.setdefault(id(place.layer), (place.layer, {}))[1]
            axes[place.weight, place.axis] = selection.kept_places(channels, place.channels)
    return found


def _cut_weights(layer: Any, axes: Axes) -> list[Any]:
    weights: list[Any] = layer.get_weights()
    for (number, axis), kept in axes.items():
        if _is_grouped(layer, number) and axis == weights[number].ndim - 2:
            continue
        weights[number] = np.take(weights[number], kept, axis=axis)
    if _is_grouped(layer, 0):
        weights[0] = _cut_groups(weights[0], axes.get((0, weights[0].ndim - 2)), layer.groups)
    return weights


def _is_grouped(layer: Any, number: int) -> bool:
    """Whether this is the kernel of a convolution in groups of several channels: each group has its own inputs."""
    return number == 0 and getattr(layer, "groups", 1) > 1 and hasattr(layer, "filters") and layer.kernel.shape[-2] > 1


def _cut_groups(kernel: Any, kept: Any, groups: int) -> Any:
    """The kernel, whose outputs are cut already, with the inputs that stay in each group."""
    if kept is None:
        return kernel
    parts = np.split(kernel, groups, axis=-1)
    inputs = np.split(kept, groups)
    size = kernel.shape[-2]
    return np.concatenate([np.take(part, here % size, axis=-2) for part, here in zip(parts, inputs, strict=True)], -1)


def _pin_layers(channels: Channels, names: Sequence[str]) -> None:
    """Keep the channels that these layers make."""
    by_name = {name: channels.made[maker] for maker, name in channels.makers.items()}
    for name in names:
        if name not in by_name:
            raise UnknownNameError("layer in `keep`", name, by_name, more="give layers that make channels")
        channels.pin(by_name[name], f"{name} was to be kept")


def _make_nothing_error(model: Any, selection: Selection, sparsity: float) -> ModelError | InputError:
    reasons = dict.fromkeys(group.reason for group in selection.groups if group.reason)
    others = [reason for reason in reasons if reason != OUTPUT]
    if all(group.pinned == group.channels for group in selection.groups):
        why = "; ".join(others[:3]) or "all its layers lead straight to its outputs"
        return ModelError(
            f"No channel of the model {model.name!r} can be removed: {why}.",
            hint="structured=False sets single weights to zero instead",
        )
    largest = max(group.channels for group in selection.groups)
    return InputError(
        f"A sparsity of {sparsity} removes no channel: the widest layer has {largest}.", hint="give a larger sparsity"
    )
