"""Answers that were given before, found again without importing a framework.

A model that is named, or in a file, is the same as long as its name, the file and everything installed are: then the
whole answer is on disk, and no second has to go by for TensorFlow to start. What a function of the user's builds, and
what is measured, is found anew each time.
"""

import hashlib
import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fitroom.environment import tensorflow_compiler_folder
from fitroom.keras_model.loading import function
from fitroom.memory import cache

Answer = TypeVar("Answer")

_SPEAK_TO_FRAMEWORKS = ("KERAS_", "XLA_", "TF_", "JAX_", "PYTORCH_", "CUDA_")


def key_of(question: dict[str, Any]) -> str | None:
    """A digest of all that decides the answer to the question; None where that cannot be known beforehand."""
    identity = _identity(question["model"])
    if identity is None or question["measure"]:
        return None
    settings = sorted(pair for pair in os.environ.items() if pair[0].startswith(_SPEAK_TO_FRAMEWORKS))
    return cache.digest("answer", repr(sorted(question.items())), identity, repr(settings), _installed(), _keras_json())


def recall(key: str | None, read: Callable[[Any], Answer]) -> Answer | None:
    """The answer that was kept, made by `read` of the plain values that it was kept as."""
    kept = cache.load(key) if key else None
    try:
        return None if kept is None else read(kept)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):  # not what `remember` keeps: as if not there
        return None


def remember(key: str | None, answer: Any) -> None:
    """Keep an answer, as plain values."""
    if key:
        cache.store(key, answer)


def _identity(text: str) -> str | None:
    """What a name or a file stands for. Names need no look at Keras: one that it does not know was never answered."""
    if function.is_function(text):
        return None
    file = Path(text)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else text.strip()


def _installed() -> str:
    """Every package with its version, and fitroom's own files: an edited fitroom answers anew."""
    packages = sorted(f"{found.name}=={found.version}" for found in importlib.metadata.distributions())
    sources = sorted(Path(__file__).parents[1].rglob("*.*"))
    compiler = sorted(path.name for path in tensorflow_compiler_folder().glob("*.dist-info"))
    stamps = [(path.name, path.stat().st_mtime_ns) for path in sources if path.suffix in (".py", ".csv", ".json")]
    return repr((packages, stamps, compiler))


def _keras_json() -> str:
    """Keras's settings, of which the floating-point type and the order of axes decide a model's shapes."""
    folder = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras").expanduser()
    try:
        return (folder / "keras.json").read_text()
    except OSError:
        return ""
