"""A recipe on its way into a plan: what the rules count for it, before any estimate."""

from dataclasses import dataclass
from typing import Any

from fitroom.planning.variant import Variant
from fitroom.recipe import Recipe
from fitroom.remat.segment import Segment
from fitroom.remat.value import Remat


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One variant with a micro-batch and segments."""

    variant: Variant
    batch_size: int
    micro_batch: int
    remat: str | Remat
    """As a recipe says it."""

    segments: tuple[Segment, ...] = ()
    counted_bytes: int
    """By rules that hold for any framework; `Memory` knows what a framework makes of them."""

    seconds: float
    """Of one optimizer step, by the roofline of the card; of a model whose work cannot be counted, good for comparing
    its recipes and nothing else."""

    timed: bool = False
    """Whether the seconds were measured on the device."""

    @property
    def recomputes(self) -> bool:
        """Whether anything is computed again."""
        return self.remat != "none"

    @property
    def is_whole(self) -> bool:
        """Whether the batch goes to the device at once."""
        return self.micro_batch >= self.batch_size

    @property
    def recipe(self) -> Recipe:
        """For `fit` and `estimate`."""
        return self.variant.recipe(micro_batch=None if self.is_whole else self.micro_batch, remat=self.remat)

    @property
    def key(self) -> Any:
        """What tells it from others."""
        return self.variant, self.micro_batch, str(self.remat) if not self.segments else self.segments
