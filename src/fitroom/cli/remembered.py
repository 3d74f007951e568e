"""Answers that were given before, found again without importing a framework.

A model that is named, or in a file, is the same as long as its name, the file and everything installed are: then the
whole estimate is on disk, and no second has to go by for TensorFlow to start. What a function of the user's builds, and
what is measured, is found anew each time.
"""

import hashlib
import importlib.metadata
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import fitroom
from fitroom.environment import tensorflow_compiler_folder
from fitroom.estimating import cache
from fitroom.estimating.result import Estimate
from fitroom.models import function

_SPEAK_TO_FRAMEWORKS = ("KERAS_", "XLA_", "TF_", "JAX_", "PYTORCH_", "CUDA_")


def key_of(question: dict[str, Any]) -> str | None:
    """A digest of all that decides the answer to the question; None where that cannot be known beforehand."""
    identity = _identity(question["model"])
    if identity is None or question["measure"]:
        return None
    settings = sorted(pair for pair in os.environ.items() if pair[0].startswith(_SPEAK_TO_FRAMEWORKS))
    return cache.digest("answer", repr(sorted(question.items())), identity, repr(settings), _installed(), _keras_json())


def recall(key: str | None) -> Estimate | None:
    """The answer that was kept."""
    kept = cache.load(key) if key else None
    if kept is None:
        return None
    return replace(Estimate.from_dict(kept), seconds=0.0)


def remember(key: str | None, answer: Estimate) -> None:
    """Keep an answer."""
    if key:
        cache.store(key, answer.to_dict(with_timeline=True))


def _identity(text: str) -> str | None:
    """What a name or a file stands for. Names need no look at Keras: one that it does not know was never answered."""
    if function.is_function(text):
        return None
    file = Path(text)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else text.strip()


def _installed() -> str:
    """Every package with its version, and fitroom's own files: an edited fitroom answers anew."""
    packages = sorted(f"{found.name}=={found.version}" for found in importlib.metadata.distributions())
    sources = sorted(Path(fitroom.__file__).parent.rglob("*.*"))
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
