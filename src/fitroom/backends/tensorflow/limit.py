"""A limit for TensorFlow's allocator. It must not import TensorFlow before the variables are set that it reads then."""

import os
import sys

from fitroom.cards.nvml import live_gpus

_MIB = 2**20


def limit_memory(limit_bytes: int) -> str | None:
    """Keep the allocator of the first device under so many bytes, from before it starts. Why that cannot be, or None.

    Without a card it is the CPU's allocator, in place of which TensorFlow can take the one it has for cards.
    """
    if not live_gpus():
        return _limit_cpu(limit_bytes)
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        return "TensorFlow does not see the card"
    limit = tf.config.LogicalDeviceConfiguration(memory_limit=limit_bytes // _MIB)
    try:
        tf.config.set_logical_device_configuration(gpus[0], [limit])
    except RuntimeError as error:
        return f"TensorFlow refused it: {error}"
    return None


def _limit_cpu(limit_bytes: int) -> str | None:
    if "tensorflow" in sys.modules:
        return "TensorFlow has been imported already"
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "true"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(max(1, limit_bytes // _MIB))
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"  # its kernels crash where memory runs out
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")  # one operation at a time, as on a card
    return None
