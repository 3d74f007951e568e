"""What the fused operations have in common: each takes the place of a layer's `call`."""

from typing import Any

import keras
import torch
from keras.src.backend.common.stateless_scope import get_stateless_scope, in_stateless_scope  # no public name tells it

from fitroom.backends import fused_layers
from fitroom.backends.torch.kernels.forward_pass import ForwardPass

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
"""The types that fused operations compute in on a card."""


class FusedCall(fused_layers.FusedCall):
    """In place of the `call` of one layer of Keras's. What an operation cannot do, Keras's own `call` does."""

    def on_view(self, x: Any, training: Any, forward: ForwardPass) -> Any:
        """Compute from a tensor with channels second what `call` computes, in a ChannelsSecond or as Keras has it.

        NotImplemented where `call` has to. It spares the views before and after, here and in the backward pass.
        """
        return NotImplemented


def is_served(inputs: Any) -> bool:
    """Whether a fused operation takes these inputs. Keras asks layers for shapes on the device "meta"."""
    return inputs.dtype in _FLOATS and inputs.numel() > 0 and inputs.device.type != "meta"


def value_of(variable: Any) -> Any:
    """The value of a variable of Keras's in its own precision; the one that a `StatelessScope` lends it, in one.

    A tensor, which is what LoRA makes of a kernel, is returned as it is.
    """
    if in_stateless_scope() and isinstance(variable, keras.Variable):
        lent = get_stateless_scope().get_current_value(variable)
        if lent is not None:
            return lent
    return getattr(variable, "_value", variable)
