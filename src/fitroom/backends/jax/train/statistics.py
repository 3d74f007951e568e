"""How far statistics move in a step of several parts.

Every part starts from the value before the batch. The outcomes are averaged by samples, as differences, so that what
no part moves stays as it is to the last bit. Of whole numbers, which count something, the last outcome is taken.
"""

from typing import Any

import jax.numpy as jnp


def unmoved(before: Any) -> Any:
    """What `moved` begins with."""
    return jnp.zeros(before.shape, _exact(before)) if _is_averaged(before) else before


def moved(before: Any, so_far: Any, after: Any, share: float) -> Any:
    """With one part more, which led to `after` and has this share of the samples."""
    return so_far + share * (after.astype(so_far.dtype) - before) if _is_averaged(before) else after


def at_last(before: Any, so_far: Any) -> Any:
    """The value after all parts."""
    return (before + so_far).astype(before.dtype) if _is_averaged(before) else so_far


def _is_averaged(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.floating))


def _exact(value: Any) -> Any:
    return jnp.promote_types(value.dtype, "float32")
