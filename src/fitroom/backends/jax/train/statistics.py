"""Statistics that a forward pass changes, such as BatchNormalization's, in a step of several micro-batches.

Every micro-batch starts from the value before the batch. The outcomes are averaged by samples, as differences, so that
what no micro-batch changes stays as it is to the last bit. Of whole numbers, which count something, the last outcome is
taken.
"""

from typing import Any

import jax.numpy as jnp


def zero_change(before: Any) -> Any:
    """The change before the first micro-batch, from which `add_change` begins."""
    return jnp.zeros(before.shape, _exact(before)) if _is_averaged(before) else before


def add_change(before: Any, so_far: Any, after: Any, share: float) -> Any:
    """The change so far and that of one more micro-batch, which led to `after` and has this share of the samples."""
    return so_far + share * (after.astype(so_far.dtype) - before) if _is_averaged(before) else after


def apply_change(before: Any, so_far: Any) -> Any:
    """The value of a statistic after all micro-batches."""
    return (before + so_far).astype(before.dtype) if _is_averaged(before) else so_far


def _is_averaged(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.floating))


def _exact(value: Any) -> Any:
    return jnp.promote_types(value.dtype, "float32")
