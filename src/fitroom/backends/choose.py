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
from dataclasses import dataclass
from pathlib import Path

from fitroom.backends.contract import Backend
from fitroom.errors import BackendError, FitroomError, InputError, MissingExtraError, UnknownNameError

INSTALLABLE = ("jax", "tensorflow", "torch")
"""The backends fitroom works on, in the order in which it takes what it finds. Each is an extra of the same name."""

_ALIASES = {"pytorch": "torch", "tf": "tensorflow"}
_CANNOT_TRAIN = ("numpy", "openvino")
_CLASSES = {"jax": "JaxBackend", "tensorflow": "TensorFlowBackend", "torch": "TorchBackend"}

_WRITTEN_BY_KERAS = json.dumps(
    {"floatx": "float32", "epsilon": 1e-07, "backend": "tensorflow", "image_data_format": "channels_last"}, indent=4
)
"""keras.json as Keras 2 and 3 write it, to the letter."""


def installed_backends() -> tuple[str, ...]:
    """Those of INSTALLABLE that can be imported here, found without importing them."""
    return tuple(name for name in INSTALLABLE if _is_installed(name))


@dataclass(frozen=True, kw_only=True)
class BackendChoice:
    """A backend and why it was taken."""

    name: str
    """As Keras spells it."""

    why: str
    """Who said so: `--backend`, `KERAS_BACKEND`, a keras.json, or nobody."""

    overridden: str | None = None
    """What said otherwise and was not followed, such as KERAS_BACKEND=torch."""


def choose_backend(flag: str | None) -> str:
    """Settle the backend before Keras is imported, set KERAS_BACKEND to it, and return its name."""
    return settle_backend(flag).name


def settle_backend(flag: str | None, *, why: str = "--backend", also: tuple[str, ...] = ()) -> BackendChoice:
    """Settle the backend before Keras is imported, set KERAS_BACKEND to it, and return it with the reason.

    In this order: `flag` (the command line's `--backend`, or what else `why` names), KERAS_BACKEND, the user's
    keras.json, the first one installed. Once Keras is imported its backend is the answer, and wishing for another is an
    error. `also` are further words that the flag may be, for the error about a wrong one.
    """
    wish = _wish(flag, why, also)
    imported = _imported_keras_backend()
    if imported and wish and imported != wish.name:
        raise InputError(
            f"Keras is already imported with the {imported} backend, which is fixed at its first import. "
            f"Received: {wish.name!r}.",
            hint=f"set KERAS_BACKEND={wish.name} before anything imports keras",
        )
    if imported:
        choice = wish or BackendChoice(name=imported, why="Keras is imported with it")
    else:
        choice = wish or _from_keras_json() or _first_installed()
    _require_installed(_canonical(choice.name), None if flag else choice.why)
    os.environ["KERAS_BACKEND"] = choice.name
    return choice


def keras_backend_choice(flag: str | None, *, overridden: str | None) -> BackendChoice:
    """The backend that an imported Keras took by its own rules, and why.

    Args:
        flag: what `--backend` had KERAS_BACKEND set to.
        overridden: what KERAS_BACKEND was before.
    """
    import keras

    name = keras.backend.backend()
    if flag:
        is_other = overridden and _spelled(overridden) != name
        return BackendChoice(name=name, why="--backend", overridden=f"KERAS_BACKEND={overridden}" if is_other else None)
    if os.environ.get("KERAS_BACKEND"):
        return BackendChoice(name=name, why="KERAS_BACKEND")
    file = _from_keras_json()
    return file if file and file.name == name else BackendChoice(name=name, why="Keras's default")


def current_backend() -> Backend:
    """The backend of the Keras in this process, as `KERAS_BACKEND` or keras.json fixed it."""
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


def backend_before_keras(flag: str | None) -> str | None:
    """The backend that a script will get, as far as that is known before it runs; None where nothing names one."""
    wish = _wish(flag, "--backend", ()) or _from_keras_json()
    return wish.name if wish else None


def limit_memory(name: str, limit_bytes: int) -> str | None:
    """Limit the memory that a backend takes of its first device. Returns why that is impossible, or None.

    To be called before the framework starts, and where it reads environment variables, before it is imported.
    """
    module = importlib.import_module(f"fitroom.backends.{name}.limit")
    why_not: str | None = module.limit_memory(limit_bytes)
    return why_not


def _wish(flag: str | None, why: str, also: tuple[str, ...]) -> BackendChoice | None:
    """The backend that the user named. The flag goes before a variable, which may be set for all shells."""
    environment = os.environ.get("KERAS_BACKEND")  # Keras, too, takes an empty one for none
    if flag:
        name = _canonical(flag, also)
        is_other = environment and _spelled(environment) != name
        return BackendChoice(name=name, why=why, overridden=f"KERAS_BACKEND={environment}" if is_other else None)
    return BackendChoice(name=_canonical(environment), why="KERAS_BACKEND") if environment else None


def _canonical(name: str, also: tuple[str, ...] = ()) -> str:
    """The name as Keras spells it. Raises for one that is unknown or cannot train."""
    known = _spelled(name)
    if known in _CANNOT_TRAIN:
        raise BackendError(
            f"The {known} backend of Keras cannot train.",
            hint=f"set KERAS_BACKEND to one of: {', '.join(INSTALLABLE)}",
        )
    if known not in INSTALLABLE:
        names = (*INSTALLABLE, *also)
        raise UnknownNameError("backend", name, names, more=f"known are: {', '.join(names)}")
    return known


def _spelled(name: str) -> str:
    lowered = name.lower()
    return _ALIASES.get(lowered, lowered)


def _from_keras_json() -> BackendChoice | None:
    """The backend in the keras.json that a user wrote or changed.

    Keras writes one by itself on its first import, with "tensorflow" in it whatever is installed or was asked for. As
    long as nobody changed that file, it says nothing.
    """
    home = Path.home() if os.access(Path.home(), os.W_OK) else Path("/tmp")  # as Keras looks for it
    file = Path(os.environ.get("KERAS_HOME") or home / ".keras").expanduser() / "keras.json"
    try:
        text = file.read_text()
        settings = json.loads(text)
    except (OSError, ValueError):  # none there, or one that Keras would not read either
        return None
    name = settings.get("backend") if isinstance(settings, dict) else None
    if not isinstance(name, str) or text == _WRITTEN_BY_KERAS:
        return None
    return BackendChoice(name=_canonical(name), why=str(file))


def _first_installed() -> BackendChoice:
    installed = installed_backends()
    if not installed:
        alternatives = " or ".join(f"'fitroom[{name}]'" for name in INSTALLABLE[1:])
        raise FitroomError(
            "No backend is installed: Keras needs one of JAX, TensorFlow and PyTorch.",
            hint=f"pip install 'fitroom[{INSTALLABLE[0]}]' (or {alternatives})",
        )
    return BackendChoice(name=installed[0], why=f"the first that is installed of {', '.join(INSTALLABLE)}")


def _imported_keras_backend() -> str | None:
    keras = sys.modules.get("keras")
    return keras.backend.backend() if keras else None


def _require_installed(name: str, named_by: str | None = None) -> None:
    if not _is_installed(name):
        raise MissingExtraError(
            f"The {name} backend{f' (named by {named_by})' if named_by else ''}", package=name, extra=name
        )


def _is_installed(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    # A mere folder of that name beside the user's script is found too, as a package without an origin.
    return spec is not None and spec.origin is not None
