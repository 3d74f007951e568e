"""What a convolution is: its pictures, its filter, its layout."""

from collections.abc import Sequence
from dataclasses import dataclass

from fitroom.backends.tensorflow.trace.graph.program import Operation, Output

PLAIN = {
    "Conv2D": "forward",
    "_FusedConv2D": "forward",
    "Conv2DBackpropInput": "input",
    "Conv2DBackpropFilter": "filter",
}
DEPTHWISE = {
    "DepthwiseConv2dNative": "forward",
    "DepthwiseConv2dNativeBackpropInput": "input",
    "DepthwiseConv2dNativeBackpropFilter": "filter",
}
"""Operations, and what each of them computes: the output, or a gradient."""


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """One convolution, forward or backward, with every shape known."""

    computes: str
    is_fused: bool
    is_depthwise: bool
    channels_first: bool
    itemsize: int
    batch: int
    in_channels: int
    out_channels: int
    in_size: tuple[int, int]
    out_size: tuple[int, int]
    kernel: tuple[int, int]
    filter_elements: int
    stride: int
    pads_unevenly: tuple[bool, bool]
    """Whether a side needs one more row of padding at its end than at its beginning."""

    @property
    def in_bytes(self) -> int:
        """The pictures that go in."""
        return self.batch * self.in_channels * self.in_size[0] * self.in_size[1] * self.itemsize

    @property
    def padded_bytes(self) -> int:
        """The same with the uneven rows of padding."""
        height, width = (size + uneven for size, uneven in zip(self.in_size, self.pads_unevenly, strict=True))
        return self.batch * self.in_channels * height * width * self.itemsize

    @property
    def filter_bytes(self) -> int:
        """The weights."""
        return self.filter_elements * self.itemsize

    @property
    def is_pointwise(self) -> bool:
        """1 x 1, one multiplication of matrices."""
        return self.kernel == (1, 1)


def convolution_of(operation: Operation, inputs: Sequence[Output]) -> Convolution | None:
    """The convolution that an operation is, or None."""
    computes = PLAIN.get(operation.op) or DEPTHWISE.get(operation.op)
    if computes is None:
        return None
    made = operation.outputs[0]
    pictures, weights, result = (
        {
            "forward": (inputs[0], inputs[1], made),
            "input": (made, inputs[1], inputs[-1]),
            "filter": (inputs[0], made, inputs[-1]),
        }[computes]
        if len(inputs) >= 2
        else (made, made, made)
    )
    if any(each.num_elements is None or len(each.shape or ()) != 4 for each in (pictures, weights, result)):
        return None
    channels_first = operation.attributes["data_format"].s == b"NCHW"
    batch, in_channels, in_size = _parts(pictures, channels_first)
    _, out_channels, out_size = _parts(result, channels_first)
    kernel = _pair(weights, 0)
    strides = operation.attributes["strides"].list.i
    stride = strides[2 if channels_first else 1]
    same = operation.attributes["padding"].s == b"SAME"
    return Convolution(
        computes=computes,
        is_fused=operation.op.startswith("_Fused"),
        is_depthwise=operation.op in DEPTHWISE,
        channels_first=channels_first,
        itemsize=int(made.dtype.size),
        batch=batch,
        in_channels=in_channels,
        out_channels=out_channels,
        in_size=in_size,
        out_size=out_size,
        kernel=kernel,
        filter_elements=weights.num_elements or 0,
        stride=stride,
        pads_unevenly=(
            same and _is_uneven(in_size[0], out_size[0], kernel[0], stride),
            same and _is_uneven(in_size[1], out_size[1], kernel[1], stride),
        ),
    )


def _parts(pictures: Output, channels_first: bool) -> tuple[int, int, tuple[int, int]]:
    shape = tuple(length or 0 for length in pictures.shape or ())
    if channels_first:
        return shape[0], shape[1], (shape[2], shape[3])
    return shape[0], shape[3], (shape[1], shape[2])


def _pair(output: Output, at: int) -> tuple[int, int]:
    shape = tuple(length or 0 for length in output.shape or ())
    return shape[at], shape[at + 1]


def _is_uneven(size: int, made: int, kernel: int, stride: int) -> bool:
    return max((made - 1) * stride + kernel - size, 0) % 2 == 1
