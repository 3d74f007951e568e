"""A cache of whole answers of `estimate` and `plan`, read without importing a framework.

The answer for a model by name or in a file holds as long as the name, the file and all installed packages are the same;
reading it saves the seconds that a framework takes to start. What a user's function builds, and what is measured, is
not cached.
"""

import hashlib
import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fitroom.environment import tensorflow_compiler_folder
from fitroom.keras_model.loading import function, preset
from fitroom.memory import cache
from fitroom.memory.corrections import corrections_stamp

Answer = TypeVar("Answer")

_FRAMEWORK_PREFIXES = ("KERAS_", "XLA_", "TF_", "JAX_", "PYTORCH_", "CUDA_")


def key_of(question: dict[str, Any]) -> str | None:
    """A digest of all that the answer depends on; None where the answer cannot be cached."""
    identity = _identity(question["model"])
    if identity is None or question["measure"]:
        return None
    settings = sorted(pair for pair in os.environ.items() if pair[0].startswith(_FRAMEWORK_PREFIXES))
    known = (identity, repr(settings), _installed(), _keras_json(), corrections_stamp())
    return cache.digest("answer", repr(sorted(question.items())), *known)


def load_answer(key: str | None, read: Callable[[Any], Answer]) -> Answer | None:
    """The cached answer, or None; `read` makes it of the plain values that are stored."""
    kept = cache.load(key) if key else None
    try:
        return None if kept is None else read(kept)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):  # damaged: as if it were missing
        return None


def store_answer(key: str | None, answer: Any) -> None:
    """Store an answer, as plain values."""
    if key:
        cache.store(key, answer)


def _identity(text: str) -> str | None:
    """What identifies a model: the content of its file, or its name; None for a function of the user."""
    if function.is_function(text):
        return None
    if preset.is_preset(text):
        return preset.digest_of(text)
    file = Path(text)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else text.strip()


def _installed() -> str:
    """All packages with their versions, and the times of fitroom's own files, so that edits invalidate the cache."""
    packages = sorted(f"{found.name}=={found.version}" for found in importlib.metadata.distributions())
    sources = sorted(Path(__file__).parents[1].rglob("*.*"))
    compiler = sorted(path.name for path in tensorflow_compiler_folder().glob("*.dist-info"))
    stamps = [(path.name, path.stat().st_mtime_ns) for path in sources if path.suffix in (".py", ".csv", ".json")]
    return repr((packages, stamps, compiler))


def _keras_json() -> str:
    """Keras's settings file: its float type and data format affect a model."""
    folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras").expanduser()
    try:
        return (folder / "keras.json").read_text()
    except OSError:
        return ""
