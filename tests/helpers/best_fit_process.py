"""TensorFlow's own best-fit allocator at work on the CPU, writing down what it does."""

import json
import os

import tensorflow as tf


def counters() -> str:
    return json.dumps(tf.config.experimental.get_memory_info("CPU:0"))


def step(size: int) -> None:
    """Tensors of many sizes that come and go in another order."""
    kept = [tf.random.stateless_uniform((size * k, 257), seed=(1, k)) for k in (5, 1, 9, 3, 14, 2)]
    del kept[1], kept[2]
    kept.append(tf.matmul(kept[0], kept[0], transpose_a=True))
    del kept[0]
    kept.append(tf.concat(kept[:2], axis=0))


for size in (100, 301, 77, 530, 100):
    step(size)
os.write(2, f"COUNTERS {counters()}\n".encode())
try:
    tf.zeros((400, 2**20))
except tf.errors.ResourceExhaustedError:
    os.write(2, b"OUT OF MEMORY\n")
