"""A recipe: how one optimizer step is carried out, and what each of its knobs may change about the result."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from fitroom.batch import micro_batch_sizes
from fitroom.errors import InputError, UnknownNameError
from fitroom.units import format_bytes, parse_bytes

REMAT_NAMES = ("none", "blocks")
"""What `Recipe(remat=...)` may be besides a `Remat`."""

KERNELS = ("keras", "fused")
"""What `Recipe(kernels=...)` and `Recipe(attention_dropout=...)` may be."""

StepKind = Literal["keras", "fitroom"]
"""Whose step is carried out: that of Keras's `model.fit`, or that of `fitroom.fit`."""


@dataclass(frozen=True, kw_only=True)
class Remat:
    """Which segments of a model's layers are recomputed in the backward pass: give `segments` or `budget`.

    >>> Remat(budget="6GiB").budget_bytes
    6442450944
    >>> Remat(segments=[("block2_sepconv1", "add"), ("block3_sepconv1_act", "add_1")]).segments[1]
    ('block3_sepconv1_act', 'add_1')
    """

    segments: Sequence[Sequence[str]] | None = None
    """The first and the last layer of each segment, in the order in which `fitroom segments` lists them."""

    budget: int | str | None = None
    """The allocator's limit to come under: the least is recomputed that gets the step there."""

    def __post_init__(self) -> None:
        if (self.segments is None) == (self.budget is None):
            received = "both" if self.segments is not None else "neither"
            raise InputError(
                f"`Remat` takes either `segments` or `budget`. Received: {received}.",
                hint='fitroom.Remat(budget="6GiB"); remat="blocks" for a choice without a budget',
            )
        if self.budget is not None:
            parse_bytes(self.budget)
        if self.segments is not None:
            object.__setattr__(self, "segments", tuple(_pair(segment) for segment in self.segments))

    @property
    def budget_bytes(self) -> int | None:
        """The budget as a number."""
        return None if self.budget is None else parse_bytes(self.budget)

    def __str__(self) -> str:
        """A short description for people.

        >>> str(Remat(segments=[("conv1", "add")]))
        '1 segment'
        """
        if self.segments is None:
            return f"within {format_bytes(self.budget_bytes)}"
        return "1 segment" if len(self.segments) == 1 else f"{len(self.segments)} segments"

    def to_dict(self) -> dict[str, object]:
        """The field that was given, as JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def _pair(segment: Sequence[str]) -> tuple[str, str]:
    names = (segment,) if isinstance(segment, str) else tuple(segment)
    if not 1 <= len(names) <= 2 or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"A segment is the names of its first and its last layer. Received: {segment!r}.",
            hint="`fitroom segments MODEL` lists the layers in their order",
        )
    return names[0], names[-1]


PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16", "bfloat16", "float16")
"""The Keras dtype policies a model can be trained in."""

Effect = Literal["nothing", "rounding", "random numbers", "batch statistics", "the task itself"]
"""What a knob may change about the result of training, the mildest first."""

EFFECTS: dict[str, Effect] = {
    "jit": "nothing",
    "remat": "nothing",
    "input_dtype": "nothing",
    "kernels": "rounding",
    "precision": "rounding",
    "attention_dropout": "random numbers",
    "micro_batch": "batch statistics",
    "keras_accumulation": "batch statistics",
    "optimizer": "the task itself",
    "image_size": "the task itself",
    "frozen_layers": "the task itself",
}
"""What each knob changes, in the order in which a planner prefers to turn them. Micro-batches change nothing where no
layer uses statistics of the whole batch."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one optimizer step is carried out. `None` means: as the model has it.

    >>> Recipe(precision="mixed_bfloat16").precision
    'mixed_bfloat16'
    """

    precision: str | None = None
    """A Keras dtype policy: "float32", "mixed_bfloat16", "mixed_float16"."""

    jit: bool | None = None
    """Whether the step is compiled whole."""

    step: StepKind | None = None
    """Whose step it is: "keras" for that of `model.fit`, "fitroom" for that of `fitroom.fit`, which can recompute and
    take micro-batches. None: Keras's, unless `remat` is given or the batch is larger than `micro_batch`."""

    kernels: str | None = None
    """What computes the layers: "keras" for Keras's own operations, "fused" for the framework's fused ones where there
    are any, which take less memory and time. None: Keras's."""

    attention_dropout: str | None = None
    """What computes attention with dropout: "keras", or "fused" for PyTorch's fused operation, which takes less memory
    and time and draws other random numbers. A plan never takes it by itself. None: Keras's."""

    remat: str | Remat | None = None
    """What is recomputed in the backward pass instead of being kept: "none", "blocks", or a `fitroom.Remat`. Given,
    "none" included, it implies `step="fitroom"`."""

    micro_batch: int | None = None
    """The most samples in a micro-batch: larger batches are split, and their gradients added up."""

    keras_accumulation: int | None = None
    """Number of micro-steps per update with the Keras optimizer's own `gradient_accumulation_steps`."""

    optimizer: str | None = None
    """The name of a Keras optimizer to use in place of the model's."""

    input_dtype: str | None = None
    """The dtype in which a batch arrives on the device, such as "uint8"."""

    image_size: int | None = None
    """Height and width of the images, for a model that leaves them open."""

    frozen_layers: int | None = None
    """How many of the first layers with weights are left untrained."""

    def __post_init__(self) -> None:
        if self.precision not in (None, *PRECISIONS):
            known = f"known are: {', '.join(PRECISIONS)}"
            raise UnknownNameError("precision", str(self.precision), PRECISIONS, more=known)
        for name in ("kernels", "attention_dropout"):
            if getattr(self, name) not in (None, *KERNELS):
                more = f"known are: {', '.join(KERNELS)}"
                raise UnknownNameError(name, str(getattr(self, name)), KERNELS, more=more)
        if isinstance(self.remat, dict):  # as `to_dict` gives it
            object.__setattr__(self, "remat", Remat(**self.remat))
        if not isinstance(self.remat, Remat) and self.remat not in (None, *REMAT_NAMES):
            more = f"known are: {', '.join(REMAT_NAMES)}; or fitroom.Remat(budget='6GiB')"
            raise UnknownNameError("remat", str(self.remat), REMAT_NAMES, more=more)
        self._settle_step()
        for name in ("micro_batch", "keras_accumulation", "frozen_layers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(
                    f"`{name}` must be at least 1. Received: {name}={value}.",
                    hint="leave it out to train all layers"
                    if name == "frozen_layers"
                    else "leave it out for the whole batch in one step",
                )
        if self.micro_batch is not None and (self.keras_accumulation or 1) > 1:
            raise InputError(
                "`micro_batch` and `keras_accumulation` both split the batch. Received both.",
                hint="take `micro_batch`: it gives the whole batch's result, Keras's own accumulation does not",
            )

    def _settle_step(self) -> None:
        """Fill in `step` where `remat` implies it, and `remat` where nothing is recomputed in fitroom's step.

        So two recipes for the same step are equal, and files tell the step by `remat` alone.
        """
        known = get_args(StepKind)
        if self.step not in (None, *known):
            raise UnknownNameError("step", str(self.step), known, more=f"known are: {', '.join(known)}")
        if self.step == "keras" and (self.remat is not None or self.micro_batch is not None):
            raise InputError(
                "Keras's own step recomputes nothing and takes whole batches. "
                f"Received: step='keras' with {'remat' if self.remat is not None else 'micro_batch'}.",
                hint="leave `step` out",
            )
        if self.step is None and self.remat is not None:
            object.__setattr__(self, "step", "fitroom")
        if self.step == "fitroom" and self.remat is None:
            object.__setattr__(self, "remat", "none")

    @property
    def recomputes(self) -> bool:
        """Whether anything is recomputed in the backward pass.

        >>> Recipe(remat="blocks").recomputes, Recipe(remat="none").recomputes
        (True, False)
        """
        return self.remat not in (None, "none")

    def step_for(self, batch_size: int) -> StepKind:
        """Whose step a batch of this size goes through.

        >>> Recipe(micro_batch=32).step_for(64), Recipe(micro_batch=32).step_for(32)
        ('fitroom', 'keras')
        """
        return "fitroom" if self.is_split(batch_size) else self.step or "keras"

    def is_split(self, batch_size: int) -> bool:
        """Whether a batch of this size is split into micro-batches."""
        return self.micro_batch is not None and self.micro_batch < batch_size

    def samples_at_once(self, batch_size: int) -> int:
        """The size of the largest micro-batch of a batch.

        >>> Recipe(keras_accumulation=4).samples_at_once(128)
        32
        >>> Recipe(micro_batch=48).samples_at_once(128)
        43
        """
        if self.micro_batch is not None:
            return micro_batch_sizes(batch_size, self.micro_batch)[0]
        steps = self.keras_accumulation or 1
        if batch_size % steps:
            raise InputError(
                f"A batch of {batch_size} cannot be split into {steps} equal micro-batches for accumulation.",
                hint="Keras averages them as if they were equal: choose a number that divides the batch",
            )
        return batch_size // steps

    def to_dict(self) -> dict[str, object]:
        """The knobs that were set, as JSON. A step of fitroom is told by `remat`, as files of all versions have it."""
        knobs = {name: value for name, value in asdict(self).items() if value is not None}
        if self.step == "fitroom":
            del knobs["step"]
        return knobs | ({"remat": self.remat.to_dict()} if isinstance(self.remat, Remat) else {})


def recipe_of(value: Recipe | None) -> Recipe:
    """Check an argument `recipe`; None becomes the empty recipe, the plain step."""
    if value is None:
        return Recipe()
    if not isinstance(value, Recipe):
        raise InputError(
            f"`recipe` must be a `fitroom.Recipe`. Received: {value!r}.", hint="as in fitroom.Recipe(remat='blocks')"
        )
    return value
