"""Makes the candidates of one model in one variant, with the bytes and seconds that rules predict for them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fitroom.batch import micro_batch_sizes
from fitroom.keras_model.optimizers import SLOTS
from fitroom.keras_model.recompute import resident_bytes
from fitroom.planning.candidates import Candidate
from fitroom.planning.remat_choices import RematChoices
from fitroom.planning.variant import Variant
from fitroom.remat.segmentation import Segmentation
from fitroom.remat.shapes import num_bytes

SecondsOfStep = Callable[..., float]
"""`StepTime.seconds`."""

_UNKNOWN_BYTES_A_SAMPLE = 2**20
"""For a model whose layers form no graph: any number serves until the first estimate."""


@dataclass(frozen=True, kw_only=True)
class CandidateFactory:
    """One model in one variant, and which micro-batches and remat segments it may be trained with."""

    variant: Variant
    batch_size: int
    may_recompute: bool
    may_split: bool
    """Whether the batch may be split into micro-batches."""

    micro_batch: int | None = None
    """The largest micro-batch, where the user has set it."""

    weights_bytes: int
    """The size of all weights that are trained."""

    resident_bytes: int
    """What is allocated through the whole step, with the model's own optimizer."""

    remat_choices: RematChoices | None = field(repr=False)
    """None where the layers form no graph."""

    seconds: SecondsOfStep | None = field(repr=False)
    """None where the work of the model cannot be counted."""

    @staticmethod
    def bytes_of(model: Any, batch_size: int) -> dict[str, int]:
        """The fields `weights_bytes` and `resident_bytes` for a model."""
        weights = model.trainable_variables
        return {
            "weights_bytes": sum(num_bytes(each.shape, each.dtype) for each in weights),
            "resident_bytes": resident_bytes(model, batch_size),
        }

    def sizes(self) -> list[int]:
        """The micro-batches that divide the batch evenly, the largest first."""
        if self.micro_batch is not None:
            return micro_batch_sizes(self.batch_size, self.micro_batch)[:1]
        if not self.may_split:
            return [self.batch_size]
        return sorted({-(-self.batch_size // number) for number in range(1, self.batch_size + 1)}, reverse=True)

    @property
    def can_recompute(self) -> bool:
        """Whether the model can be recomputed, and may be."""
        return self.may_recompute and self.remat_choices is not None

    def plain(self, micro_batch: int) -> Candidate:
        """The candidate that recomputes nothing."""
        return self._make(micro_batch, self.remat_choices.none if self.remat_choices else None)

    def recomputed(self, micro_batch: int, counted_bytes: int) -> Candidate | None:
        """The candidate that recomputes least within so many counted bytes; None where there is none."""
        sample_bytes = (counted_bytes - self._fixed_bytes(micro_batch)) // micro_batch
        segmentation = self.remat_choices.within(sample_bytes) if self.remat_choices else None
        return self._make(micro_batch, segmentation) if segmentation else None

    def blocks(self, micro_batch: int) -> Candidate:
        """The candidate with `remat="blocks"`; the plain one where nothing can be recomputed."""
        if self.remat_choices is None or not self.may_recompute:
            return self.plain(micro_batch)
        return self._make(micro_batch, self.remat_choices.blocks)

    def tightest(self, micro_batch: int) -> Candidate:
        """The candidate whose segments take least memory; the plain one where nothing can be recomputed."""
        if self.remat_choices is None or not self.may_recompute:
            return self.plain(micro_batch)
        return self._make(micro_batch, self.remat_choices.tightest)

    def _make(self, micro_batch: int, segmentation: Segmentation | None) -> Candidate:
        return Candidate(
            variant=self.variant,
            batch_size=self.batch_size,
            micro_batch=micro_batch,
            remat=self.remat_choices.named(segmentation) if self.remat_choices and segmentation else "none",
            segments=segmentation.segments if segmentation else (),
            counted_bytes=self._fixed_bytes(micro_batch)
            + micro_batch * (segmentation.peak_bytes if segmentation else _UNKNOWN_BYTES_A_SAMPLE),
            seconds=self._predict_seconds(micro_batch, segmentation),
        )

    def _fixed_bytes(self, micro_batch: int) -> int:
        """What is allocated through the whole step; with several micro-batches, also the sum of their gradients."""
        found = self.resident_bytes
        if self.variant.optimizer in SLOTS:  # in place of Adam's two, which is what the model is taken to have
            found += (SLOTS[self.variant.optimizer] - 2) * self.weights_bytes
        return max(found, self.weights_bytes) + (self.weights_bytes if micro_batch < self.batch_size else 0)

    def _predict_seconds(self, micro_batch: int, segmentation: Segmentation | None) -> float:
        if self.seconds is None:  # these put candidates in order and mean nothing else
            halved = 0.6 if self.variant.precision != "float32" else 1.0
            return halved + 0.1 * -(-self.batch_size // micro_batch)
        return self.seconds(
            batch_size=self.batch_size,
            micro_batch=micro_batch,
            precision=self.variant.precision,
            jit=self.variant.jit is not False,
            kernels=self.variant.kernels,
            segments=segmentation.segments if segmentation else (),
        )
