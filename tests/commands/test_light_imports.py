"""TensorFlow is imported by nobody who did not ask for it."""

import pytest

from processes import needs, run_python


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_tensorflow_is_not_imported_for_the_sake_of_data(backend, tmp_path):
    needs(backend)
    program = """
import sys
import keras, numpy as np
from fitroom.inputs import randomness
from fitroom.inputs import source_of
from fitroom.inputs.prefetch import prefetch

class Dataset(keras.utils.PyDataset):
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return np.ones((2, 3)), np.ones(2)

x = keras.ops.ones((4, 3))
for data in ((x, x), (Dataset(),), (iter([(x, x)]),)):
    with prefetch(source_of(*data).epoch(0), lambda batch: batch) as batches:
        print(sum(item.batch.size for item in batches))
randomness.restore(randomness.capture())
print("tensorflow" in sys.modules)
"""
    printed = run_python(["-c", program], backend=backend, keras_home=tmp_path, JAX_PLATFORMS="cpu")
    assert printed.split() == ["4", "4", "4", "False"]
