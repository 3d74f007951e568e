"""Trains a new model again and again in one process; after each round prints MEMORY and the bytes that it has.

python rounds.py ROUNDS [plain]      # plain: by `model.fit`, for comparison
"""

import gc
import sys
import tempfile
import warnings
from pathlib import Path

import keras
import numpy as np
import psutil

import fitroom

warnings.simplefilter("ignore")
x = np.random.default_rng(0).normal(size=(64, 64)).astype("float32")
y = (x[:, 0] > 0).astype("int32")
with tempfile.TemporaryDirectory() as folder:
    for number in range(int(sys.argv[1])):
        layers = [keras.layers.Dense(256, "relu"), keras.layers.Dense(256, "relu"), keras.layers.Dense(2)]
        model = keras.Sequential([keras.Input((64,)), *layers])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        fitroom.fit(
            model,
            x,
            y,
            batch_size=16,
            epochs=1,
            verbose=0,
            validation_data=(x, y),
            recipe=fitroom.Recipe(micro_batch=8),
            run_dir=Path(folder) / str(number),
        )
        del model, layers
        keras.backend.clear_session()
        gc.collect()
        print("MEMORY", psutil.Process().memory_info().rss, flush=True)
