"""Attention with dropout by PyTorch's fused operation, which never holds the scores of all pairs of positions.

It drops other scores than Keras's Dropout layer would: they are drawn from PyTorch's own generators, whatever seed the
layer has. Rollback, recomputing and checkpoints keep the state of those.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from fitroom.backends.torch.kernels.fused_call import is_served
from fitroom.keras_model.private import override_attention, own_attention


class FusedAttention:
    """In place of the method of a MultiHeadAttention that computes attention from projected tensors."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._keras_attention = own_attention(layer)

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        training: Any = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> tuple[Any, Any]:
        """The outputs for (batch, positions, heads, size), and no scores."""
        if return_attention_scores or query.ndim != 4 or not is_served(query):
            return self._keras_attention(  # type: ignore[no-any-return]
                query=query,
                key=key,
                value=value,
                attention_mask=attention_mask,
                training=training,
                return_attention_scores=return_attention_scores,
                use_causal_mask=use_causal_mask,
            )
        mask = some = None
        if attention_mask is not None:
            mask = _mask_of(attention_mask, query, key, use_causal_mask)
            some = mask.any(-1, keepdim=True)
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask & some, -torch.inf)
        outputs = torch.nn.functional.scaled_dot_product_attention(
            *(tensor.transpose(1, 2) for tensor in (query, key, value)),
            attn_mask=mask,
            dropout_p=self._layer.dropout if training else 0.0,
            is_causal=use_causal_mask and mask is None,
            scale=query.shape[-1] ** -0.5,
        )
        if some is not None:  # a position that may look at none gives zeros, as with Keras
            outputs = outputs.masked_fill(~some, 0)
        return outputs.transpose(1, 2), None


def _mask_of(mask: Any, query: Any, key: Any, is_causal: bool) -> Any:
    """Which positions count, for (batch, heads, positions of the query, positions of the key)."""
    mask = mask.to(torch.bool)
    while mask.ndim < 4:
        mask = mask.unsqueeze(-3)
    if is_causal:
        mask = mask & torch.ones(query.shape[1], key.shape[1], dtype=torch.bool, device=mask.device).tril()
    return mask


@contextmanager
def fused_attention(layers: Sequence[Any]) -> Iterator[None]:
    """Have PyTorch's operation compute the attention of these layers for the time of the block."""
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(override_attention(layer, FusedAttention(layer)))
        yield
