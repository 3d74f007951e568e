"""The kinds of data that are read as a stream, from the front, and the properties of each."""

from dataclasses import dataclass, field
from typing import Any

from fitroom.batch import leaves

_TF_DATA = (
    "The batches before are read again and skipped. Where the tf.data.Dataset shuffles or draws random numbers, "
    "they are the same batches only if it is seeded: `shuffle(..., seed=...)`, or `keras.utils.set_random_seed(...)` "
    "before it is made."
)
_LOADER = "The batches before are read again and skipped, in the order of the run that stopped."
_LOADER_WORKERS = (
    _LOADER + " What its {workers} worker processes draw from other generators than PyTorch's is not repeated."
)
_AGAIN = (
    "The batches before are read again and skipped. They are the same only if iterating over the {name} again gives "
    "the same batches in the same order."
)
_ONCE = (
    "A generator cannot start in the middle: it is run from its beginning, and what was trained is skipped. The run is "
    "resumed exactly only if the script, run again, makes it yield the same batches in the same order."
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A stream of batches, and what is known of it before it is read."""

    data: Any
    name: str
    resume_note: str
    begins_again: bool = True
    """Whether iterating anew begins at the beginning."""

    counts_passes: bool = False
    """Whether the order depends on how often a pass was begun in this process."""

    native: str | None = None
    """The backend that this kind of data belongs to; making an iterator over them may draw their next order."""

    num_batches: int | None = None
    batch_size: int | None = None
    num_samples: int | None = None
    described: dict[str, Any] = field(default_factory=dict)
    """Further entries of the fingerprint."""

    fills_again: bool = False
    """Whether it may write its next batch into the arrays of the one before, as hand-written generators do."""

    is_torch_loader: bool = False
    """Whether it is PyTorch's: its batches are lists, of which Keras makes tuples for the other frameworks."""

    holders: tuple[Any, ...] = ()
    """Objects that may hold random generators in their attributes."""


def of_tf_dataset(dataset: Any) -> Kind:
    """A batched `tf.data.Dataset`. One that is infinite or of unknown length has no number of batches."""
    cardinality = int(dataset.cardinality())
    specs = list(leaves(dataset.element_spec))
    first = getattr(specs[0], "shape", None) if specs else None
    return Kind(
        data=dataset,
        name="tf.data.Dataset",
        resume_note=_TF_DATA,
        counts_passes=True,
        native="tensorflow",
        num_batches=None if cardinality < 0 else cardinality,
        batch_size=None if first is None or first.rank in (None, 0) else first[0],
        described={"elements": [str(spec) for spec in specs]},
    )


def of_torch_loader(loader: Any) -> Kind:
    """A `torch.utils.data.DataLoader`. Its order is drawn from PyTorch's generator, or its own, at each beginning."""
    sized = hasattr(loader.dataset, "__len__")
    workers = int(loader.num_workers)
    return Kind(
        data=loader,
        name="DataLoader",
        resume_note=_LOADER_WORKERS.format(workers=workers) if workers else _LOADER,
        native="torch",
        num_batches=len(loader) if sized else None,
        batch_size=loader.batch_size,
        num_samples=len(loader.dataset) if sized else None,
        described={"dataset": type(loader.dataset).__name__},
        is_torch_loader=True,
        holders=(loader, loader.sampler, loader.dataset),
    )


def of_grain(data: Any) -> Kind:
    """Grain's loaders and datasets, whose order is in their seeds."""
    return Kind(data=data, name=f"grain.{type(data).__name__}", resume_note=_AGAIN.format(name="Grain data"))


def of_iterator(iterator: Any) -> Kind:
    """A generator, or another iterator, which can be read only once."""
    return Kind(data=iterator, name=type(iterator).__name__, resume_note=_ONCE, begins_again=False, fills_again=True)


def of_iterable(data: Any) -> Kind:
    """Anything else that can be iterated over anew each time."""
    name = type(data).__name__
    sized = hasattr(data, "__len__")
    return Kind(
        data=data,
        name=name,
        resume_note=_AGAIN.format(name=name),
        num_batches=len(data) if sized else None,
        fills_again=True,
        holders=(data,),
    )
