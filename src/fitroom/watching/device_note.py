"""A note where training runs on the CPU although the machine has a card, which frameworks do silently."""

import os
from collections.abc import Mapping
from importlib import metadata

from fitroom.backends.contract import Backend
from fitroom.cards.nvml import all_gpus

_CUDA_OF_JAX = ("jax-cuda12-plugin", "jax-cuda13-plugin")
_JAX_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")


def device_note(backend: Backend) -> str | None:
    """The note where a backend would train on the CPU beside an NVIDIA card, with the likely reason; else None."""
    if backend.devices()[0].kind != "cpu":
        return None
    gpus = all_gpus()
    if not gpus:
        return None
    names = " and ".join(dict.fromkeys(gpu.name for gpu in gpus))
    reason = likely_reason(backend.name, os.environ)
    return f"training runs on the CPU, although this machine has a card ({names}): {reason}."


def likely_reason(backend: str, environment: Mapping[str, str]) -> str:
    """Why a framework does not see the card, and what to do.

    >>> likely_reason("jax", {"CUDA_VISIBLE_DEVICES": ""})
    "CUDA_VISIBLE_DEVICES='' hides it"
    """
    if "CUDA_VISIBLE_DEVICES" in environment:
        return f"CUDA_VISIBLE_DEVICES={environment['CUDA_VISIBLE_DEVICES']!r} hides it"
    return _OF_BACKEND.get(backend, lambda _: None)(environment) or (
        f"{backend} did not start on it; its messages at the start say why"
    )


def _of_jax(environment: Mapping[str, str]) -> str | None:
    if all(name in environment for name in _JAX_FRACTIONS):
        return f"JAX starts on no card where both {' and '.join(_JAX_FRACTIONS)} are set; unset the second"
    if "cpu" in environment.get("JAX_PLATFORMS", ""):
        return f"JAX_PLATFORMS={environment['JAX_PLATFORMS']!r} asks for it"
    if not any(map(_version, _CUDA_OF_JAX)):
        return "JAX is installed without CUDA; pip install 'jax[cuda13]'"
    return None


def _of_tensorflow(environment: Mapping[str, str]) -> str | None:
    if _version("tensorflow-cpu"):
        return "tensorflow-cpu is installed; pip install 'tensorflow[and-cuda]' in its place"
    if not _version("nvidia-cudnn-cu12"):
        return "TensorFlow finds no CUDA libraries; pip install 'tensorflow[and-cuda]'"
    return None


def _of_torch(environment: Mapping[str, str]) -> str | None:
    if environment.get("KERAS_TORCH_DEVICE", "").startswith("cpu"):
        return f"KERAS_TORCH_DEVICE={environment['KERAS_TORCH_DEVICE']!r} asks for it"
    version = _version("torch") or ""
    if version.endswith("+cpu"):
        return f"PyTorch {version} is built without CUDA; install a CUDA build in its place"
    return None


_OF_BACKEND = {"jax": _of_jax, "tensorflow": _of_tensorflow, "torch": _of_torch}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
