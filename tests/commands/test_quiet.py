"""What frameworks say of themselves while fitroom estimates and plans is kept from stderr, with the real ones."""

import os

import pytest

from processes import needs, run_python

TALKING = """
import os
os.write(2, b"oneDNN custom operations are on")
class TensorShape: pass
class DType: pass
class TypeSpec: pass
"""

ONE_STDERR = """
import os, keras, fitroom
layers = [keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten()]
model = keras.Sequential([*layers, keras.layers.Dropout(0.1), keras.layers.Dense(2)])
os.dup2(1, 2)  # from here on it all counts
"""


def with_package(folder, text):
    """A folder with a package `tensorflow` of this text, to be found before any other."""
    package = folder / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


@pytest.mark.slow
def test_a_plan_says_nothing_of_a_framework_that_it_is_not_for(tmp_path):
    needs("torch")
    program = ONE_STDERR + "import sys; fitroom.plan(model, 8, gpu='T4'); print('tensorflow' in sys.modules)"
    environment = with_package(tmp_path, TALKING)
    printed = run_python(["-c", program], backend="torch", keras_home=tmp_path, **environment)
    assert printed == "True\n", "False: Keras no longer imports it, and backends/unheard.py can go"


@pytest.mark.slow
def test_neither_xla_nor_grappler_is_heard_in_estimates_on_tensorflow(tmp_path):
    needs("tensorflow")
    program = (
        ONE_STDERR + "for jit in (True, False): fitroom.estimate(model, 8, gpu='T4', recipe=fitroom.Recipe(jit=jit))"
    )
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "0", "CUDA_VISIBLE_DEVICES": "", "FITROOM_NO_CACHE": "1"}
    assert run_python(["-c", program], backend="tensorflow", keras_home=tmp_path, **quiet) == ""
