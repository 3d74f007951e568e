"""One model in one variant: the candidates that it offers, with what rules count for them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fitroom.batch import cut_sizes
from fitroom.keras_model.recompute import resident_bytes
from fitroom.planning.candidates import Candidate
from fitroom.planning.covers import Covers
from fitroom.planning.variant import Variant
from fitroom.remat.segmentation import Segmentation
from fitroom.remat.shapes import num_bytes

SecondsOfStep = Callable[..., float]
"""`StepTime.seconds`."""

_UNKNOWN_BYTES_A_SAMPLE = 2**20
"""Of a model whose layers form no graph: any number will do until the first estimate."""

_SLOTS = {"adafactor": 0, "lion": 1, "sgd": 0}
"""How many numbers an optimizer keeps for each weight."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What can be trained, and how."""

    variant: Variant
    batch_size: int
    may_recompute: bool
    may_cut: bool
    micro_batch: int | None = None
    """The most samples at once, where that is settled."""

    weights_bytes: int
    """Of all that is trained."""

    resident_bytes: int
    """What is there through the whole step, with the model's own optimizer."""

    covers: Covers | None = field(repr=False)
    """None where the layers form no graph."""

    seconds: SecondsOfStep | None = field(repr=False)
    """None where the work of the model cannot be counted."""

    @staticmethod
    def bytes_of(model: Any, batch_size: int) -> dict[str, int]:
        """Those two of a model."""
        weights = model.trainable_variables
        return {
            "weights_bytes": sum(num_bytes(each.shape, each.dtype) for each in weights),
            "resident_bytes": resident_bytes(model, batch_size),
        }

    def sizes(self) -> list[int]:
        """The micro-batches that even parts of the batch come to, the largest first."""
        if self.micro_batch is not None:
            return cut_sizes(self.batch_size, self.micro_batch)[:1]
        if not self.may_cut:
            return [self.batch_size]
        return sorted({-(-self.batch_size // parts) for parts in range(1, self.batch_size + 1)}, reverse=True)

    @property
    def can_recompute(self) -> bool:
        """Whether anything can be computed again, and may be."""
        return self.may_recompute and self.covers is not None

    def plain(self, micro_batch: int) -> Candidate:
        """Nothing recomputed."""
        return self._candidate(micro_batch, self.covers.none if self.covers else None)

    def recomputed(self, micro_batch: int, counted_bytes: int) -> Candidate | None:
        """The least recomputed that the rules count so many bytes for, or None where there is no such choice."""
        sample_bytes = (counted_bytes - self._fixed_bytes(micro_batch)) // micro_batch
        cover = self.covers.within(sample_bytes) if self.covers else None
        return self._candidate(micro_batch, cover) if cover else None

    def blocks(self, micro_batch: int) -> Candidate:
        """Recomputed as `remat="blocks"` has it, where that is possible."""
        if self.covers is None or not self.may_recompute:
            return self.plain(micro_batch)
        return self._candidate(micro_batch, self.covers.blocks)

    def tightest(self, micro_batch: int) -> Candidate:
        """With as little memory as recomputing can do with, where that is possible."""
        if self.covers is None or not self.may_recompute:
            return self.plain(micro_batch)
        return self._candidate(micro_batch, self.covers.tightest)

    def _candidate(self, micro_batch: int, cover: Segmentation | None) -> Candidate:
        return Candidate(
            variant=self.variant,
            batch_size=self.batch_size,
            micro_batch=micro_batch,
            remat=self.covers.named(cover) if self.covers and cover else "none",
            segments=cover.segments if cover else (),
            counted_bytes=self._fixed_bytes(micro_batch)
            + micro_batch * (cover.peak_bytes if cover else _UNKNOWN_BYTES_A_SAMPLE),
            seconds=self._seconds(micro_batch, cover),
        )

    def _fixed_bytes(self, micro_batch: int) -> int:
        """What is there through the whole step; where the batch is cut, also the sum of its gradients."""
        found = self.resident_bytes
        if self.variant.optimizer in _SLOTS:  # in place of Adam's two, which is what the model is taken to have
            found += (_SLOTS[self.variant.optimizer] - 2) * self.weights_bytes
        return max(found, self.weights_bytes) + (self.weights_bytes if micro_batch < self.batch_size else 0)

    def _seconds(self, micro_batch: int, cover: Segmentation | None) -> float:
        if self.seconds is None:
            halved = 0.6 if self.variant.precision != "float32" else 1.0
            return halved + 0.1 * -(-self.batch_size // micro_batch)
        return self.seconds(
            batch_size=self.batch_size,
            micro_batch=micro_batch,
            precision=self.variant.precision,
            jit=self.variant.jit is not False,
            segments=cover.segments if cover else (),
        )
