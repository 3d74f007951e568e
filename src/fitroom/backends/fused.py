"""Whether a framework has fused operations for a model's layers."""

from typing import Any

from fitroom.backends.contract import Backend
from fitroom.errors import InputError


def has_fused(backend: Backend, model: Any) -> bool:
    """Whether fused operations serve any layer of a model."""
    return any(layer.operation for layer in backend.list_fused(model))


def check_fused(backend: Backend, model: Any) -> None:
    """Raise InputError where fused kernels are asked for and serve nothing."""
    if has_fused(backend, model):
        return
    if backend.name in ("jax", "tensorflow"):
        raise InputError(
            f"There are no fused kernels on {backend.name}: XLA fuses the operations of a jitted step by itself.",
            hint="leave `kernels` out; on PyTorch kernels='fused' takes less memory and time",
        )
    left = sorted({f"{layer.kind} ({layer.why_not})" for layer in backend.list_fused(model)})
    raise InputError(
        f"No layer of {model.name!r} is served by a fused kernel{': ' + ', '.join(left) if left else ''}.",
        hint="leave `kernels` out; `fitroom kernels MODEL` lists which layers are served",
    )
