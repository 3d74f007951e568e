"""BatchNormalization and GroupNormalization by PyTorch's own operations.

Keras composes them of some ten float32 operations, each of which keeps a tensor for the backward pass. PyTorch's
operations keep the input alone, in its own precision, and sum in float32 all the same.
"""

from collections.abc import Sequence
from typing import Any

import keras
import torch
from keras.src.backend.common.stateless_scope import in_stateless_scope  # no public name tells it

from fitroom.backends.torch.kernels.forward_pass import ForwardPass
from fitroom.backends.torch.kernels.fused_call import FusedCall, is_served, value_of
from fitroom.backends.torch.kernels.layouts import ChannelsSecond, channels_last, channels_second


class FusedBatchNormalization(FusedCall):
    """`call` of a BatchNormalization layer. What PyTorch's operation does not do, Keras does: masks."""

    operation = "torch.native_batch_norm"

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        if layer.renorm:
            return "renorm"
        return "synchronized" if layer.synchronized else None

    def __call__(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Compute the outputs."""
        layer = self._layer
        if mask is not None or inputs.ndim < 2 or not is_served(inputs):
            return self._keras_call(inputs, training=training, mask=mask)
        x, view_back = _channels_at_1(inputs, layer.axis)
        if _is_on_host(x):
            x = x.contiguous()  # the CPU's kernel for channels last sums less exactly than Keras does
        outputs, *statistics = self._normalize(x, training)
        if statistics:
            _move_averages([(layer, *statistics)])
        return view_back(outputs)

    def on_view(self, x: Any, training: Any, forward: ForwardPass) -> Any:
        """Compute the outputs; the averages of all layers are moved at once."""
        layer = self._layer
        if x.ndim not in (4, 5) or layer.axis not in (-1, x.ndim - 1) or not is_served(x):
            return NotImplemented
        if not (training and layer.trainable):
            forward.settle()
        outputs, *statistics = self._normalize(x.contiguous() if _is_on_host(x) else x, training)
        if statistics:
            forward.postpone(_move_averages, layer, *statistics)
        return ChannelsSecond(outputs)

    def _normalize(self, x: Any, training: Any) -> Any:
        """The outputs, and where the averages move the mean and the inverse deviation of the batch."""
        layer = self._layer
        scale, offset = _scale_and_offset(layer, x, torch.float32)
        if training and layer.trainable:
            return torch.native_batch_norm(x, scale, offset, None, None, True, 0.0, layer.epsilon)
        return torch.native_batch_norm(x, scale, offset, *_averages(layer), False, 0.0, layer.epsilon)[:1]


def _is_on_host(x: Any) -> bool:
    """Whether a tensor is on the CPU; one that stands for a tensor on a card, in an estimate, is on "cpu:0"."""
    return bool(x.device.type == "cpu" and x.device.index is None)


def _scale_and_offset(layer: Any, x: Any, dtype: Any) -> tuple[Any, Any]:
    """Both or neither: the gradient of one alone has a wrong shape (BatchNormalization on CUDA) or fails (group)."""
    if layer.gamma is None and layer.beta is None:
        return None, None
    size, device = x.shape[1], x.device
    scale = torch.ones(size, dtype=dtype, device=device) if layer.gamma is None else value_of(layer.gamma).to(dtype)
    offset = torch.zeros(size, dtype=dtype, device=device) if layer.beta is None else value_of(layer.beta).to(dtype)
    return scale, offset


def _averages(layer: Any) -> tuple[Any, Any]:
    """The moving averages in float32.

    The backward pass needs them as they are now. A layer that trains may be called once more before it, in training,
    which changes its averages in place: then they are copied.
    """
    may_change = layer.trainable and torch.is_grad_enabled()
    mean, variance = (
        value_of(each).to(torch.float32, copy=may_change) for each in (layer.moving_mean, layer.moving_variance)
    )
    return mean, variance


def _channels_at_1(inputs: Any, axis: int) -> tuple[Any, Any]:
    """The tensor as (batch, channels, ...), and the function that views a result as the input was."""
    axis = axis % inputs.ndim
    if axis == 1:
        return inputs, _unchanged
    if axis == inputs.ndim - 1 and inputs.ndim in (4, 5):
        return channels_second(inputs), channels_last
    if axis == inputs.ndim - 1:  # as an image of one row: the kernels for channels last take images
        shape = inputs.shape
        image = inputs.reshape(shape[0], 1, -1, shape[-1])
        return channels_second(image), lambda outputs: channels_last(outputs).reshape(shape)
    return inputs.movedim(axis, 1), lambda outputs: outputs.movedim(1, axis)


def _unchanged(outputs: Any) -> Any:
    return outputs


def _move_averages(found: Sequence[tuple[Any, Any, Any]]) -> None:
    """Move averages towards the statistics of a batch: layers, each with its batch's mean and inverse deviation."""
    alike: dict[tuple[float, float], list[tuple[Any, Any, Any]]] = {}
    for each in found:
        alike.setdefault((each[0].epsilon, each[0].momentum), []).append(each)
    with torch.no_grad():
        for (epsilon, momentum), group in alike.items():
            layers, means, inverses = zip(*group, strict=True)
            # The variance is the biased one, as Keras keeps it; PyTorch's own moving variance would be the unbiased.
            variances = torch._foreach_pow([each.float() for each in inverses], -2)
            torch._foreach_sub_(variances, epsilon)
            averages = [*(layer.moving_mean for layer in layers), *(layer.moving_variance for layer in layers)]
            _move(averages, [*(mean.float() for mean in means), *variances], 1 - momentum)


def _move(averages: Sequence[Any], values: Sequence[Any], weight: float) -> None:
    if not in_stateless_scope() and all(average._value.dtype == torch.float32 for average in averages):
        torch._foreach_lerp_([average._value for average in averages], values, weight)
        return
    for average, value in zip(averages, values, strict=True):  # a scope holds changes back
        average.assign(torch.lerp(value_of(average).float(), value, weight))


class FusedGroupNormalization(FusedCall):
    """`call` of a GroupNormalization layer."""

    operation = "torch.nn.functional.group_norm"

    @staticmethod
    def why_not(layer: Any) -> str | None:
        """Why a layer is left to Keras, or None where it is served."""
        return None if layer.axis in (-1, 1) else f"axis {layer.axis}"

    def __call__(self, inputs: Any) -> Any:
        """Compute the outputs."""
        layer = self._layer
        if inputs.ndim < 3 or not is_served(inputs):
            return self._keras_call(inputs)
        x, view_back = _channels_at_1(inputs, layer.axis)
        if _is_on_host(x):
            x = x.contiguous()  # for channels last the CPU's backward kernel crashes where `x` needs no gradient
        # In the type of the input: PyTorch wants one type for all, and sums in float32 whatever it is.
        scale, offset = _scale_and_offset(layer, x, x.dtype)
        return view_back(torch.nn.functional.group_norm(x, layer.groups, scale, offset, layer.epsilon))


NORMALIZATIONS = {
    keras.layers.BatchNormalization: FusedBatchNormalization,
    keras.layers.GroupNormalization: FusedGroupNormalization,
}
