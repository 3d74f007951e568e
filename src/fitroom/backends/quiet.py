"""Frameworks told to keep their log to themselves."""

import logging
import os


def quieten() -> None:
    """Before a framework is imported: no chatter on stderr."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("jax_plugins").setLevel(logging.ERROR)
    if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() in ("1", "true"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # its kernels crash where memory runs out
