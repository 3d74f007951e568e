"""The seconds that a card would take at best: its operations, and the bytes it moves, as fast as its datasheet says.

The two are added. Kernels that did both at once would take the longer of them alone, but added they come nearer to what
was measured: on JAX about 4 % from models that were left out of the fit, in place of 6 %.
"""

from fitroom.estimating.cards import Card
from fitroom.planning.roofline.work import KINDS, Array, Work

ON_MATRIX_UNITS = ("convolution", "matrix")


def ideal_seconds(work: Work, card: Card, *, backend: str, precision: str) -> Array:
    """For each call and kind of work, forwards, for one sample."""
    import numpy as np

    rates = np.array([_rate(card, kind, backend, precision) for kind in KINDS])
    moved = work.elements * item_bytes(precision)
    return work.operations / rates + moved / card.bandwidth_bytes_per_second


def item_bytes(precision: str) -> int:
    """The size of one number that a layer gives on, by the Keras dtype policy.

    >>> item_bytes("float32"), item_bytes("mixed_bfloat16")
    (4, 2)
    """
    return {"float32": 4, "float64": 8}.get(precision, 2)


def _rate(card: Card, kind: str, backend: str, precision: str) -> int:
    """Operations a second. What has no matrix units for a precision computes in float32."""
    if kind not in ON_MATRIX_UNITS:
        return card.fp32_flops
    if precision == "float32":
        # All three frameworks let convolutions round to tf32 unless told otherwise; PyTorch no matrix products.
        in_tf32 = not (backend == "torch" and kind == "matrix")
        return card.tf32_flops or card.fp32_flops if in_tf32 else card.fp32_flops
    return (card.bf16_flops if "bfloat16" in precision else card.fp16_flops) or card.fp32_flops
