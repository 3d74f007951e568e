"""The time of making a batch, split: by the steps of tf.data, by decoding and augmentation of a folder of images, and
of Python code by the functions that it calls."""

import cProfile
import itertools
import pstats
import time
from collections.abc import Callable
from types import CodeType
from typing import Any

from fitroom.checks.input_source import describe_source, name_stage, walk_tf_data

Parts = dict[str, float]
"""Seconds for one batch by what they are spent on."""

_SECONDS_A_PART = 0.7
_FEW = 2
_SHOWN = 4
_NEARLY_ALL, _LITTLE = 0.9, 0.02


def split_reading(data: Any, batch_size: int) -> Parts:
    """Split the time of making one batch; empty where nothing is known of how these data make one.

    A generator is read for some batches, which it does not give again.

    Args:
        data: what is given to `fit` as `x`.
        batch_size: the samples of one batch.
    """
    kind = describe_source(data).kind
    if kind == "tf.data":
        return _split_tf_data(data, batch_size)
    if kind == "folder of images":
        return _split_folder(data.maker, batch_size)
    if kind == "PyDataset":
        count = min(len(data), _FEW) if data.num_batches is not None else _FEW
        return _split_calls(lambda: [data[i] for i in range(count)], _code(type(data), "__getitem__"), count)
    if kind == "DataLoader" and hasattr(data.dataset, "__len__"):
        numbers = range(min(len(data.dataset), batch_size))
        return _split_calls(lambda: [data.dataset[i] for i in numbers], _code(type(data.dataset), "__getitem__"), 1)
    if kind == "generator":
        items = data if hasattr(data, "__next__") else iter(data)
        code = getattr(items, "gi_code", None) or _code(type(items), "__next__")
        return _split_calls(lambda: list(itertools.islice(items, _FEW)), code, _FEW)
    return {}


def _split_tf_data(dataset: Any, batch_size: int) -> Parts:
    """The time of each step: that of the dataset up to it, less that of the dataset before it."""
    stages = list(walk_tf_data(dataset))[::-1]
    parts: Parts = {}
    before, has_batches = 0.0, False
    for number, stage in enumerate(stages):
        name = name_stage(stage)
        has_batches = has_batches or "batch" in name
        is_end = number == len(stages) - 1
        if not (number == 0 or is_end or name.endswith("map") or "interleave" in name or "batch" in name):
            continue
        seconds = _seconds_an_element(stage) * (1 if has_batches else batch_size)
        label = _label(stage, name, is_first=number == 0)
        parts[label] = parts.get(label, 0.0) + max(0.0, seconds - before)
        before = max(before, seconds)
    return parts


def _label(stage: Any, name: str, *, is_first: bool) -> str:
    if is_first:
        return "source"
    function = getattr(getattr(stage, "_map_func", None), "_func", None)
    called = getattr(function, "__name__", "")
    name = name.removeprefix("parallel")
    return f"{name}({called.replace('<lambda>', 'lambda')})" if called else name


def _seconds_an_element(dataset: Any) -> float:
    items = iter(dataset)
    if next(items, None) is None:  # fills buffers and starts threads
        return 0.0
    began, count = time.perf_counter(), 0
    while (seconds := time.perf_counter() - began) < _SECONDS_A_PART:
        if next(items, None) is None:
            break
        count += 1
    return (time.perf_counter() - began) / count if count else seconds


def _split_folder(maker: Any, batch_size: int) -> Parts:
    """Decoding and augmentation, by one thread, divided by the threads that share them."""
    from fitroom.data.augment import augment_image
    from fitroom.data.reader import Reader
    from fitroom.inputs.passes import seeded_generator

    reader: Reader = maker.reader
    plain = Reader(
        images=reader.images,
        image_size=reader.image_size,
        resize=reader.resize,
        seed=reader.seed,
        augment=None,
        cache=reader.cache,
        report_bad=lambda path, reason: None,
    )
    numbers = range(min(len(reader.images), batch_size))
    began = time.perf_counter()
    images = [plain.read(number, 0) for number in numbers]
    decoded = time.perf_counter()
    share = batch_size / (len(numbers) * maker.workers)
    parts = {"decode": (decoded - began) * share}
    if reader.augment is not None:
        for number, image in zip(numbers, images, strict=True):
            augment_image(image, reader.augment, seeded_generator(reader.seed, 0, number))
        parts["augmentation"] = (time.perf_counter() - decoded) * share
    return parts


def _split_calls(read: Callable[[], Any], entry: CodeType | None, batches: int) -> Parts:
    """The time of the functions that the user's code calls directly, and of the code itself."""
    if entry is None:
        read()
        return {}
    profile = cProfile.Profile()
    profile.runcall(read)
    stats: Any = pstats.Stats(profile)
    key = (entry.co_filename, entry.co_firstlineno, entry.co_name)
    if key not in stats.stats:
        return {}
    called = _calls_of(stats.stats, key)
    # Through functions that only pass the work on, to where the user's own code splits it.
    while (inner := _passed_on_to(stats.stats, key, called)) is not None:
        key, called = inner, _calls_of(stats.stats, inner)
    whole = stats.stats[key][3]
    largest = sorted(((one, function) for function, one in called.items() if one > _LITTLE * whole), reverse=True)
    parts = {function[2].removeprefix("<built-in method ").strip("<>"): one for one, function in largest[:_SHOWN]}
    rest = max(0.0, whole - sum(parts.values()))
    parts |= {f"the rest of {key[2]}" if parts else key[2]: rest}
    return {name: one / batches for name, one in parts.items()}


def _calls_of(stats: dict[Any, Any], caller: Any) -> dict[Any, float]:
    """The functions that one calls, with their seconds; comprehensions and lambdas count as a part of it."""
    found: dict[Any, float] = {}
    for function, (_, _, _, _, callers) in stats.items():
        if caller not in callers or function == caller:
            continue
        if function[2] in ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>"):
            found |= _calls_of(stats, function)
        else:
            found[function] = callers[caller][3]
    return found


def _passed_on_to(stats: dict[Any, Any], key: Any, called: dict[Any, float]) -> Any | None:
    """The one function of the same file that takes nearly all of the time and calls others of that file, or None."""
    for function, seconds in called.items():
        passes_on = function[0] == key[0] and seconds > _NEARLY_ALL * stats[key][3]
        if passes_on and any(inner[0] == key[0] for inner in _calls_of(stats, function)):
            return function
    return None


def _code(kind: type, method: str) -> CodeType | None:
    return getattr(getattr(kind, method, None), "__code__", None)
