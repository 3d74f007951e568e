"""Recognising that TensorFlow is out of memory."""

import tensorflow as tf

from fitroom.backends.out_of_memory import recognise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device ran out of memory. The class is `tf.errors.ResourceExhaustedError`, jitted or not."""
    return recognise(error, by_class=lambda link: isinstance(link, tf.errors.ResourceExhaustedError))
