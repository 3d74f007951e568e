"""What each kind of layer does with channels: which it takes, which it makes, and where they lie in its weights.

A rule is chosen by the exact name of a class of Keras's own. What has no rule, a layer of the user's own above all,
keeps the channels that go in, and what comes out of it is not pruned.
"""

from typing import Any

import numpy as np

from fitroom.lean.calls import Call, Rule, keep, pin_others
from fitroom.lean.channels import Axis, Blocks, Channels, Layout
from fitroom.lean.sequence_rules import attention, embedding, recurrent
from fitroom.lean.tensor_rules import (
    concatenation,
    elementwise,
    get_item,
    permutation,
    reduction,
    repeat_vector,
    reshape,
    split,
)


def apply_rule(channels: Channels, call: Call) -> tuple[Layout, ...]:
    """The layouts of what a call returns."""
    kind = type(call.layer)
    rule = RULES.get(kind.__name__) if kind.__module__.startswith("keras.") else None
    if rule is None or call.has_constants():
        rule = keep
    return rule(channels, call)


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
    pin_others(channels, call, call.channel_axis(), does="takes windows along")
    return _same(channels, call)


def _activation(channels: Channels, call: Call) -> tuple[Layout, ...]:
    if type(call.layer).__name__ == "Softmax" or not _is_by_element(call.layer.activation):
        return keep(channels, call)
    return _same(channels, call)


def _rescaling(channels: Channels, call: Call) -> tuple[Layout, ...]:
    by_channel = any(isinstance(each, (list, tuple)) for each in (call.layer.scale, call.layer.offset))
    return keep(channels, call) if by_channel else _same(channels, call)


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
    pin_others(channels, call, axis, does="convolves along")
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
        return keep(channels, call)
    made = channels.make(layer, layer.filters)
    for each in (taken, made):
        channels.blocks.append(Blocks(channels=each, count=layer.groups, reason=reason))
    channels.put(layer, layer.kernel, -2, taken, scores=False)  # an axis that each group indexes by itself
    channels.put(layer, layer.kernel, -1, made)
    return _made(channels, call, made, "filters", axis)


def _transposed_convolution(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, axis = call.layer, call.channel_axis()
    made = channels.make(layer, layer.filters)
    pin_others(channels, call, axis, does="convolves along")
    channels.put(layer, layer.kernel, -1, call.layouts[0][axis])
    channels.put(layer, layer.kernel, -2, made)
    return _made(channels, call, made, "filters", axis)


def _depthwise_convolution(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, axis = call.layer, call.channel_axis()
    taken = call.layouts[0][axis]
    made: Axis = None if taken is None else np.repeat(taken, layer.depth_multiplier)
    pin_others(channels, call, axis, does="convolves along")
    channels.put(layer, layer.kernel, -2, taken)
    return _made(channels, call, made, None, axis)


def _separable_convolution(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, axis = call.layer, call.channel_axis()
    taken = call.layouts[0][axis]
    between: Axis = None if taken is None else np.repeat(taken, layer.depth_multiplier)
    made = channels.make(layer, layer.filters)
    pin_others(channels, call, axis, does="convolves along")
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


def _normalization(channels: Channels, call: Call) -> tuple[Layout, ...]:
    layer, layout = call.layer, call.layouts[0]
    axes = layer.axis if isinstance(layer.axis, (list, tuple)) else [layer.axis]
    axes = [axis % len(layout) for axis in axes]
    if len(axes) > 1:
        return keep(channels, call)
    here = layout[axes[0]]
    if type(layer).__name__ == "GroupNormalization":
        pin_others(channels, call, axes[0], does="normalises along")
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


def _global_pooling(channels: Channels, call: Call) -> tuple[Layout, ...]:
    axis, layout = call.channel_axis(), call.layouts[0]
    pin_others(channels, call, axis, does="pools along")
    if not call.layer.keepdims:
        return ((None, layout[axis]),)
    return (tuple(each if place == axis else None for place, each in enumerate(layout)),)


def _names(text: str, rule: Rule) -> dict[str, Rule]:
    return dict.fromkeys(text.split(), rule)


RULES: dict[str, Rule] = {
    **_names("Conv1D Conv2D Conv3D", _convolution),
    **_names("Conv1DTranspose Conv2DTranspose Conv3DTranspose", _transposed_convolution),
    **_names("DepthwiseConv1D DepthwiseConv2D", _depthwise_convolution),
    **_names("SeparableConv1D SeparableConv2D", _separable_convolution),
    **_names("Dense", _dense),
    **_names("Embedding", embedding),
    **_names("MultiHeadAttention", attention),
    **_names("LSTM GRU SimpleRNN Bidirectional", recurrent),
    **_names("BatchNormalization LayerNormalization RMSNormalization GroupNormalization", _normalization),
    **_names("LayerScale", _scale),
    **_names("PReLU", _parametric_relu),
    **_names("Activation Softmax", _activation),
    **_names("ReLU LeakyReLU ELU Identity ActivityRegularization StochasticDepth", _same),
    **_names("Rescaling", _rescaling),
    **_names("Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D AlphaDropout GaussianDropout", _same),
    **_names("GaussianNoise Masking", _same),
    **_names("MaxPooling1D MaxPooling2D MaxPooling3D AveragePooling1D AveragePooling2D AveragePooling3D", _windows),
    **_names("AdaptiveAveragePooling1D AdaptiveAveragePooling2D AdaptiveAveragePooling3D", _windows),
    **_names("AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D", _windows),
    **_names("ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D Cropping2D Cropping3D", _windows),
    **_names("UpSampling1D UpSampling2D UpSampling3D Resizing Resize CenterCrop", _windows),
    **_names("Relu Relu6 Sigmoid HardSigmoid Silu HardSilu HardSwish Gelu Tanh Elu Selu Softplus LeakyRelu", _same),
    **_names("Negative Abs Absolute Square Sqrt Exp Log Log1p Sign Softsign Celu LogSigmoid Cast Pad", _same),
    **_names("Add Subtract Multiply Divide TrueDivide Average Maximum Minimum CustomScaleLayer", elementwise),
    **_names("Power Where Greater GreaterEqual Less LessEqual Equal NotEqual", elementwise),
    **_names("Concatenate", concatenation),
    **_names("GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D", _global_pooling),
    **_names("GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D", _global_pooling),
    **_names("Mean Sum Max Min", reduction),
    **_names("Reshape Flatten ExpandDims Squeeze", reshape),
    **_names("Split", split),
    **_names("GetItem", get_item),
    **_names("Permute Transpose", permutation),
    **_names("RepeatVector", repeat_vector),
}
