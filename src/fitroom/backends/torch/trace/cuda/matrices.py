"""Products of matrices: cuBLAS takes a workspace at its first use on a thread, through PyTorch's allocator."""

from collections.abc import Callable
from typing import Any

import torch

from fitroom.cards.catalogue import Card

_HOPPER_BYTES = 32 * 1024**2
_OTHER_BYTES = (2 * 4096 + 8 * 16) * 1024
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot", "addbmm")


def products_on(card: Card) -> dict[Any, Callable[..., Any]]:
    """The operations that call cuBLAS. Autograd runs on a thread of its own, which has a handle of its own."""
    capability = card.compute_capability or (8, 0)
    size_bytes = _HOPPER_BYTES if capability >= (9, 0) else _OTHER_BYTES

    def product(recorder: Any, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        thread = "autograd" if torch._C._current_graph_task_id() != -1 else "main"
        recorder.hold_for_good(f"cuBLAS on the {thread} thread", size_bytes)
        return operation(*args, **kwargs)

    return {getattr(torch.ops.aten, name).default: product for name in _PRODUCTS}
