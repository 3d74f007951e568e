"""Settings of TensorFlow's allocator: errors without a wait on a card, and one region in place of many on the CPU.

On a card an allocation that fails is tried again for ten seconds, in the hope that another thread gives memory back.
XLA tries many kernels for a step, and where the step is too large, the memory for each: hundreds of waits, in which
training seems to hang. `fail_at_once` switches that off.

On a card TensorFlow takes its pool in one piece, and where it grows, gives free regions back. On the CPU the pool grows
by regions of 2, 4, 8, ... MiB, none of which is ever given back or joined to another. What a batch that was too large
leaves behind is then a pool in pieces: a net whose convolutions want blocks of 35 and 42 MiB failed under 90 MiB with
82 of them free, in regions of 32, 28, 16, 8, 4 and 2. `take_one_region` prevents that.
"""

import contextlib
import os

import tensorflow as tf

_MIB = 2**20
_POOL_PER_PEAK = (2, 4)
"""The pool so far may be so many times the most that was ever in use: a region is up to twice what was asked for, and
beside it lie those that were too small. Too low a guess costs the ten seconds that TensorFlow waits for memory."""

_is_taken = False


def take_one_region() -> None:
    """Have what is left of a limited CPU pool become one region, once in a process. No memory is touched by that."""
    global _is_taken
    limit_bytes = None if _is_taken else _limit_bytes()
    if limit_bytes is None or (peak_bytes := _peak_bytes()) is None:
        return
    _is_taken = True
    for ratio in _POOL_PER_PEAK:
        untaken_mib = (limit_bytes - max(4 * _MIB, ratio * peak_bytes)) // _MIB
        with contextlib.suppress(tf.errors.ResourceExhaustedError), tf.device("CPU:0"):
            if untaken_mib > 0:
                tf.raw_ops.Empty(shape=[untaken_mib, _MIB], dtype=tf.uint8, init=False)
            break
    tf.config.experimental.reset_memory_stats("CPU:0")  # this was nobody's use of memory


def _limit_bytes() -> int | None:
    """The limit of the CPU's pool, where somebody set one."""
    if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() not in ("1", "true"):
        return None
    limit_mib = os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB", "")
    return int(limit_mib) * _MIB if limit_mib.isdigit() else None


def _peak_bytes() -> int | None:
    try:
        return int(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    except ValueError:  # "Allocator stats not available for device"
        return None


_TOO_LATE = (
    "TensorFlow will wait 10 s before each out-of-memory error: its devices were in use before that could be switched "
    "off. Call `fitroom.protect()` right after the imports, or use `fitroom run`."
)


def fail_at_once() -> str | None:
    """Set it for this process, before TensorFlow's devices are in use. Where it is too late and there is a card: that.

    On a CPU there is no such setting, and nothing to say.
    """
    import tensorflow as tf
    from tensorflow.python.eager import context  # there is no public door to this option in TensorFlow 2

    settings = context.context()
    if settings._config is not None and settings._config.gpu_options.experimental.disallow_retry_on_allocation_failure:
        return None
    if settings._context_handle is not None:
        return _TOO_LATE if tf.config.list_physical_devices("GPU") else None
    if settings._config is None:
        settings._config = tf.compat.v1.ConfigProto()
    settings._config.gpu_options.experimental.disallow_retry_on_allocation_failure = True
    return None
