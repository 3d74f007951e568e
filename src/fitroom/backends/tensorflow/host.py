"""Batches on the host, as TensorFlow's tensors."""

from typing import Any

import numpy as np
import tensorflow as tf

from fitroom.backends.tensorflow.pinned import Pinned
from fitroom.train.batch import Batch, cut_sizes
from fitroom.train.structure import leaves

HOST = "CPU:0"


def as_tensors(batch: Batch) -> Batch:
    """The batch as tensors of the host, from where a program takes what it needs when it needs it."""
    return batch.mapped(as_tensor)


def as_tensor(array: Any) -> Any:
    """One array of it."""
    if isinstance(array, Pinned):
        return array.as_tensor()
    with tf.device(HOST):
        return array if tf.is_tensor(array) else tf.convert_to_tensor(np.asarray(array))


def cut(batch: Batch, micro_batch: int) -> list[Batch]:
    """The parts of a batch, where the batch is: left to itself TensorFlow would cut it on the card, all of it there."""
    with tf.device(_device_of(next(leaves(batch.x)))):
        return batch.parts(micro_batch)


def first_part(batch: Batch, micro_batch: int) -> Batch:
    """The first of them alone."""
    with tf.device(_device_of(next(leaves(batch.x)))):
        return batch.part(0, cut_sizes(batch.size, micro_batch)[0])


def is_of_arrays(batch: Batch) -> bool:
    """Whether it has neither sparse nor ragged tensors, which Keras takes for arrays when it looks at shapes alone."""
    odd = (tf.SparseTensor, tf.RaggedTensor)
    return not any(isinstance(leaf, odd) for part in (batch.x, batch.y) for leaf in leaves(part))


def _device_of(array: Any) -> str:
    return str(array.device) if isinstance(array, tf.Tensor) else HOST
