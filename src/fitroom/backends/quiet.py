"""Frameworks told to keep their log to themselves."""

import logging
import os


def quieten(backend: str) -> None:
    """Before a backend is imported: no chatter on stderr."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if backend != "tensorflow":
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # Keras imports it to save a model, and it announces itself
    logging.getLogger("jax_plugins").setLevel(logging.ERROR)
    if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its kernels crash where memory runs out


def quieten_for_estimates(backend: str) -> None:
    """Likewise where nothing is computed: and keep JAX from taking a card that is only being asked about."""
    quieten(backend)
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # it announces itself
    if backend == "jax":
        os.environ["JAX_PLATFORMS"] = "cpu"
