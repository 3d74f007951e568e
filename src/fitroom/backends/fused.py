"""Whether a framework has fused operations for a model's layers."""

from typing import Any

from fitroom.backends.contract import Backend
from fitroom.errors import InputError
from fitroom.keras_model.attention import layers_with_attention_dropout

_NOT_MEASURED = {"tensorflow": ("mixed_bfloat16", "mixed_float16", "bfloat16", "float16")}
"""Where a backend has fused steps, but none of that precision was measured on a card. In half precision TensorFlow's
kernel copies what comes in and goes out: of that only estimates are known."""


def takes_fused(backend: Backend, model: Any, precision: str, *, jit: bool | None) -> bool:
    """Whether plans, and `fit` when memory runs out, take fused kernels without being asked, in a dtype policy."""
    return precision not in _NOT_MEASURED.get(backend.name, ()) and has_fused(backend, model, jit=jit)


def leaves_kernels_to_keras(backend: Backend) -> bool:
    """Whether a training here takes fused kernels only when asked: TensorFlow's on a CPU.

    There its executor computes several layers at a time, and a fused step took half more than estimated.
    """
    return backend.name == "tensorflow" and backend.devices()[0].kind == "cpu"


def has_fused(backend: Backend, model: Any, *, jit: bool | None) -> bool:
    """Whether fused operations serve any layer of a model. `jit` is that of the step; None: as Keras has it on a card.

    On PyTorch steps are eager, whatever `jit` says.
    """
    return any(layer.operation for layer in backend.list_fused(model, jit=jit))


def check_attention_dropout(backend: Backend, model: Any) -> None:
    """Raise InputError where attention with fused dropout is asked for and there is none."""
    if backend.name != "torch":
        raise InputError(
            f"Attention with dropout is left to Keras on {backend.name}. Received: attention_dropout='fused'.",
            hint="leave `attention_dropout` out; PyTorch has a fused operation for it",
        )
    if not layers_with_attention_dropout(model):
        raise InputError(
            f"No layer of {model.name!r} is a MultiHeadAttention of Keras's with dropout. "
            "Received: attention_dropout='fused'.",
            hint="leave `attention_dropout` out: without dropout Keras takes PyTorch's fused attention by itself",
        )


def check_fused(backend: Backend, model: Any, *, jit: bool | None) -> None:
    """Raise InputError where fused kernels are asked for and serve nothing."""
    layers = backend.list_fused(model, jit=jit)
    if any(layer.operation for layer in layers):
        return
    if backend.name == "jax":
        raise InputError(
            "There are no fused kernels on jax: XLA fuses the operations of a step by itself.",
            hint="leave `kernels` out",
        )
    if backend.name == "tensorflow" and backend.list_fused(model, jit=False):
        raise InputError(
            "There are no fused kernels for a jitted step on tensorflow: XLA fuses its operations by itself.",
            hint="leave `kernels` out; with --no-jit (`jit=False`) the step is a graph, which fused kernels serve",
        )
    left = sorted({f"{layer.kind} ({layer.why_not})" for layer in layers})
    raise InputError(
        f"No layer of {model.name!r} is served by a fused kernel{': ' + ', '.join(left) if left else ''}.",
        hint="leave `kernels` out; `fitroom kernels MODEL` lists which layers are served",
    )
