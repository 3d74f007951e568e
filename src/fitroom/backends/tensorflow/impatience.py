"""Allocations on a card that fail at once where memory is out.

TensorFlow's own wait ten seconds, in the hope that another thread gives memory back. XLA tries many kernels for a step,
and where the step is too large, the memory for each: hundreds of waits, in which training seems to hang.
"""

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
