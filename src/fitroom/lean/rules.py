"""What each kind of layer does with channels: which it takes, which it makes, and where they lie in its weights.

A rule is chosen by the exact name of a class of Keras's own. What has no rule, a layer of the user's own above all,
keeps the channels that go in, and what comes out of it is not pruned.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fitroom.lean.channels import Axis, Blocks, Channels, Layout
from fitroom.lean.reshaping import reshape_layout

Shape = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a layer or operation, with the layouts of its input tensors."""

    layer: Any
    arguments: Any
    """Positional and keyword arguments, as Keras keeps them in a node."""

    layouts: tuple[Layout, ...]
    shapes: tuple[Shape, ...]
    outputs: tuple[Shape, ...]

    @property
    def name(self) -> str:
        """The name of the layer."""
        return str(self.layer.name)

    def channel_axis(self) -> int:
        """The axis of channels, by the layer's `data_format`."""
        first = getattr(self.layer, "data_format", None) == "channels_first"
        return 1 if first else len(self.shapes[0]) - 1

    def has_constants(self) -> bool:
        """Whether an array is among the arguments, which would have to be cut with the channels."""
        import keras

        given = keras.tree.flatten((self.arguments.args, self.arguments.kwargs))
        return any(
            math.prod(getattr(each, "shape", ())) > 1 for each in given if not isinstance(each, keras.KerasTensor)
        )


Rule = Callable[[Channels, Call], tuple[Layout, ...]]


def apply_rule(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """The layouts of what a call returns."""
    kind = type(call.layer)
    rule = RULES.get(kind.__name__) if kind.__module__.startswith("keras.") else None
    if rule is None or call.has_constants():
        rule = _keep
    return rule(channels, call)


def _whole(shape: Shape) -> Layout:
    return (None,) * len(shape)


def _keep(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """Keep what goes in and what comes out."""
    channels.pin_all(call.layouts, f"{call.name} ({type(call.layer).__name__}) takes all channels")
    return tuple(_whole(shape) for shape in call.outputs)


def _pin_others(channels: Channels, call: Call, own: int, *, does: str) -> None:
    """Keep channels that lie along other axes than the layer's own of channels, as after a Permute."""
    for layout in call.layouts:
        for axis, channels_here in enumerate(layout):
            if axis != own % len(layout):
                channels.pin(channels_here, f"{call.name} {does} an axis of channels")


def _same(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """Each axis stays where it is: activations, dropout, pooling, padding. An axis that changes its size is whole."""
    found = []
    for axis, channels_here in enumerate(call.layouts[0]):
        stays = call.shapes[0][axis] == call.outputs[0][axis]
        if not stays:
            channels.pin(channels_here, f"{call.name} changes the size of the axis of channels")
        found.append(channels_here if stays else None)
    return (tuple(found),)


def _windows(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """Pooling, padding, resizing: neighbours along all axes but that of channels."""
    _pin_others(channels, call, call.channel_axis(), does="takes windows along")
    return _same(channels, call)


def _activation(channels: Channels, call: Call) -> tuple[Layout, ...]:
    if type(call.layer).__name__ == "Softmax" or not _is_by_element(call.layer.activation):
        return _keep(channels, call)
    return _same(channels, call)


def _rescaling(channels: Channels, call: Call) -> tuple[Layout, ...]:
    by_channel = any(isinstance(each, (list, tuple)) for each in (call.layer.scale, call.layer.offset))
    return _keep(channels, call) if by_channel else _same(channels, call)


_OVER_CHANNELS = ("softmax", "log_softmax", "glu", "sparsemax")


def _is_by_element(activation: Any) -> bool:
    """Whether an activation takes each number by itself: those of Keras do, of the user's own nothing is known."""
    if not hasattr(activation, "__name__"):  # a layer as an activation
        return type(activation).__name__ in ("ReLU", "LeakyReLU", "ELU")
    import keras

    name = activation.__name__
    is_of_keras = (activation.__module__ or "").startswith("keras.") and hasattr(keras.activations, name)
    return is_of_keras and name not in _OVER_CHANNELS


def _convolution(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, axis = call.layer, call.channel_axis()
    taken = call.layouts[0][axis]
    _pin_others(channels, call, axis, does="convolves along")
    if layer.groups > 1:
        return _grouped_convolution(channels, call, taken)
    made = channels.make(layer, layer.filters)
    channels.put(layer, layer.kernel, -2, taken)
    channels.put(layer, layer.kernel, -1, made)
    return _made(channels, call, made, "filters", axis)


def _grouped_convolution(channels: Channels, call: Call, taken: Axis) -> tuple[Layout, ...]:
    layer, axis = call.layer, call.channel_axis()
    count = call.shapes[0][axis] or 0
    if layer.groups == count:  # depthwise: each channel by itself
        made: Axis = None if taken is None else np.repeat(taken, layer.filters // count)
        channels.put(layer, layer.kernel, -1, made)
        channels.size(layer, "groups", taken)
        return _made(channels, call, made, "filters", axis)
    reason = f"{call.name} convolves in {layer.groups} groups"
    if taken is None:
        return _keep(channels, call)
    made = channels.make(layer, layer.filters)
    for each in (taken, made):
        channels.blocks.append(Blocks(channels=each, count=layer.groups, reason=reason))
    channels.put(layer, layer.kernel, -2, taken, scores=False)  # an axis that each group indexes by itself
    channels.put(layer, layer.kernel, -1, made)
    return _made(channels, call, made, "filters", axis)


def _transposed_convolution(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, axis = call.layer, call.channel_axis()
    made = channels.make(layer, layer.filters)
    _pin_others(channels, call, axis, does="convolves along")
    channels.put(layer, layer.kernel, -1, call.layouts[0][axis])
    channels.put(layer, layer.kernel, -2, made)
    return _made(channels, call, made, "filters", axis)


def _depthwise_convolution(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, axis = call.layer, call.channel_axis()
    taken = call.layouts[0][axis]
    made: Axis = None if taken is None else np.repeat(taken, layer.depth_multiplier)
    _pin_others(channels, call, axis, does="convolves along")
    channels.put(layer, layer.kernel, -2, taken)
    return _made(channels, call, made, None, axis)


def _separable_convolution(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, axis = call.layer, call.channel_axis()
    taken = call.layouts[0][axis]
    between: Axis = None if taken is None else np.repeat(taken, layer.depth_multiplier)
    made = channels.make(layer, layer.filters)
    _pin_others(channels, call, axis, does="convolves along")
    channels.put(layer, layer.depthwise_kernel, -2, taken)
    channels.put(layer, layer.pointwise_kernel, -2, between)
    channels.put(layer, layer.pointwise_kernel, -1, made)
    return _made(channels, call, made, "filters", axis)


def _dense(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer = call.layer
    made = channels.make(layer, layer.units)
    channels.put(layer, layer.kernel, 0, call.layouts[0][-1])
    channels.put(layer, layer.kernel, 1, made)
    (layout,) = _made(channels, call, made, "units", len(call.outputs[0]) - 1)
    return ((*call.layouts[0][:-1], layout[-1]),)  # the other axes stay where they are, as in an MLP-Mixer


def _made(channels: Channels, call: Call, made: Axis, entry: str | None, axis: int) -> tuple[Layout, ...]:
    """The output of a convolution or Dense layer: bias, size, and an activation that may need all channels."""
    layer = call.layer
    channels.put(layer, layer.bias if layer.use_bias else None, 0, made, scores=False)
    if entry:
        channels.size(layer, entry, made)
    if not _is_by_element(layer.activation):
        named = getattr(layer.activation, "__name__", type(layer.activation).__name__)
        channels.pin(made, f"the activation of {call.name} ({named}) takes all channels")
    layout = [None] * len(call.outputs[0])
    layout[axis] = made
    return (tuple(layout),)


def _embedding(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer = call.layer
    channels.pin_all(call.layouts, f"{call.name} takes numbers of tokens")
    made = channels.make(layer, layer.output_dim)
    channels.put(layer, layer.embeddings, 1, made)
    channels.size(layer, "output_dim", made)
    return ((*_whole(call.outputs[0][:-1]), made),)


def _normalization(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, layout = call.layer, call.layouts[0]
    axes = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    axes = [axis % len(layout) for axis in axes]
    if len(axes) > 1:
        return _keep(channels, call)
    here = layout[axes[0]]
    if type(layer).__name__ == "GroupNormalization":
        _pin_others(channels, call, axes[0], does="normalises along")
    for name, scores in (("gamma", True), ("scale", True), ("beta", False), ("moving_mean", False)):
        weight = getattr(layer, name, None)
        if hasattr(weight, "path"):  # `scale` is a weight of RMSNormalization, and a switch elsewhere
            channels.put(layer, weight, 0, here, scores=scores)
    channels.put(layer, getattr(layer, "moving_variance", None), 0, here, scores=False)
    if type(layer).__name__ == "GroupNormalization" and here is not None and layer.groups != 1:
        if layer.groups == len(here):
            channels.size(layer, "groups", here)
        else:
            reason = f"{call.name} normalises in {layer.groups} groups"
            channels.blocks.append(Blocks(channels=here, count=layer.groups, reason=reason))
    return (layout,)


def _scale(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """The scale by channel in keras.applications' ConvNeXt."""
    channels.put(call.layer, call.layer.gamma, 0, call.layouts[0][-1])
    channels.size(call.layer, "projection_dim", call.layouts[0][-1])
    return call.layouts


def _parametric_relu(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, layout = call.layer, call.layouts[0]
    for axis in range(1, len(layout)):
        if layer.alpha.shape[axis - 1] != 1:
            channels.put(layer, layer.alpha, axis - 1, layout[axis], scores=False)
    return (layout,)


def _elementwise(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """Sums, products and the like of tensors: axes are aligned from the last, an axis of size 1 is repeated."""
    rank = len(call.outputs[0])
    found: list[Axis] = []
    for axis in range(rank):
        parts = [
            layout[axis - rank + len(layout)]
            for layout, shape in zip(call.layouts, call.shapes, strict=True)
            if axis - rank + len(shape) >= 0
            and not _is_repeated(shape[axis - rank + len(shape)], call.outputs[0][axis])
        ]
        joined = parts[0] if parts else None
        for part in parts[1:]:
            joined = channels.join(joined, part, f"{call.name} takes tensors whose channels are kept")
        found.append(joined)
    for layout, shape in zip(call.layouts, call.shapes, strict=True):
        for channels_here, size in zip(layout, shape, strict=True):
            if size == 1:
                channels.pin(channels_here, f"{call.name} repeats a single channel")
    return (tuple(found),)


def _is_repeated(size: int | None, result: int | None) -> bool:
    return size == 1 and result != 1


def _concatenation(channels: Channels, call: Call) -> tuple[Layout, ...]:
    axis = call.layer.axis % len(call.outputs[0])
    found: list[Axis] = []
    for place in range(len(call.outputs[0])):
        parts = [layout[place] for layout in call.layouts]
        if place != axis:
            joined = parts[0]
            for part in parts[1:]:
                joined = channels.join(joined, part, f"{call.name} takes tensors whose channels are kept")
            found.append(joined)
        elif all(part is None for part in parts):
            found.append(None)
        else:
            found.append(np.concatenate([_fixed(channels, call, n, place) for n in range(len(parts))]))
    return (tuple(found),)


def _fixed(channels: Channels, call: Call, number: int, axis: int) -> Any:
    """The channels of one part of a concatenation; those of a part that is kept whole are pinned."""
    here = call.layouts[number][axis]
    if here is not None:
        return here
    made = channels.make_fixed((id(call.layer), number, axis), call.shapes[number][axis] or 0)
    channels.pin(made, f"{call.name} takes a tensor whose channels are kept")
    return made


def _global_pooling(channels: Channels, call: Call) -> tuple[Layout, ...]:
    axis, layout = call.channel_axis(), call.layouts[0]
    _pin_others(channels, call, axis, does="pools along")
    if not call.layer.keepdims:
        return ((None, layout[axis]),)
    return (tuple(each if place == axis else None for place, each in enumerate(layout)),)


def _reduction(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """A mean or sum over axes that carry no channels."""
    layout, axes = call.layouts[0], call.layer.axis
    rank = len(layout)
    axes = range(rank) if axes is None else [axes] if isinstance(axes, int) else axes
    reduced = {axis % rank for axis in axes}
    for axis in reduced:
        channels.pin(layout[axis], f"{call.name} reduces the axis of channels")
    if call.layer.keepdims:
        return (tuple(None if axis in reduced else each for axis, each in enumerate(layout)),)
    return (tuple(each for axis, each in enumerate(layout) if axis not in reduced),)


def _reshape(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, shape = call.layer, call.outputs[0]
    before, given = call.shapes[0], call.layouts[0]
    if call.channel_axis() == 1:  # Flatten with `data_format` brings the channels to the end first
        before, given = ((*each[:1], *each[2:], *each[1:2]) for each in (before, given))
    layout = reshape_layout(channels, given, before, shape, f"{call.name} mixes channels")
    for entry, left_out in (("target_shape", 1), ("newshape", 0)):
        if hasattr(layer, entry):
            channels.shapes[id(layer)] = (layer, entry, left_out, layout, shape)
    return (layout,)


def _permutation(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, layout = call.layer, call.layouts[0]
    if hasattr(layer, "dims"):
        order: Sequence[int] = (0, *layer.dims)
    else:
        order = layer.axes if layer.axes is not None else tuple(reversed(range(len(layout))))
    return (tuple(layout[axis] for axis in order),)


def _repeat_vector(channels: Channels, call: Call) -> tuple[Layout, ...]:
    return ((None, None, call.layouts[0][1]),)


def _attention(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """MultiHeadAttention: the channels of query, value, key and output are pruned; heads stay as they are."""
    import keras

    layer, layouts = call.layer, call.layouts
    given = [each for each in call.arguments.args if isinstance(each, keras.KerasTensor)]
    config = layer.get_config()
    is_plain = len(layouts) == len(given) and len(given) in (2, 3) and len(call.outputs) == 1
    if not is_plain or config.get("output_shape") or config.get("use_gate"):
        return _keep(channels, call)  # masks, scores, gates, or arguments by name
    _pin_others(channels, call, -1, does="attends along")
    for part, layout in (
        (layer.query_dense, layouts[0]),
        (layer.value_dense, layouts[1]),
        (layer.key_dense, layouts[-1]),  # without a key, the value is the key
    ):
        channels.put(layer, part.kernel, 0, layout[-1])
    made = channels.make(layer, call.outputs[0][-1] or 0)
    channels.put(layer, layer.output_dense.kernel, -1, made)
    channels.put(layer, layer.output_dense.bias, 0, made, scores=False)
    channels.size(layer, "output_shape", made)
    return ((*_whole(call.outputs[0][:-1]), made),)


def _names(text: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(text.split(), rule)


RULES: dict[str, Rule] = {
    **_names("Conv1D Conv2D Conv3D", _convolution),
    **_names("Conv1DTranspose Conv2DTranspose Conv3DTranspose", _transposed_convolution),
    **_names("DepthwiseConv1D DepthwiseConv2D", _depthwise_convolution),
    **_names("SeparableConv1D SeparableConv2D", _separable_convolution),
    **_names("Dense", _dense),
    **_names("Embedding", _embedding),
    **_names("MultiHeadAttention", _attention),
    **_names("BatchNormalization LayerNormalization RMSNormalization GroupNormalization", _normalization),
    **_names("LayerScale", _scale),
    **_names("PReLU", _parametric_relu),
    **_names("Activation Softmax", _activation),
    **_names("ReLU LeakyReLU ELU Identity ActivityRegularization StochasticDepth", _same),
    **_names("Rescaling", _rescaling),
    **_names("Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D AlphaDropout GaussianDropout", _same),
    **_names("GaussianNoise Masking", _same),
    **_names("MaxPooling1D MaxPooling2D MaxPooling3D AveragePooling1D AveragePooling2D AveragePooling3D", _windows),
    **_names("ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D Cropping2D Cropping3D", _windows),
    **_names("UpSampling1D UpSampling2D UpSampling3D Resizing", _windows),
    **_names("Relu Relu6 Sigmoid HardSigmoid Silu HardSilu HardSwish Gelu Tanh Elu Selu Softplus LeakyRelu", _same),
    **_names("Negative Absolute Square Sqrt Exp Cast", _same),
    **_names("Add Subtract Multiply Divide TrueDivide Average Maximum Minimum CustomScaleLayer", _elementwise),
    **_names("Concatenate", _concatenation),
    **_names("GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D", _global_pooling),
    **_names("GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D", _global_pooling),
    **_names("Mean Sum Max Min", _reduction),
    **_names("Reshape Flatten", _reshape),
    **_names("Permute Transpose", _permutation),
    **_names("RepeatVector", _repeat_vector),
}
