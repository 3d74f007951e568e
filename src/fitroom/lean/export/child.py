"""A child process that writes and checks one file, with the backend that its format needs.

python -m fitroom.lean.export.child JOB
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fitroom.errors import FitroomError, InputError, ModelError
from fitroom.lean.child_process import answer_job
from fitroom.lean.export.formats import FORMATS, Format
from fitroom.lean.export.images import read_images
from fitroom.lean.export.quantizing import quantized_share
from fitroom.lean.export.running import latency_seconds, open_file

_TOLERANCE = 1e-3
"""How far outputs of a float file may be from the model's; other kernels round differently."""


_FLOAT_BYTES = 4


def write_and_check(job: dict[str, Any]) -> dict[str, Any]:
    """Write the file and compare its answers with the model's."""
    from fitroom.keras_model.loading.source import ModelSource, load_model

    wanted, path = FORMATS[job["format"]], Path(job["path"])
    model = load_model(ModelSource(text=job["model"], unsafe=job["unsafe"], values=True))
    size = check_shapes(model, job["model"])
    images = read_images(Path(job["images"]) if job["images"] else None, size, job["resize"])
    expected = model.predict(images.check, batch_size=16, verbose=0)
    model(images.check[:1])  # `predict` does not count on JAX: Keras exports no model that was never called
    if job["resizing"]:
        model = add_resizing(model, size, job["resize"])
    if not np.isfinite(expected).all():
        raise ModelError(
            f"{job['model']} itself answers with what is no number: nothing can be compared with it.",
            hint="fitroom evaluate, or train it again",
        )
    given = [images.check[number : number + 1] for number in range(len(images.check))]
    if job["resizing"] and images.files:
        given = [read_whole(file)[None] for file in images.files]
    # What the written model itself answers: with resizing, that of Keras, which differs a little from the run's own.
    own = (
        np.concatenate([np.asarray(model.predict_on_batch(image)) for image in given]) if job["resizing"] else expected
    )
    # Beside its place, and renamed at the end: a file that is there was checked.
    with tempfile.TemporaryDirectory(prefix=".fitroom-export-", dir=path.parent) as folder:
        partial = Path(folder) / path.name
        _write(model, wanted, partial, images.calibration, int8=job["int8"])
        run = open_file(wanted.name, partial)
        found = np.concatenate([run(image) for image in given])
        answer = {
            "images": len(given),
            "float_bytes": _FLOAT_BYTES * model.count_params(),
            "same_class": float((found.argmax(axis=-1) == expected.argmax(axis=-1)).mean()),
            "largest_difference": float(np.abs(found - expected).max()),
            "latency_seconds": latency_seconds(run, given[0]),
            "quantized_share": quantized_share(wanted.name, partial) if job["int8"] else None,
        }
        if not job["int8"]:
            _check_answers(found, own, wanted)
        _replace(partial, path)
    return answer | {"size_bytes": _size(path)}


def _check_answers(found: Any, own: Any, wanted: Format) -> None:
    """Raise FitroomError for a float file whose outputs are not those of the model that was written."""
    difference = float(np.abs(found - own).max())
    if not difference <= _TOLERANCE * max(1.0, float(np.abs(own).max())):  # not a number is a difference, too
        same = float((found.argmax(axis=-1) == own.argmax(axis=-1)).mean())
        raise FitroomError(
            f"The {wanted.name} file does not answer as the model does: outputs differ by up to {difference:.3g} on "
            f"{len(found)} images, and the class agrees on {100 * same:.1f} %. It was not kept.",
            hint="try another --format or, for ONNX, another --backend; --with-resizing may be what is not converted",
        )


def check_shapes(model: Any, file: str) -> int:
    """The image size of a classifier. Raises ModelError for other models."""
    takes, gives = (tuple(tensor.shape) for tensor in (model.inputs[0], model.outputs[0]))
    is_classifier = len(model.inputs) == len(model.outputs) == 1 and len(takes) == 4 and len(gives) == 2
    if not is_classifier or takes[1] != takes[2] or not takes[1] or takes[3] != 3:
        raise ModelError(
            f"{file} takes {takes} and gives {gives}. Expected: images (None, size, size, 3) in, and one number "
            "for each class out.",
            hint="export is for image classifiers with a fixed image size; for others use Keras's model.export",
        )
    return int(takes[1])


def read_whole(file: Path) -> Any:
    """An image in its own size."""
    from PIL import Image

    with Image.open(file) as image:
        return np.asarray(image.convert("RGB"), "float32")


def add_resizing(model: Any, size: int, resize: str) -> Any:
    """The model with the resizing of the run in front: it takes images of any size."""
    import keras

    how = {"crop": {"crop_to_aspect_ratio": True}, "pad": {"pad_to_aspect_ratio": True}, "stretch": {}}[resize]
    inputs = keras.Input((None, None, 3), name="image")
    small = keras.layers.Resizing(size, size, name="resizing", **how)(inputs)
    whole = keras.Model(inputs, model(small), name=model.name)
    whole(np.zeros((1, size, size, 3), "float32"))  # Keras exports no model that was never called
    return whole


def _write(model: Any, wanted: Format, path: Path, calibration: Any, *, int8: bool) -> None:
    from fitroom.lean.export import quantizing

    if int8 and wanted.name == "litert":
        quantizing.write_litert(model, path, calibration)
        return
    if int8 and wanted.name == "onnx":
        whole = path.with_name(f"{path.stem}-float.onnx")
        model.export(str(whole), format="onnx", verbose=False)
        try:
            quantizing.quantize_onnx(whole, path, calibration)
        finally:
            whole.unlink(missing_ok=True)
        return
    if int8:
        if quantizing.has_convolutions(model):
            raise InputError(
                f"--int8 with --format {wanted.name} is by Keras's own `quantize`, which serves Dense and attention "
                f"layers and no convolution; the model {model.name!r} has convolutions.",
                hint="--format litert --int8 or --format onnx --int8",
            )
        quantizing.quantize_by_keras(model)
    model.export(str(path), format=wanted.keras_name, verbose=False)


def _parts(path: Path) -> list[Path]:
    """The files of an export: OpenVINO's weights lie beside its graph."""
    return [path, path.with_suffix(".bin")] if path.suffix == ".xml" else [path]


def _replace(partial: Path, path: Path) -> None:
    for old, new in zip(_parts(partial), _parts(path), strict=True):
        _remove(new)
        os.replace(old, new)


def _remove(path: Path) -> None:
    for part in _parts(path):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink(missing_ok=True)


def _size(path: Path) -> int:
    files = [each for part in _parts(path) for each in (part.rglob("*") if part.is_dir() else [part])]
    return sum(each.stat().st_size for each in files if each.is_file())


if __name__ == "__main__":
    answer_job(write_and_check)
