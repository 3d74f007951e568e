"""Kinds of layers that were in the steps whose memory was measured on a card, and room for those that were not.

The margin that makes `required_bytes` of a peak was found on measured steps. A layer of another kind may have kernels
with scratch memory, or sizes, that no rule knows. An estimate with such a layer says so and asks for more.
"""

from collections.abc import Iterator
from typing import Any

from fitroom.keras_model.private import all_layers
from fitroom.memory.step import TracedStep

_MEASURED = frozenset(
    {
        *("Conv2D", "DepthwiseConv2D", "SeparableConv2D", "Dense", "EinsumDense", "Embedding"),
        *("BatchNormalization", "LayerNormalization", "Normalization", "MultiHeadAttention", "LSTM", "LSTMCell"),
        *("MaxPooling2D", "AveragePooling2D", "GlobalAveragePooling2D", "GlobalMaxPooling2D"),
        *("GlobalAveragePooling1D", "Softmax", "Dropout", "LayerScale", "StochasticDepth"),
    }
)
"""In benchmarks/harness/cases.py, the reported half and the fitted one."""

_NO_KERNEL_OF_THEIR_OWN = frozenset(
    {
        *("InputLayer", "Functional", "Sequential", "Model", "Identity", "Flatten", "Reshape", "Permute"),
        *("RepeatVector", "Masking", "Rescaling", "Activation", "ReLU", "LeakyReLU", "PReLU", "ELU", "Add"),
        *("Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate", "Cropping1D", "Cropping2D"),
        *("ZeroPadding1D", "ZeroPadding2D", "GlobalMaxPooling1D", "ActivityRegularization", "SpatialDropout1D"),
        *("SpatialDropout2D", "GaussianNoise", "GaussianDropout", "TimeDistributed", "Bidirectional"),
    }
)
"""What they do to a tensor is done to each number of it, or moves numbers, as in layers that were measured."""

_MARGIN_SHARES = {"jax": 0.02, "torch": 0.12, "tensorflow": 0.25}
"""Shares of `required_bytes` that are added. Peaks of models of other families were up to 1, 12 and 20 % above what was
predicted for an H200, but for 3-D convolutions on TensorFlow."""

_TENSORFLOW_3D_SHARE = 0.75
"""What TensorFlow's graph mode took above the prediction with 3-D convolutions, of which it makes copies."""

_HYBRID = "convolutions beside MultiHeadAttention"
"""Each was measured, the two in one model were not. Of one such model PyTorch reserved 12 % more than was predicted."""

_NAMES_SHOWN = 6


def with_room_for_unmeasured(traced: TracedStep, model: Any, backend: str, *, jit: bool) -> TracedStep:
    """The step with more room, and a note, where the model has kinds of layers that were not measured."""
    kinds = unmeasured_kinds(model)
    if not kinds or traced.method == "measured":
        return traced
    added_bytes = unmeasured_margin(kinds, backend, traced.required_bytes, jit=jit)
    return traced.with_margin(added_bytes, describe_unmeasured(kinds, added_bytes / max(traced.required_bytes, 1)))


def unmeasured_kinds(model: Any) -> tuple[str, ...]:
    """The kinds of layers in a model that no measured step had, in the order of the model.

    A layer of the user's own that consists of layers is judged by these.
    """
    names = {type(layer).__name__ for layer in all_layers(model)}
    together = [_HYBRID] if "MultiHeadAttention" in names and any("Conv" in name for name in names) else []
    return tuple(dict.fromkeys([*_unmeasured(model), *together]))


def unmeasured_margin(kinds: tuple[str, ...], backend: str, required_bytes: int, *, jit: bool) -> int:
    """Bytes to add to `required_bytes` for kinds of layers that were not measured."""
    if not kinds:
        return 0
    share = _MARGIN_SHARES[backend]
    if backend == "tensorflow" and not jit and any("3D" in kind for kind in kinds):
        share = _TENSORFLOW_3D_SHARE
    return int(share * required_bytes)


def describe_unmeasured(kinds: tuple[str, ...], added_share: float) -> tuple[str, ...]:
    """A sentence on kinds of layers that were not measured; empty where there are none."""
    if not kinds:
        return ()
    more = f" and {len(kinds) - _NAMES_SHOWN} more" if len(kinds) > _NAMES_SHOWN else ""
    return (
        f"No step with {', '.join(kinds[:_NAMES_SHOWN])}{more} was measured on a card yet: what is needed is "
        f"{added_share:.0%} higher for it, and the typical error is that of other models.",
    )


def _unmeasured(model: Any) -> Iterator[str]:
    for layer in all_layers(model):
        name = type(layer).__name__
        is_of_keras = type(layer).__module__.partition(".")[0] == "keras"
        if name in _NO_KERNEL_OF_THEIR_OWN:
            continue
        if name in _MEASURED:
            if variant := _variant(layer):
                yield variant
        elif is_of_keras or len(all_layers(layer)) == 1:
            yield name


def _variant(layer: Any) -> str | None:
    """A measured kind in a form that was not: dilated, or of several groups."""
    name = type(layer).__name__
    dilation = getattr(layer, "dilation_rate", 1)
    if any(rate != 1 for rate in (dilation if isinstance(dilation, list | tuple) else (dilation,))):
        return f"dilated {name}"
    # As many groups as filters is a depthwise convolution, as ConvNeXt's are.
    groups = getattr(layer, "groups", 1)
    return f"grouped {name}" if name == "Conv2D" and groups not in (1, layer.filters) else None
