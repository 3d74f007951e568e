"""`job.json` as a typed value: what `fitroom train` was asked for, and what it chose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fitroom.errors import InputError
from fitroom.files.field_types import read_known_fields
from fitroom.recipe import Remat


@dataclass(frozen=True, kw_only=True)
class JobModel:
    """The model that is trained."""

    text: str | None = None
    """As it was given: a name, a file, or file.py:function."""

    name: str | None = None
    """As Keras names it."""

    parameters: int | None = None
    trainable_parameters: int | None = None
    weights: str | None = None
    """Where its initial weights are from."""


@dataclass(frozen=True, kw_only=True)
class JobBudget:
    """The bytes that training may take, and who set them."""

    bytes: int | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobPrecision:
    """The dtype policy, and the reason for it."""

    policy: str | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobRecipe:
    """How a step is carried out; `micro_batch` is None for whole batches."""

    batch_size: int | None = None
    micro_batch: int | None = None
    jit: bool | None = None
    remat: str | dict[str, Any] | None = None
    """As `Recipe.to_dict` has it."""

    kernels: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobData:
    """The images."""

    folder: str | None = None
    seed: int | None = None
    counts: Mapping[str, Mapping[str, int] | None] = field(default_factory=dict)
    """For each split, how many images each class has."""

    warnings: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """The content of `job.json`. What the file of an older version lacks is None or empty."""

    values: dict[str, Any] = field(default_factory=dict, repr=False)
    """The content as JSON, with fields that are not known here."""

    command: Sequence[Any] = ()
    options: dict[str, Any] = field(default_factory=dict)
    """The flags of the command, by name."""

    begun: str | None = None
    model: JobModel = JobModel()
    backend: str | None = None
    device: str | None = None
    classes: Sequence[str] = ()
    budget: JobBudget = JobBudget()
    precision: JobPrecision = JobPrecision()
    image_size: int | None = None
    optimizer: str | None = None
    frozen_layers: int | None = None
    recipe: JobRecipe = JobRecipe()
    recipe_why: str | None = None
    plan: dict[str, Any] | None = None
    """As `Plan.to_dict` has it; None where there is no plan."""

    learning_rate: float | None = None
    epochs: int | None = None
    data: JobData = JobData()
    augmentation: dict[str, Any] | None = None
    versions: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Job":
        """Read the content of a `job.json` of any version. A field of another type is left out.

        >>> Job.from_dict({"image_size": 299, "precision": {"policy": "float32"}, "epochs": "many"}).precision.policy
        'float32'
        """
        return replace(read_known_fields(cls, values), values=dict(values))

    def __bool__(self) -> bool:
        """Whether there is anything in it: a run of `fitroom.fit` has no `job.json`."""
        return bool(self.values)


def format_remat(remat: Any) -> str | None:
    """Say what a recipe in a file recomputes; None where that is nothing.

    >>> format_remat("blocks"), format_remat({"segments": [["conv1", "add"]]}), format_remat("none")
    ('blocks', '1 segment', None)
    """
    if isinstance(remat, dict):
        try:
            return str(Remat(**remat))
        except (TypeError, InputError):  # of a newer version, or edited
            return None
    return None if remat in (None, "none") else str(remat)
