"""Batches on the host, as TensorFlow's tensors."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from fitroom.backends.tensorflow.train.pinned import PinnedArray
from fitroom.batch import Batch, leaves, micro_batch_sizes

HOST = "CPU:0"


def as_tensors(batch: Batch) -> Batch:
    """The batch as tensors of the host, from where a program takes what it needs when it needs it."""
    return batch.map(as_tensor)


def as_tensor(array: Any) -> Any:
    """One array of it."""
    if isinstance(array, PinnedArray):
        return array.as_tensor()
    with tf.device(HOST):
        return array if tf.is_tensor(array) else tf.convert_to_tensor(np.asarray(array))


def split_batch(batch: Batch, micro_batch: int) -> list[Batch]:
    """The micro-batches, where the batch is: left to itself TensorFlow would split it on the card, all of it there."""
    with tf.device(_device_of(next(leaves(batch.x)))):
        return batch.micro_batches(micro_batch)


def first_micro_batch(batch: Batch, micro_batch: int) -> Batch:
    """The first of them alone."""
    with tf.device(_device_of(next(leaves(batch.x)))):
        return batch.slice(0, micro_batch_sizes(batch.size, micro_batch)[0])


def is_of_arrays(batch: Batch) -> bool:
    """Whether it has neither sparse nor ragged tensors, which Keras takes for arrays when it looks at shapes alone."""
    odd = (tf.SparseTensor, tf.RaggedTensor)
    return not any(isinstance(leaf, odd) for held in (batch.x, batch.y) for leaf in leaves(held))


def on_host(output: Any) -> Any:
    """An output of the model as Keras's `predict` gives it: NumPy's, unless NumPy has no word for it."""
    return output if isinstance(output, tf.RaggedTensor | tf.SparseTensor) else keras.ops.convert_to_numpy(output)


def concatenate(outputs: Sequence[Any]) -> Any:
    """Outputs of several batches, joined along the samples; ragged where they differ in another axis."""
    first = outputs[0]
    if len(outputs) == 1:
        return first
    if isinstance(first, tf.SparseTensor):
        return tf.sparse.concat(axis=0, sp_inputs=list(outputs))
    if isinstance(first, tf.RaggedTensor):
        return tf.concat(outputs, axis=0)
    if not first.shape:
        return np.stack(outputs)
    if any(output.shape[1:] != first.shape[1:] for output in outputs):
        return tf.concat([tf.RaggedTensor.from_tensor(output) for output in outputs], axis=0)
    return np.concatenate(outputs)


def _device_of(array: Any) -> str:
    return str(array.device) if isinstance(array, tf.Tensor) else HOST
