"""What kind of source the data of a training are, and which of its settings for speed are in force.

Nothing is read from the data, and no framework is imported for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fitroom.inputs.recognise import is_grain, is_py_dataset, is_tf_dataset, is_torch_loader

SourceKind = Literal["tf.data", "PyDataset", "DataLoader", "folder of images", "arrays", "generator", "Grain", "other"]

_COSTS_NOTHING = ("options", "take", "skip", "repeat")
"""Steps of tf.data that may follow `prefetch` and leave it the last one that works."""


@dataclass(frozen=True, kw_only=True)
class InputSource:
    """A source of batches and its settings. None is unknown, or does not exist for this kind."""

    kind: SourceKind
    workers: int | None = None
    """Threads or processes that make batches beside the training; 0 where the training makes them itself."""

    uses_processes: bool | None = None
    """Whether the workers are processes: threads of Python code share one interpreter lock."""

    has_parallel_map: bool | None = None
    """Of tf.data: whether every `map` has `num_parallel_calls`. None where there is no `map`."""

    has_prefetch: bool | None = None
    has_cache: bool | None = None
    pins_memory: bool | None = None
    num_batches: int | None = None


def describe_source(data: Any) -> InputSource:
    """Describe what is given to `fit` as `x`: a dataset of any kind, arrays, a generator, or `images(folder).train`."""
    if hasattr(data, "__fitroom_source__") and hasattr(data, "maker"):
        return _of_folder(data)
    if is_tf_dataset(data):
        return _of_tf_data(data)
    if is_torch_loader(data):
        return _of_loader(data)
    if is_py_dataset(data):
        return InputSource(
            kind="PyDataset",
            workers=int(data.workers),
            uses_processes=bool(data.use_multiprocessing),
            has_prefetch=True,
            num_batches=data.num_batches,
        )
    if is_grain(data):
        return InputSource(kind="Grain")
    if hasattr(data, "__next__"):
        return InputSource(kind="generator", workers=0)
    if isinstance(data, dict | list | tuple) or hasattr(data, "shape"):
        return InputSource(kind="arrays")
    return InputSource(kind="generator", workers=0) if hasattr(data, "__iter__") else InputSource(kind="other")


def walk_tf_data(dataset: Any) -> Iterator[Any]:
    """The datasets that a `tf.data.Dataset` is made of: itself, its input, the input of that, and so on."""
    while dataset is not None:
        yield dataset
        inputs = dataset._inputs()
        dataset = inputs[0] if len(inputs) == 1 else None  # `zip` and its like end the chain


def name_stage(dataset: Any) -> str:
    """The public name of the step that made a `tf.data.Dataset`: "map", "batch", "prefetch" and so on."""
    name = type(dataset).__name__.strip("_").removesuffix("V2").removesuffix("Dataset")
    return name.lower()


def _of_folder(data: Any) -> InputSource:
    return InputSource(
        kind="folder of images",
        workers=data.maker.workers,
        uses_processes=False,
        has_prefetch=True,
        has_cache=data.maker.reader.cache is not None,
        num_batches=data.maker.num_batches,
    )


def _of_tf_data(dataset: Any) -> InputSource:
    stages = [name_stage(stage) for stage in walk_tf_data(dataset)]
    maps = [stage for stage in stages if stage.endswith("map") and stage != "flatmap"]
    cardinality = int(dataset.cardinality())
    return InputSource(
        kind="tf.data",
        has_parallel_map=all(stage.startswith("parallel") for stage in maps) if maps else None,
        has_prefetch=next((stage for stage in stages if stage not in _COSTS_NOTHING), None) == "prefetch",
        has_cache="cache" in stages,
        num_batches=cardinality if cardinality >= 0 else None,
    )


def _of_loader(loader: Any) -> InputSource:
    return InputSource(
        kind="DataLoader",
        workers=int(loader.num_workers),
        uses_processes=True,
        has_prefetch=loader.num_workers > 0,
        pins_memory=bool(loader.pin_memory),
        num_batches=len(loader) if hasattr(loader.dataset, "__len__") else None,
    )
