"""The command line of fitroom where three CPU devices of TensorFlow, or of JAX, stand for cards.

    python tests/helpers/on_logical_devices.py run --devices 3 train.py

JAX takes their number from XLA_FLAGS. TensorFlow must be told before it starts, which a script of a user's cannot do
under `fitroom run --devices`.
"""

import os

if os.environ["KERAS_BACKEND"] == "tensorflow":
    import tensorflow as tf

    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)

from fitroom.cli.main import main

main()
