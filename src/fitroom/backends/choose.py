"""Which backend: chosen on the command line before Keras is imported, obeyed in the library afterwards.

Keras fixes its backend when it is first imported, for the whole process. The command line may therefore choose
(`choose_backend`), once and early; the library finds Keras imported by the user and takes what is there
(`current_backend`).
"""

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path

from fitroom.backends.contract import Backend
from fitroom.errors import BackendError, FitroomError, InputError, MissingExtraError, UnknownNameError

INSTALLABLE = ("jax", "tensorflow", "torch")
"""The backends fitroom works on, in the order in which it takes what it finds. Each is an extra of the same name."""

_ALIASES = {"pytorch": "torch", "tf": "tensorflow"}
_CANNOT_TRAIN = ("numpy", "openvino")
_CLASSES = {"jax": "JaxBackend", "tensorflow": "TensorFlowBackend", "torch": "TorchBackend"}


def installed_backends() -> tuple[str, ...]:
    """Those of INSTALLABLE that can be imported here, found without importing them."""
    return tuple(name for name in INSTALLABLE if _is_installed(name))


def choose_backend(flag: str | None) -> str:
    """Settle the backend before Keras is imported, and set KERAS_BACKEND to it.

    In this order: `flag` (the command line's `--backend`), KERAS_BACKEND, the user's keras.json, the first one
    installed. Once Keras is imported its backend is the answer, and wishing for another is an error.
    """
    wished = _wished(flag)
    imported = _imported_keras_backend()
    if imported and wished and imported != wished:
        raise InputError(
            f"Keras is already imported with the {imported} backend, which is fixed at its first import. "
            f"Received: {wished!r}.",
            hint=f"set KERAS_BACKEND={wished} before anything imports keras",
        )
    name = imported or wished or _from_keras_json() or _first_installed()
    _require_installed(_canonical(name))
    os.environ["KERAS_BACKEND"] = name
    return name


def current_backend() -> Backend:
    """The backend of the Keras in this process. It obeys, and never chooses."""
    try:
        import keras
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in INSTALLABLE:
            raise
        others = [f"set KERAS_BACKEND={name} before keras is imported" for name in installed_backends()]
        raise BackendError(
            f"Keras is set to the {missing} backend, and {missing} is not installed.",
            hint=", or ".join([*others[:1], f"pip install 'fitroom[{missing}]'"]),
        ) from error
    return load_backend(keras.backend.backend())


def load_backend(name: str) -> Backend:
    """The backend of that name. This imports its framework."""
    name = _canonical(name)
    _require_installed(name)
    module = importlib.import_module(f"fitroom.backends.{name}.backend")
    backend: Backend = getattr(module, _CLASSES[name])()
    return backend


def limit_memory(name: str, limit_bytes: int) -> str | None:
    """Have a backend take no more than so many bytes of its first device. Why it cannot, or None where it will.

    Before the framework starts, and where it reads variables of the environment, before it is imported.
    """
    module = importlib.import_module(f"fitroom.backends.{name}.limit")
    why_not: str | None = module.limit_memory(limit_bytes)
    return why_not


def _wished(flag: str | None) -> str | None:
    """What the user asked for in so many words, by the flag or by KERAS_BACKEND."""
    environment = os.environ.get("KERAS_BACKEND")  # Keras, too, takes an empty one for none
    by_flag = _canonical(flag) if flag else None
    by_environment = _canonical(environment) if environment else None
    if by_flag and by_environment and by_flag != by_environment:
        raise InputError(
            f"--backend and KERAS_BACKEND name different backends. "
            f"Received: --backend {flag}, KERAS_BACKEND={environment}.",
            hint=f"leave one of them out: drop --backend for {by_environment}, or `unset KERAS_BACKEND` for {by_flag}",
        )
    return by_flag or by_environment


def _canonical(name: str) -> str:
    """The name as Keras spells it. Raises for one that is unknown or cannot train."""
    lowered = name.lower()
    known = _ALIASES.get(lowered, lowered)
    if known in _CANNOT_TRAIN:
        raise BackendError(
            f"The {known} backend of Keras cannot train.",
            hint=f"set KERAS_BACKEND to one of: {', '.join(INSTALLABLE)}",
        )
    if known not in INSTALLABLE:
        raise UnknownNameError("backend", name, INSTALLABLE, more=f"known are: {', '.join(INSTALLABLE)}")
    return known


def _from_keras_json() -> str | None:
    """The backend in the user's keras.json.

    "tensorflow" there says nothing: Keras writes it by itself on its first import, whatever is installed.
    """
    home = Path.home() if os.access(Path.home(), os.W_OK) else Path("/tmp")  # as Keras looks for it
    folder = Path(os.environ.get("KERAS_HOME") or home / ".keras").expanduser()
    try:
        settings = json.loads((folder / "keras.json").read_text())
    except (OSError, ValueError):  # none there, or one that Keras would not read either
        return None
    name = settings.get("backend") if isinstance(settings, dict) else None
    return _canonical(name) if name and name != "tensorflow" else None


def _first_installed() -> str:
    installed = installed_backends()
    if not installed:
        alternatives = " or ".join(f"'fitroom[{name}]'" for name in INSTALLABLE[1:])
        raise FitroomError(
            "No backend is installed: Keras needs one of JAX, TensorFlow and PyTorch.",
            hint=f"pip install 'fitroom[{INSTALLABLE[0]}]' (or {alternatives})",
        )
    return installed[0]


def _imported_keras_backend() -> str | None:
    keras = sys.modules.get("keras")
    return keras.backend.backend() if keras else None


def _require_installed(name: str) -> None:
    if not _is_installed(name):
        raise MissingExtraError(f"The {name} backend", package=name, extra=name)


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    # A mere folder of that name beside the user's script is found too, as a package without an origin.
    return spec is not None and spec.origin is not None
