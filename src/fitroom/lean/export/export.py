"""`fitroom.lean.export_model`: a trained model as a file for another runtime."""

import os
from collections.abc import Callable
from pathlib import Path

from fitroom.classify.classifier import find_model
from fitroom.classify.images import find_data_root
from fitroom.errors import InputError
from fitroom.lean.child_process import run_in_child
from fitroom.lean.export.formats import EXTRA, choose_route, find_format
from fitroom.lean.export.result import Export

Say = Callable[[str], None]
_SUFFIXES = (".keras", ".h5", ".hdf5")
_LITTLE_AGREEMENT = 0.98

MODULE = "fitroom.lean.export.child"


def export_model(
    place: str | os.PathLike[str],
    format: str,
    *,
    to: str | os.PathLike[str] | None = None,
    int8: bool = False,
    images: str | os.PathLike[str] | None = None,
    resizing: bool = False,
    backend: str | None = None,
    unsafe: bool = False,
    say: Say = lambda text: None,
) -> Export:
    """Export a trained classifier, and check that the file answers as the model does.

    The work is done in a process of its own, on the backend that the format needs: a model that was trained on JAX can
    be exported to every format.

    Args:
        place: A run folder of `fitroom train`, or a `.keras` file.
        format: "onnx", "litert", "saved-model", "openvino" or "torch".
        to: The file to write; left out, beside the model.
        int8: Whether weights and activations are stored in 8 bits.
        images: A folder of images to calibrate and check with; left out, those that the run was trained on.
        resizing: Whether the file resizes images itself, so that it takes them in any size.
        backend: The backend that writes the file, where several can.
        unsafe: Whether code that is stored in the model may run.
        say: Called with what is being done.
    """
    wanted = find_format(format)
    route = choose_route(wanted, preferred=backend)
    if backend and route != backend:
        able = ", ".join(name for name, _ in wanted.routes)
        raise InputError(
            f"The {backend} backend cannot write {wanted.name} here. Backends that can: {able}.",
            hint="leave --backend out: the first that can is taken",
        )
    if resizing and wanted.name in ("torch", "openvino"):
        raise InputError(
            f"--with-resizing is for onnx, litert and saved-model: a {wanted.name} file takes images of one size.",
            hint="leave it away, and resize images before",
        )
    file, job = find_model(Path(place))
    if file.suffix not in _SUFFIXES:
        raise InputError(f"{file} is no model file. Expected: {', '.join(_SUFFIXES)}.", hint="or give a run folder")
    folder = Path(images) if images is not None else find_data_root(job.options["folder"]) if job.options else None
    if folder is not None and not folder.is_dir():
        raise InputError(f"There is no folder of images {str(folder)!r}.", hint="give one with --images FOLDER")
    if folder is None:
        say("warning: no images are known; calibrating and checking with noise (--images FOLDER gives real ones)")
    target = Path(to) if to is not None else file.with_name(file.stem + ("-int8" if int8 else "") + wanted.suffix)
    if not target.parent.is_dir():
        raise InputError(f"There is no folder {str(target.parent)!r}.", hint="make it, or give another --to")
    if target == file or (target.exists() and target.is_dir() and not (target / "saved_model.pb").exists()):
        raise InputError(f"{target} is not a place for an exported file.", hint="give another --to")
    say(f"writing {wanted.name} with {route}" + (f", by {wanted.int8 or 'Keras'}" if int8 else ""))
    answer = run_in_child(
        MODULE,
        {
            "model": str(file.absolute()),
            "format": wanted.name,
            "path": str(target.absolute()),
            "images": str(folder.absolute()) if folder else None,
            "int8": int8,
            "resize": job.options.get("resize", "crop"),
            "resizing": resizing,
            "unsafe": unsafe,
        },
        backend=route,
        what=f"Export to {wanted.name} on {route}",
        hint="--format litert --with-resizing, or leave the resizing away"
        if resizing
        else f"pip install --upgrade 'fitroom[{EXTRA}]', or try another --format or --backend",
    )
    if int8 and answer["same_class"] < _LITTLE_AGREEMENT:
        say(
            f"warning: in 8 bits the class differs on {100 * (1 - answer['same_class']):.1f} % of {answer['images']} "
            "images; measure the accuracy before you use the file"
        )
    labels = None
    if job.classes:
        labels = target.with_name(target.name + ".labels.txt")
        labels.write_text("".join(f"{name}\n" for name in job.classes), "utf-8")
    return Export(
        path=str(target),
        format=wanted.name,
        backend=route,
        int8=int8,
        are_real=folder is not None,
        model_bytes=file.stat().st_size,
        labels=str(labels) if labels else None,
        **answer,
    )
