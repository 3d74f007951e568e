"""A budget as a limit of the framework's allocator, in processes that start one."""

import os

from processes import hide_tensorflow, needs, run_python


def test_the_limit_of_tensorflow_is_real(tmp_path):
    needs("tensorflow")
    program = """
from fitroom.classify.machine import start_machine
said = []
machine = start_machine("tensorflow", budget="64MiB", gpu=None, say=said.append)
import tensorflow as tf
assert machine.backend.read_memory(machine.device).limit_bytes == machine.budget.bytes == 64 * 2**20
try:
    tf.zeros((128, 2**20))
except tf.errors.ResourceExhaustedError:
    print("refused", said)
"""
    said = run_python(["-c", program], backend="tensorflow", keras_home=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert said.strip() == "refused ['training on the CPU with TensorFlow']"


def test_pytorch_says_that_the_cpu_has_none(tmp_path):
    needs("torch")
    program = """
from fitroom.classify.machine import start_machine
said = []
start_machine("torch", budget="64MiB", gpu=None, say=said.append)
print(said[-1])
"""
    hidden = {"PYTHONPATH": hide_tensorflow(os.environ)["PYTHONPATH"]}
    said = run_python(["-c", program], backend="torch", keras_home=tmp_path, CUDA_VISIBLE_DEVICES="", **hidden)
    assert "not enforced: PyTorch has no limit for memory but on CUDA" in said
