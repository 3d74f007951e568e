"""Attention as the target card would compute it, decided while a step is traced.

Keras gives attention in half precision to cuDNN's fused operation where the machine has a card of compute capability
8.0 and cuDNN, and asks JAX for both when the step is traced. Without a card the answer would always be no, and the
estimate that of another program than the card runs.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fitroom.cards.catalogue import Card
from fitroom.keras_model.private import override_attribute

ASSUMED_CUDNN = 91000
"""The cuDNN of a machine that has none here: JAX's CUDA packages bring this one or a later one. Which one it is matters
only for heads whose keys and values differ in size."""


@contextmanager
def decide_attention_for(card: Card) -> Iterator[None]:
    """Have Keras and JAX choose the fused attention in the block as they would on the card."""
    try:
        from jax._src.cudnn import fused_attention_stablehlo as fused
    except ImportError:  # of a version that has it elsewhere: it is decided as on this machine
        yield
        return
    capability = card.compute_capability or (0, 0)

    def has_capability(wanted: str) -> bool:
        return capability >= _numbers(wanted)

    def is_capability(wanted: str) -> bool:
        return capability == _numbers(wanted)

    with ExitStack() as stack:
        stack.enter_context(override_attribute(fused, "check_cudnn_version", _cudnn_version(fused)))
        stack.enter_context(override_attribute(fused, "check_compute_capability", has_capability))
        stack.enter_context(override_attribute(fused, "is_cuda_compute_capability_equal", is_capability))
        yield


def uses_fused_attention(program: str) -> bool:
    """Whether a lowered program gives attention to cuDNN."""
    return "__cudnn$fmha" in program


def _cudnn_version(fused: Any) -> Callable[[], int]:
    """A function as JAX's own, which does not fail where there is no cuDNN."""
    own = fused.check_cudnn_version

    def version() -> int:
        try:
            return int(own())
        except Exception:
            return ASSUMED_CUDNN

    return version


def _numbers(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)
