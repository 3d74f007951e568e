"""Timing the input of a training beside its step: what `fitroom doctor --data` does."""

import itertools
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitroom.backends.choose import current_backend
from fitroom.batch import Batch, leaves
from fitroom.checks.device_note import device_note
from fitroom.checks.finding import Finding
from fitroom.checks.input_advice import advise_input, format_seconds
from fitroom.checks.input_parts import Parts, split_reading
from fitroom.errors import InputError
from fitroom.inputs.recognise import is_grain, is_py_dataset, is_tf_dataset, is_torch_loader

Say = Callable[[str], None]
_SECONDS, _MOST_SECONDS = 6.0, 20.0
_FEWEST, _MOST = 3, 50
_SKIPPED = 2
"""Batches at the beginning that are not timed: workers start, buffers fill, steps compile."""

_DEFAULT_IMAGE_SIZE = 224


@dataclass(frozen=True, kw_only=True)
class InputTimes:
    """Seconds for one batch, on average."""

    wait: float
    """Until the next batch was there."""

    step: float | None
    """Of the step on it; None without a model."""

    transfer: float
    """Of copying it to the device."""

    first: float
    """Until the first batch was there."""

    batches: int
    """How many were timed."""


def check_named_input(
    text: str, *, model: str | None, batch_size: int, image_size: int | None, say: Say
) -> list[Finding]:
    """Time the input that a user names on the command line.

    Args:
        text: a folder of images, or `file.py:function`, which is called with `batch_size` and `image_size` where it
            has parameters of these names.
        model: as for `fitroom estimate`.
        batch_size: of a folder and of arrays.
        image_size: height and width of a folder's images; None for the model's own.
        say: called with what is being done.
    """
    from fitroom.backends.quiet import hold_stderr, quieten
    from fitroom.keras_model.loading.function import is_function
    from fitroom.keras_model.loading.source import check_model

    if model:
        check_model(model)
    if not is_function(text) and not Path(text).exists():
        raise InputError(
            f"There is no folder {text!r}.", hint="give a folder of images, or file.py:function that returns the data"
        )
    quieten("")
    say("reading the data")
    if is_function(text):
        data = _call_function(text, batch_size=batch_size, image_size=image_size)
        loaded = _load_model(model, image_size, None) if model else None
    else:
        data, loaded = _open_folder(Path(text), model, batch_size, image_size)
    with hold_stderr():  # JAX with a plugin for CUDA and no card says so in a traceback; the finding says it in words
        current_backend().devices()
    return list(check_input(data, model=loaded, batch_size=batch_size, say=say))


def check_input(data: Any, *, model: Any, batch_size: int, say: Say = lambda text: None) -> Iterator[Finding]:
    """Time an input and, where a model is given, its steps; and judge whether the input keeps up.

    Args:
        data: what is given to `fit` as `x`; arrays as `(x, y)`; or a folder of images. A generator is read.
        model: a Keras model, compiled or not; its variables are put back after some steps. None: the input alone.
        batch_size: of arrays and of a folder.
        say: called with what is being done.
    """
    from fitroom.inputs import source_of, unpack

    if isinstance(data, str | Path):
        data = _open_images(Path(data), batch_size, _image_size(model))
    data = _find_dataset(data)
    is_arrays = isinstance(data, tuple | list | dict) or hasattr(data, "shape")
    source = source_of(*unpack(data), batch_size=batch_size) if is_arrays else source_of(data)
    first = source.peek()
    if model is not None:
        _compile(model, first)
    backend = current_backend()
    note = device_note(backend)
    yield Finding(
        status="warning" if note else "pass",
        name="device",
        found=note or f"steps run on {backend.devices()[0].description or 'the CPU'}",
        facts={"kind": backend.devices()[0].kind},
    )
    say("timing the input by itself")
    parts = split_reading(data, first.size)
    say("timing the input beside the steps" if model is not None else "timing the input")
    with _variables_kept(model):
        times = _time(source, model)
    advice = advise_input(data, times.wait, times.step, cache_bytes=_cache_bytes(source, first))
    yield _describe_parts(parts, times)
    yield Finding(
        status="warning" if advice.is_slow else "pass",
        name="input",
        found=advice.found,
        fix="\n".join(f"{setting.code}  # {setting.why}" for setting in advice.settings) or None,
        facts={
            "source": advice.source.kind,
            "wait_seconds": times.wait,
            "step_seconds": times.step,
            "wait_share": advice.wait_share,
            "first_batch_seconds": times.first,
            "batch_size": first.size,
            "settings": [vars(setting) for setting in advice.settings],
        },
    )


def _time(source: Any, model: Any) -> InputTimes:
    """Train on batches as `fit` does, the next one made by a thread meanwhile, and time both sides."""
    waits: list[float] = []
    steps: list[float] = []
    transfers: list[float] = []
    began = time.perf_counter()
    with closing(_batches(source)) as batches:
        while not _is_enough(len(waits), time.perf_counter() - began):
            asked = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                break
            got = time.perf_counter()
            waits.append(got - asked)
            _transfer(batch)
            transferred = time.perf_counter()
            transfers.append(transferred - got)
            if model is not None:
                model.train_on_batch(batch.x, batch.y, batch.sample_weight)  # returns numbers: the step is over
                steps.append(time.perf_counter() - transferred)
    if not waits:
        raise InputError("There are no batches in the data.")
    skipped = min(_SKIPPED, len(waits) - 1)
    return InputTimes(
        wait=_mean(waits[skipped:]),
        step=_mean(steps[skipped:]) if steps else None,
        transfer=_mean(transfers[skipped:]),
        first=waits[0],
        batches=len(waits) - skipped,
    )


@contextmanager
def _variables_kept(model: Any) -> Iterator[None]:
    """Put the variables of a model, its optimizer and its metrics back to what they were."""
    if model is None:
        yield
        return
    if model.built and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    before = [variable.numpy().copy() for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


def _is_enough(batches: int, seconds: float) -> bool:
    """Whether so many batches in that time tell enough. Of steps that are very slow, two are."""
    if seconds > _MOST_SECONDS and batches > 1:
        return True
    return batches >= _MOST or (batches >= _FEWEST + _SKIPPED and seconds >= _SECONDS)


def _batches(source: Any) -> Generator[Batch, None, None]:
    """The batches of one epoch after the other, until data end that cannot begin again."""
    from fitroom.inputs.prefetch import prefetch

    for epoch in itertools.count():
        is_empty = True
        with prefetch(source.epoch(epoch), lambda batch: batch, record=False) as items:
            for item in items:
                is_empty = False
                yield item.batch
        source.on_epoch_end()
        if is_empty or source.num_batches is None:
            return


def _transfer(batch: Batch) -> None:
    """Copy the inputs to the device, and wait until they are there."""
    from keras import ops

    for array in leaves(batch.x):
        if getattr(array, "dtype", None) is not None and str(array.dtype) not in ("object", "string"):
            tensor = ops.convert_to_tensor(array)
            ops.convert_to_numpy(tensor[(0,) * len(tensor.shape)])


def _describe_parts(parts: Parts, times: InputTimes) -> Finding:
    every = dict(parts) or {"reading": times.wait}
    every["transfer"] = times.transfer
    if times.step is not None:
        every["step"] = times.step
    slowest = max(every, key=lambda name: every[name])
    listed = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in every.items())
    return Finding(
        status="pass",
        name="input parts",
        found=f"a batch takes: {listed}. The slowest is {slowest}",
        facts={"seconds": every, "slowest": slowest, "batches": times.batches},
    )


def _mean(seconds: list[float]) -> float:
    return sum(seconds) / len(seconds)


def _cache_bytes(source: Any, first: Batch) -> int | None:
    """What all samples take in the host's memory as they come; None where their number is unknown."""
    samples = source.num_samples or (source.num_batches and source.num_batches * first.size)
    sizes = [getattr(array, "nbytes", None) for array in leaves(first.x)]
    if not samples or None in sizes or not first.size:
        return None
    return int(sum(size for size in sizes if size) / first.size * samples)


def _find_dataset(data: Any) -> Any:
    """The training data where a function returned several things: those of training come first."""
    data = getattr(data, "train", data) if type(data).__name__ == "Pictures" else data
    first = data[0] if isinstance(data, tuple | list) and data else None
    is_dataset = any(test(first) for test in (is_tf_dataset, is_py_dataset, is_torch_loader, is_grain))
    return first if is_dataset or hasattr(first, "__fitroom_source__") else data


def _call_function(text: str, **offers: int | None) -> Any:
    from fitroom.keras_model.loading.function import error_of, find_function, parameters_of

    function = find_function(text.strip(), purpose="returns the data", example="make_dataset")
    arguments = {name: value for name, value in offers.items() if value and name in parameters_of(function)}
    try:
        found = function(**arguments)
    except (Exception, SystemExit) as error:
        raise error_of(text, error) from error
    if found is None:
        raise InputError(
            f"{text} returned None. Expected: a tf.data.Dataset, PyDataset, DataLoader, arrays (x, y) or a generator.",
            hint="return what you give to `fit`",
        )
    return found


def _open_folder(folder: Path, model: str | None, batch_size: int, image_size: int | None) -> tuple[Any, Any]:
    """The images of a folder and a model for them: in the size of one, with as many classes as the other."""
    if model and image_size is None:
        image_size = _image_size(_load_model(model, None, None))
    data = _open_images(folder, batch_size, image_size)
    return data, _load_model(model, data.maker.reader.image_size, len(data.description["classes"])) if model else None


def _open_images(folder: Path, batch_size: int, image_size: int | None) -> Any:
    from fitroom.data import images

    size = image_size or _DEFAULT_IMAGE_SIZE
    return images(folder, image_size=size, batch_size=batch_size, augment=True).train


def _image_size(model: Any) -> int | None:
    """The height of the images that a model takes; None where it takes others, or any."""
    shape: Any = getattr(model, "input_shape", None)
    return shape[1] if isinstance(shape, tuple) and len(shape) == 4 else None


def _load_model(text: str, image_size: int | None, classes: int | None) -> Any:
    """Load the model with values, so that it can be trained."""
    import keras

    from fitroom.keras_model.loading.source import ModelSource, kind_of, load_model, load_resizable

    is_name = kind_of(text) == "name"
    offers = {name: value for name, value in (("classes", classes), ("image_size", image_size)) if value}
    source = ModelSource(
        text=text,
        image_size=image_size if is_name else None,
        classes=classes if is_name else None,
        offers=offers,
        values=True,
    )
    if is_name:
        return keras.models.clone_model(load_resizable(source).model)  # ready-made ones come without values
    return load_model(source)


def _compile(model: Any, batch: Batch) -> None:
    """Compile a model that is not, with a loss for these targets: what the step computes hardly depends on it."""
    if model.compiled:
        return
    target = next(leaves(batch.y), None) if batch.y is not None else None
    is_classes = target is not None and str(target.dtype).startswith(("int", "uint"))
    model.compile("adam", "sparse_categorical_crossentropy" if is_classes else "mse")
