"""A variant: the knobs of a recipe other than micro-batch and remat."""

from dataclasses import dataclass

from fitroom.planning.option import Change
from fitroom.recipe import EFFECTS, PRECISIONS, Recipe, Remat

LEAN_OPTIMIZERS = ("adafactor", "lion", "sgd")
"""What `allow="optimizer"` tries, by how little the training differs from Adam's; each has fewer slots."""

FROZEN_SHARES = (0.25, 0.5, 0.75, 1.0)
"""What `allow="frozen-layers"` tries: the share of the layers with weights that is frozen, counted from the first. The
last layer is always trained."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One way to compute a step, whatever its micro-batch and remat segments."""

    precision: str
    jit: bool | None = None
    """None where there is no choice."""

    kernels: str | None = None
    """None for Keras's own."""

    input_dtype: str | None = None
    optimizer: str | None = None
    """None for the model's own optimizer."""

    image_size: int | None = None
    """None for the model's own image size."""

    frozen_layers: int | None = None
    """None where no layers are frozen beyond the model's own."""

    @property
    def words(self) -> str:
        """The precision and what changes the task, for progress lines.

        >>> Variant(precision="float32", image_size=224, frozen_layers=9).words
        'float32, 224 pixels, 9 layers frozen'
        """
        pixels = f"{self.image_size} pixels" if self.image_size else None
        frozen = f"{self.frozen_layers} layers frozen" if self.frozen_layers else None
        fused = "fused kernels" if self.kernels == "fused" else None
        return ", ".join(filter(None, (self.precision, fused, self.optimizer, pixels, frozen)))

    def recipe(self, *, micro_batch: int | None, remat: str | Remat) -> Recipe:
        """The recipe of this variant with a micro-batch and remat segments, for the step of `fitroom.fit`."""
        return Recipe(
            precision=self.precision if self.precision in PRECISIONS else None,  # else it is the model's own
            jit=self.jit,
            kernels=self.kernels,
            input_dtype=self.input_dtype,
            optimizer=self.optimizer,
            image_size=self.image_size,
            frozen_layers=self.frozen_layers,
            micro_batch=micro_batch,
            step="fitroom",
            remat=remat,
        )

    def changes_from(self, own: "Variant") -> tuple[Change, ...]:
        """List the knobs that differ from the user's own variant."""
        differing = (
            (knob, getattr(own, knob), getattr(self, knob))
            for knob in ("jit", "input_dtype", "kernels", "precision", "optimizer", "image_size", "frozen_layers")
        )
        return tuple(
            Change(
                knob=knob,
                before=_format_value(knob, before),
                after=_format_value(knob, after),
                effect=EFFECTS[knob],
            )
            for knob, before, after in differing
            if after is not None and before != after
        )


def _format_value(knob: str, value: object) -> str:
    if knob == "kernels":
        return "fused kernels" if value == "fused" else "Keras's kernels"
    if knob == "frozen_layers" and value:
        return f"the first {value} frozen"
    return {None: "the model's own", True: "jit", False: "no jit"}.get(value, str(value))  # type: ignore[call-overload,no-any-return]
