"""Whether the input keeps up with the training, and which setting of the user's own source makes it faster.

The one question is how long a training waits for its next batch beside the time of its step:

    advice = advise_input(x, wait_seconds=0.120, step_seconds=0.040)    # x as given to `fit`; both for one batch
    if advice.is_slow:
        print(advice.found)       # "the training waits 75 % of its time for the next batch of its tf.data pipeline"
        print(advice.fix)         # "dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)"

`fitroom doctor --data` measures both times; a training that is being watched has them anyway.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fitroom.checks.input_source import InputSource, describe_source
from fitroom.data.host_memory import available_bytes
from fitroom.data.settings import default_workers
from fitroom.units import format_bytes

SLOW_SHARE = 0.10
"""The share of its time that a training may wait for batches before its input counts as too slow."""

_NAMES = {
    "tf.data": "tf.data pipeline",
    "PyDataset": "PyDataset",
    "DataLoader": "DataLoader",
    "folder of images": "folder of images",
    "arrays": "arrays",
    "generator": "generator",
    "Grain": "Grain pipeline",
    "other": "data",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One change to the source: what to write, and what it does."""

    code: str
    why: str


@dataclass(frozen=True, kw_only=True)
class InputAdvice:
    """The verdict on a source of batches."""

    source: InputSource
    is_slow: bool | None
    """Whether the training waits too long; None where the time of its step is not known."""

    wait_share: float | None
    """Of the time of a batch, the part that is waiting, 0 to 1."""

    found: str
    settings: tuple[Setting, ...]
    """What to change, the most promising first; empty where the input keeps up."""

    @property
    def fix(self) -> str | None:
        """The most promising setting, as code to write."""
        return self.settings[0].code if self.settings else None


def advise_input(
    source: Any, wait_seconds: float, step_seconds: float | None, *, cache_bytes: int | None = None
) -> InputAdvice:
    """Judge whether the input keeps up, and choose the settings of this source that make it faster.

    Nothing is read from the data, and no framework is imported.

    Args:
        source: what was given to `fit` as `x`, or an `InputSource` that describes it.
        wait_seconds: how long the training waited for a batch, on average over batches after the first few.
        step_seconds: how long the step on one batch took, waiting not included. None where it is unknown: settings
            are then listed whatever the time is.
        cache_bytes: what all decoded samples take in the host's memory, where that is known.
    """
    described = source if isinstance(source, InputSource) else describe_source(source)
    name = _NAMES[described.kind]
    if step_seconds is None:
        found = f"a batch of this {name} takes {format_seconds(wait_seconds)}; faster steps than that wait for it"
        return InputAdvice(
            source=described,
            is_slow=None,
            wait_share=None,
            found=found,
            settings=tuple(_list_settings(described, cache_bytes)),
        )
    share = wait_seconds / (wait_seconds + step_seconds) if wait_seconds > 0 else 0.0
    times = f"{format_seconds(wait_seconds)} a batch, the step {format_seconds(step_seconds)}"
    if share <= SLOW_SHARE:
        found = f"the {name} {'keep' if name == 'arrays' else 'keeps'} up: waiting takes {times}"
        return InputAdvice(source=described, is_slow=False, wait_share=share, found=found, settings=())
    return InputAdvice(
        source=described,
        is_slow=True,
        wait_share=share,
        found=f"training waits {share:.0%} of its time for the {name}: {times}",
        settings=tuple(_list_settings(described, cache_bytes)),
    )


def format_seconds(seconds: float) -> str:
    """Write a short time.

    >>> format_seconds(0.0123), format_seconds(1.5), format_seconds(0.00004)
    ('12.3 ms', '1.50 s', '<0.1 ms')
    """
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.0001 else "<0.1 ms"


def _list_settings(source: InputSource, cache_bytes: int | None) -> Iterator[Setting]:
    cores = default_workers()
    match source.kind:
        case "tf.data":
            yield from _list_tf_data(source, cache_bytes)
        case "PyDataset":
            yield from _list_py_dataset(source, cores)
        case "DataLoader":
            yield from _list_loader(source, cores)
        case "folder of images":
            yield from _list_folder(source, cores, cache_bytes)
        case "arrays":
            yield Setting(
                code="x = numpy.ascontiguousarray(x, dtype='float32')",
                why="a memory map, another layout or float64 makes every batch a copy from disk or a conversion",
            )
        case "Grain":
            yield Setting(
                code=f"dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers={cores}))",
                why="batches are made by processes, ahead of the training",
            )
        case _:
            yield Setting(
                code=f"class Batches(keras.utils.PyDataset): ...  # Batches(workers={max(cores, 2)})",
                why="a generator gives one batch after the other; a PyDataset makes batch i by its number, so that "
                "several workers make them at once",
            )
            yield Setting(
                code="tf.data.Dataset.from_generator(...).prefetch(tf.data.AUTOTUNE)",
                why="the next batch is made while a step runs, though by one thread",
            )


def _list_tf_data(source: InputSource, cache_bytes: int | None) -> Iterator[Setting]:
    if source.has_parallel_map is False:
        yield Setting(
            code="dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)",
            why="`map` decodes on one core without it",
        )
    if not source.has_prefetch:
        yield Setting(
            code="dataset.prefetch(tf.data.AUTOTUNE)",
            why="as the last call: the next batches are made while a step runs",
        )
    if not source.has_cache:
        yield _cache_setting(cache_bytes, "dataset.cache()", 'dataset.cache("decoded.cache")')


def _list_py_dataset(source: InputSource, cores: int) -> Iterator[Setting]:
    workers = source.workers or 0
    if workers < max(cores, 2):
        yield Setting(
            code=f"super().__init__(workers={max(cores, 2)}, max_queue_size={2 * max(cores, 2)})",
            why=f"in your dataset's `__init__`, which leaves workers={workers}: that many threads make batches",
        )
    else:
        yield _cores_setting(cores)
    if not source.uses_processes:
        yield Setting(
            code="super().__init__(use_multiprocessing=True)",
            why="for Keras's own `fit` where batches are made by Python code, of which threads run one at a time",
        )


def _list_loader(source: InputSource, cores: int) -> Iterator[Setting]:
    workers = source.workers or 0
    if workers < cores:
        yield Setting(
            code=f"DataLoader(..., num_workers={max(cores, 2)}, persistent_workers=True)",
            why="the training makes its own batches" if not workers else f"it has {workers} workers for {cores} cores",
        )
    else:
        yield _cores_setting(cores)
    if not source.pins_memory:
        yield Setting(
            code="DataLoader(..., pin_memory=True)",
            why="batches in pinned memory are copied to an NVIDIA card while it computes",
        )


def _list_folder(source: InputSource, cores: int, cache_bytes: int | None) -> Iterator[Setting]:
    if importlib.util.find_spec("cv2") is None:
        yield Setting(code="pip install 'fitroom[fast]'", why="OpenCV reads images several times as fast as Pillow")
    if (source.workers or 0) < cores:
        yield Setting(
            code=f"fitroom.data.images(..., workers={cores})",
            why=f"{source.workers} threads decode on a machine of {cores} cores",
        )
    if not source.has_cache:
        yield _cache_setting(
            cache_bytes,
            "fitroom train --cache ram, or fitroom.data.images(..., cache='ram')",
            "fitroom train --cache disk, or fitroom.data.images(..., cache='disk')",
        )
    elif (source.workers or 0) >= cores:
        yield _cores_setting(cores)


def _cache_setting(cache_bytes: int | None, in_memory: str, on_disk: str) -> Setting:
    """A cache in memory where it takes at most half of what is free, else on disk."""
    free_bytes = available_bytes()
    sizes = f"decoded samples take {format_bytes(cache_bytes)} of {format_bytes(free_bytes)} free host memory"
    if cache_bytes is None:
        return Setting(code=in_memory, why="before random augmentation, if decoded samples fit into the host's memory")
    if cache_bytes <= free_bytes // 2:
        return Setting(code=in_memory, why=f"before random augmentation: {sizes}")
    return Setting(code=on_disk, why=f"before random augmentation, on disk: {sizes}")


def _cores_setting(cores: int) -> Setting:
    return Setting(
        code="store the images at the size that you train on, or decode once into a cache",
        why=f"all {cores} cores of this machine make batches already",
    )
