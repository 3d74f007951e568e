"""Train a small CNN a few batches in TensorFlow's CPU allocator, limited as a graphics card's is.

    TF_CPU_ALLOCATOR_USE_BFC=true TF_CPU_BFC_MEM_LIMIT_IN_MB=400 python examples/limited_memory.py

The allocator is the one TensorFlow uses on a GPU. When a step does not fit, the error is the real one, and
`fitroom run examples/limited_memory.py` trains all the same. Exit code 3: out of memory.
"""

import os
import sys

# oneDNN's kernels do not survive a failed allocation.
os.environ |= {"KERAS_BACKEND": "tensorflow", "TF_ENABLE_ONEDNN_OPTS": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}

import keras
import numpy as np

from fitroom.backends.choose import current_backend
from fitroom.units import format_bytes

BATCH_SIZE = 64
IMAGE_SIZE = 96


def main() -> None:
    """Train; say what it took, or how it died."""
    backend = current_backend()
    device = backend.devices()[0]
    limit = format_bytes(backend.read_memory(device).limit_bytes)
    pictures = np.zeros((5 * BATCH_SIZE // 2, IMAGE_SIZE, IMAGE_SIZE, 3), "float32")
    model = small_cnn()
    try:
        model.fit(pictures, np.zeros(len(pictures), "int32"), batch_size=BATCH_SIZE, verbose=0)
    except Exception as error:
        if not backend.is_out_of_memory(error):
            raise
        cause = next((line for line in str(error).splitlines() if "OOM" in line), str(error))
        print(f"limit {limit}: died of {type(error).__name__}: {cause.strip()}")
        sys.exit(3)
    peak = format_bytes(backend.read_memory(device).peak_bytes)
    print(f"limit {limit}: runs, {int(model.optimizer.iterations)} updates of up to {BATCH_SIZE} pictures, peak {peak}")


def small_cnn() -> keras.Model:
    """Two convolutions: nearly all of its memory is activations."""
    model = keras.Sequential(
        [
            keras.Input((IMAGE_SIZE, IMAGE_SIZE, 3)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(5),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    return model


if __name__ == "__main__":
    main()
