"""Kernels of convolutions in the layout and precision in which PyTorch's fast kernels read them: one copy of each.

All kernels of a forward pass are copied by one function, so that the backward pass has one, too, in place of three for
each of them. They are there until the backward pass has used them, whenever they are copied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}

Kernel = Callable[[Any], Any]
"""Views a kernel of Keras's as a weight of PyTorch's."""


def as_weight(kernel: Any) -> Any:
    """View a kernel (..., inputs, outputs) as (outputs, inputs, ...), one for sequences with a row before them."""
    if kernel.ndim == 3:  # cuDNN has no layout with channels last for sequences
        kernel = kernel.unsqueeze(0)
    rank = kernel.ndim - 2
    return kernel.permute(rank + 1, rank, *range(rank))


def as_depthwise_weight(kernel: Any) -> Any:
    """View a kernel (..., channels, multiplier) as a weight with a group for each channel."""
    return as_weight(kernel.reshape(*kernel.shape[:-2], 1, -1))


@dataclass(frozen=True)
class Weight:
    """A kernel or bias that is to be copied."""

    value: Any
    view: Kernel | None
    """None for a bias."""

    dtype: Any

    @property
    def viewed(self) -> Any:
        """The value as PyTorch's functions see it."""
        return self.value if self.view is None else self.view(self.value)

    def in_place(self) -> Any:
        """A copy, by itself; the value where it is as it should be."""
        viewed = self.viewed
        return viewed.to(self.dtype, memory_format=self._format(viewed))

    @property
    def is_ready(self) -> bool:
        """Whether no copy is needed."""
        return self.view is None and self.value.dtype == self.dtype

    def make_room(self, viewed: Any) -> Any:
        """An empty tensor for the copy of the value, which was viewed."""
        return torch.empty(viewed.shape, dtype=self.dtype, device=viewed.device, memory_format=self._format(viewed))

    def _format(self, viewed: Any) -> Any:
        return torch.contiguous_format if self.view is None else _FORMATS[viewed.ndim]


def copy_weights(weights: Sequence[Weight]) -> list[Any]:
    """Copies of all weights, through which gradients flow back; those that need no copy are returned as they are."""
    found = [weight.value for weight in weights]
    for trains in (True, False):  # apart: the backward pass would find gradients of frozen weights, too
        places = [
            place
            for place, weight in enumerate(weights)
            if not weight.is_ready and bool(weight.value.requires_grad) is trains
        ]
        if places:
            copies = _Copies.apply([weights[place] for place in places], *(found[place] for place in places))
            for place, copy in zip(places, copies, strict=True):
                found[place] = copy
    return found


class _Copies(torch.autograd.Function):  # type: ignore[misc]
    """Copies of tensors in one function of autograd's."""

    @staticmethod
    def forward(ctx: Any, weights: Sequence[Weight], *values: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.kinds = [(weight.view, weight.value.shape, weight.value.dtype) for weight in weights]
        viewed = [weight.viewed for weight in weights]
        copies = [weight.make_room(each) for weight, each in zip(weights, viewed, strict=True)]
        torch._foreach_copy_(copies, viewed)
        return tuple(copies)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():  # the gradients are to be differentiated, too
            return None, *(
                gradient if gradient is None else _as_kernel(gradient, shape).to(dtype)
                for (_, shape, dtype), gradient in zip(ctx.kinds, gradients, strict=True)
            )
        found: list[Any] = [None] * len(gradients)
        given, places = [], []
        for number, ((view, shape, dtype), gradient) in enumerate(zip(ctx.kinds, gradients, strict=True)):
            if gradient is not None and ctx.needs_input_grad[number + 1]:
                found[number] = torch.empty(shape, dtype=dtype, device=gradient.device)
                places.append(found[number] if view is None else view(found[number]))
                given.append(gradient)
        if given:
            torch._foreach_copy_(places, given)
        return None, *found


def _as_kernel(gradient: Any, shape: Any) -> Any:
    """The gradient of a weight as that of the kernel of this shape."""
    return gradient.permute(*range(2, gradient.ndim), 1, 0).reshape(shape) if gradient.ndim > 1 else gradient
