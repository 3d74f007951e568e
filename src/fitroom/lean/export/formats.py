"""The formats that a model can be exported to, and what each needs."""

import importlib.util
from dataclasses import dataclass

from fitroom.backends.choose import installed_backends
from fitroom.errors import BackendError, MissingExtraError, UnknownNameError

EXTRA = "export"
_NOT_IN_EXTRA = "jax2onnx"
"""It brings JAX, which those who export with another backend have no use for."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format: the name for people, that of Keras, and the ways to write it."""

    name: str
    keras_name: str
    suffix: str
    routes: tuple[tuple[str, tuple[str, ...]], ...]
    """Backends that can write it, the best first, each with the packages that it needs."""

    reads_with: tuple[str, ...]
    """Packages that run the file, one of which is needed for the check."""

    int8: str | None = None
    """How it is quantized; None where only Keras's own quantization of Dense layers remains."""


FORMATS = {
    each.name: each
    for each in (
        Format(
            name="onnx",
            keras_name="onnx",
            suffix=".onnx",
            routes=(("tensorflow", ("tf2onnx",)), ("torch", ("onnxscript", "onnx")), ("jax", ("jax2onnx",))),
            reads_with=("onnxruntime",),
            int8="onnxruntime's static quantization",
        ),
        Format(
            name="litert",
            keras_name="litert",
            suffix=".tflite",
            routes=(("tensorflow", ()),),
            reads_with=("tensorflow",),
            int8="LiteRT's full integer quantization",
        ),
        Format(
            name="saved-model",
            keras_name="tf_saved_model",
            suffix="",
            routes=(("tensorflow", ()),),
            reads_with=("tensorflow",),
        ),
        Format(
            name="openvino",
            keras_name="openvino",
            suffix=".xml",
            routes=(
                ("tensorflow", ("openvino", "scipy")),
                ("torch", ("openvino", "scipy")),
            ),
            reads_with=("openvino",),
        ),
        Format(name="torch", keras_name="torch", suffix=".pt2", routes=(("torch", ()),), reads_with=("torch",)),
    )
}


def find_format(name: str) -> Format:
    """The format of this name."""
    if name not in FORMATS:
        raise UnknownNameError("format", name, FORMATS, more=f"known are: {', '.join(FORMATS)}")
    return FORMATS[name]


def choose_route(wanted: Format, *, preferred: str | None = None) -> str:
    """The backend that writes the format here: the preferred one if it can, else the first that can.

    Raises an error that names the missing package or backend.
    """
    installed = installed_backends()
    if preferred in installed and preferred in dict(wanted.routes) and _missing(dict(wanted.routes)[preferred]):
        package = _missing(dict(wanted.routes)[preferred])[0]
        raise BackendError(
            f"Export to {wanted.name} by {preferred} needs {package}, which is not installed.",
            hint=f"pip install {package}, or leave --backend away",
        )
    usable = [backend for backend, packages in wanted.routes if backend in installed and not _missing(packages)]
    if usable:
        for package in _missing(wanted.reads_with):
            raise MissingExtraError(f"Checking the exported {wanted.name} file", package=package, extra=EXTRA)
        return preferred if preferred in usable else usable[0]
    here = [(backend, packages) for backend, packages in wanted.routes if backend in installed]
    if here and _missing(here[0][1])[0] == _NOT_IN_EXTRA:
        raise BackendError(
            f"Export to {wanted.name} by {here[0][0]} needs {_NOT_IN_EXTRA}, which is not installed.",
            hint=f"pip install {_NOT_IN_EXTRA} 'fitroom[{EXTRA}]', or PyTorch in its place: "
            f"pip install 'fitroom[torch,{EXTRA}]'",
        )
    if here:
        raise MissingExtraError(f"Export to {wanted.name}", package=_missing(here[0][1])[0], extra=EXTRA)
    first = wanted.routes[0][0]
    raise BackendError(
        f"Export to {wanted.name} needs {' or '.join(backend for backend, _ in wanted.routes)}; "
        f"installed {'is' if len(installed) == 1 else 'are'}: {', '.join(installed) or 'none'}.",
        hint=f"pip install 'fitroom[{first},{EXTRA}]'",
    )


def _missing(packages: tuple[str, ...]) -> list[str]:
    return [package for package in packages if importlib.util.find_spec(package) is None]
