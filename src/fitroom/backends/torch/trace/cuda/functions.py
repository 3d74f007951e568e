"""Functions that PyTorch takes apart in another way on CUDA than on the CPU."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import keras
import torch
from keras.src.backend.torch import core as keras_core  # no public name can be replaced by another
from keras.src.backend.torch import numpy as keras_numpy  # no public name can be replaced by another
from torch.overrides import TorchFunctionMode

from fitroom.backends.torch.trace.cuda.values import ARRAYS
from fitroom.backends.torch.trace.fake_mode import DEVICE
from fitroom.cards.catalogue import Card
from fitroom.keras_model.private import override_attribute

_HALVES = (torch.float16, torch.bfloat16)
_MOST_FLASH_FEATURES = 256


def _scatter(indices: Any, values: Any, shape: Any) -> Any:
    """Keras adds value after value, of an image's confusion matrix one for each pixel: all it makes is the result."""
    return torch.zeros(tuple(shape), dtype=values.dtype, device=DEVICE)


@contextmanager
def skip_scatter_loop() -> Iterator[None]:
    """Have Keras's `scatter`, during the block, make its result without going through the values one by one."""
    own = keras_core.scatter
    keras_core.scatter = _scatter
    try:
        yield
    finally:
        keras_core.scatter = own


def _split(own: Any) -> Any:
    """Keras's `split` at given places: it computes the sizes on the card and reads them, and fake tensors have none."""

    def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
        if isinstance(indices_or_sections, int | torch.Tensor):
            return own(x, indices_or_sections, axis)
        ends = [*map(int, indices_or_sections), int(x.shape[axis])]
        sizes = [end - start for start, end in pairwise([0, *ends])]
        return list(torch.split(keras.ops.convert_to_tensor(x), sizes, dim=axis))

    return split


@contextmanager
def split_by_known_sizes() -> Iterator[None]:
    """Have Keras's `split`, during the block, read the sizes that real tensors would hold."""
    own = keras_numpy.split
    keras_numpy.split = _split(own)
    try:
        yield
    finally:
        keras_numpy.split = own


class CudaFunctions(TorchFunctionMode):  # type: ignore[misc]
    """Calls what CUDA would call, where the CPU would be given something else."""

    def __init__(self, card: Card) -> None:
        super().__init__()
        self._card_name = card.name
        self._has_flash_attention = (card.compute_capability or (0, 0)) >= (8, 0)
        self._on_cuda = ARRAYS | {
            torch.nn.functional.dropout: _dropout,
            torch.nn.functional.scaled_dot_product_attention: self._attention,
        }

    def __enter__(self) -> Any:
        self._replaced = ExitStack()
        # Keras asks which way attention goes, and layers of KerasHub whether there is a card and what its name is.
        answers = (
            (torch.backends.cuda, "can_use_flash_attention", self._can_use_flash_attention),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "get_device_name", lambda device=None: self._card_name),
        )
        for module, name, answer in answers:
            self._replaced.enter_context(override_attribute(module, name, answer))
        self._replaced.enter_context(skip_scatter_loop())
        self._replaced.enter_context(split_by_known_sizes())
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._replaced.__exit__(*error)
        super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._on_cuda.get(func, func)(*args, **kwargs or {})

    def _can_use_flash_attention(self, params: Any, debug: bool = False) -> bool:
        return self._takes_flash(params.query, params.attn_mask)

    def _takes_flash(self, query: Any, mask: Any) -> bool:
        narrow = query.shape[-1] <= _MOST_FLASH_FEATURES
        return self._has_flash_attention and query.dtype in _HALVES and narrow and mask is None

    def _attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        aten = torch.ops.aten
        if self._takes_flash(query, attn_mask):
            attend = aten._scaled_dot_product_flash_attention
            return attend(query, key, value, dropout_p, is_causal, scale=scale)[0]
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
            attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
        keeps_sums = any(each.requires_grad for each in (query, key, value))
        attend = aten._scaled_dot_product_efficient_attention
        return attend(query, key, value, attn_mask, keeps_sums, dropout_p, is_causal, scale=scale)[0]


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or not 0 < p < 1 or inplace:
        return torch.dropout(input, p, training)
    return torch.native_dropout(input, p, True)[0]
