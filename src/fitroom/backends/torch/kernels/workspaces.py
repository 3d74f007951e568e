"""Scratch memory of cuDNN's convolutions, as its heuristics choose kernels."""

from dataclasses import dataclass
from typing import Any, Literal

Way = Literal["forward", "backward_input", "backward_kernel"]


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """What cuDNN's choice of a kernel depends on."""

    batch: int
    in_channels: int
    out_channels: int
    in_size: tuple[int, ...]
    out_size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    groups: int
    itemsize: int
    channels_last: bool

    @classmethod
    def of(cls, x: Any, weight: Any, y: Any, parameters: Any) -> "Convolution":
        """The convolution from `x` to `y`."""
        from fitroom.backends.torch.kernels.layouts import is_channels_last

        return cls(
            batch=x.shape[0],
            in_channels=x.shape[1],
            out_channels=y.shape[1],
            in_size=tuple(x.shape[2:]),
            out_size=tuple(y.shape[2:]),
            kernel=tuple(weight.shape[2:]),
            stride=tuple(parameters[0]),
            groups=parameters[-1],
            itemsize=x.element_size(),
            channels_last=is_channels_last(weight) or is_channels_last(x),
        )


def workspace_bytes(convolution: Convolution, way: Way) -> int:
    """The scratch memory of one way of a convolution."""
    return 0
