"""Allocations on a card that fail at once where memory is out.

TensorFlow's own wait ten seconds, in the hope that another thread gives memory back. XLA tries many kernels for a step,
and where the step is too large, the memory for each: hundreds of waits, in which training seems to hang.
"""


def fail_at_once() -> None:
    """Set it for this process. It works before TensorFlow's devices are in use; afterwards it does nothing."""
    import tensorflow as tf
    from tensorflow.python.eager import context  # there is no public door to this option in TensorFlow 2

    settings = context.context()
    if settings._context_handle is not None:
        return
    if settings._config is None:
        settings._config = tf.compat.v1.ConfigProto()
    settings._config.gpu_options.experimental.disallow_retry_on_allocation_failure = True
