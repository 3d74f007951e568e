"""`fitroom run` protects a script in whatever order it imports Keras and TensorFlow, and says so only where it does."""

import os
import subprocess
import sys

import pytest

from processes import hide_tensorflow, needs

TRAINING = """
import numpy as np
x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")

def train(keras, model=None):
    model = model or keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(x, y, batch_size=4, verbose=0)
    print("served" if hasattr(history, "fitroom") else "plain")
"""
SUBCLASSES = """
import tensorflow as tf

class Before(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)
    def call(self, x):
        return self.dense(x)

import keras

class After(keras.Model):
    dense = None
    def build(self, shape):
        self.dense = keras.layers.Dense(1)
        self.dense.build(shape)
    def call(self, x):
        return self.dense(x)
    def fit(self, *arguments, **options):
        return super().fit(*arguments, **options)

train(keras, Before())
train(keras, After())
train(tf.keras)
"""
LOOKED_UP = """
import importlib.machinery, importlib.util
assert importlib.util.find_spec("keras") is not None
assert isinstance(importlib.util.find_spec("keras").loader, importlib.machinery.SourceFileLoader)
from keras import layers
import keras
train(keras)
assert type(keras.__spec__.loader) is importlib.machinery.SourceFileLoader and keras.__loader__ is keras.__spec__.loader
"""
IN_THREADS = """
import threading
def work():
    import keras
    train(keras)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
FAILS_FIRST = """
import os, sys
os.environ["KERAS_BACKEND"] = "theano"
try:
    import keras
except ValueError:
    for name in [name for name in sys.modules if name.startswith("keras")]:
        del sys.modules[name]
    os.environ["KERAS_BACKEND"] = "torch"
import keras
train(keras)
"""
ORDERS = {
    "subclasses": SUBCLASSES,
    "looked up": LOOKED_UP,
    "in threads": IN_THREADS,
    "fails first": FAILS_FIRST,
    "from tensorflow": "from tensorflow import data\nimport keras\ntrain(keras)\n",
    "keras of tensorflow": "from tensorflow import keras\ntrain(keras)\n",
    "tf.keras": "from tensorflow.keras import layers\nimport tensorflow as tf\ntrain(tf.keras)\n",
    "tensorflow first": "import tensorflow\nimport keras\ntrain(keras)\n",
}


def run(folder, *arguments, backend="torch", has_tensorflow=False):
    environment = os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if not has_tensorflow:
        environment = hide_tensorflow(environment)
    command = [sys.executable, "-m", "fitroom", "run", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


@pytest.mark.parametrize(
    ("backend", "order"),
    [
        ("tensorflow", "subclasses"),
        ("tensorflow", "from tensorflow"),
        ("torch", "looked up"),
        ("torch", "fails first"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("tensorflow", "keras of tensorflow"),
                ("tensorflow", "tf.keras"),
                ("tensorflow", "in threads"),
                ("torch", "tensorflow first"),
                ("jax", "tensorflow first"),
                ("jax", "in threads"),
                ("jax", "looked up"),
            )
        ),
    ],
)
def test_a_script_is_protected_whatever_it_imports_first(backend, order, tmp_path):
    needs(backend)
    script = ORDERS[order]
    if "tensorflow" in script:
        needs("tensorflow")
    num_fits = {"subclasses": 3, "in threads": 2}.get(order, 1)
    (tmp_path / "train.py").write_text(TRAINING + script)
    done = run(tmp_path, "train.py", backend=backend, has_tensorflow="tensorflow" in backend + script)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("served"), done.stdout.count("plain")) == (num_fits, 0)
    assert done.stderr.count("fitroom: running train.py with model.fit protected against out-of-memory") == 1
    assert "NOT protected" not in done.stderr


def test_a_package_is_run_as_python_runs_it(tmp_path):
    needs("jax")
    package = tmp_path / "flowers" / "train"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package.parent / "training.py").write_text(TRAINING)
    main = "import sys, keras\nfrom ..training import train\nprint(__name__, __package__, *sys.argv)\ntrain(keras)\n"
    (package / "__main__.py").write_text(main)
    done = run(tmp_path, "-m", "flowers.train", "--epochs", "3", backend="jax")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"__main__ flowers.train {package / '__main__.py'} --epochs 3",
        "served",
    ]
    assert "running flowers.train with model.fit protected" in done.stderr


@pytest.mark.parametrize("name", ["flowers", "flowers.train"])
def test_a_package_that_is_not_there_is_an_error(name, tmp_path):
    done = run(tmp_path, "-m", name)
    assert done.returncode == 1
    assert f"no module {name!r}" in done.stderr
    assert "Traceback" not in done.stderr


AROUND = """
import keras
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
super(keras.Model, model).fit(x, y, verbose=0)
raise KeyError("mine")
"""


def test_training_that_was_not_served_is_told_of_however_the_script_ends(tmp_path):
    needs("jax")
    (tmp_path / "train.py").write_text(TRAINING + AROUND)
    done = run(tmp_path, "train.py", backend="jax")
    assert done.returncode == 1
    assert "KeyError: 'mine'" in done.stderr
    assert "warning: training ran that was NOT protected against out-of-memory: keras's own fit" in done.stderr


def test_nothing_is_called_protected_where_keras_was_not_imported(tmp_path):
    (tmp_path / "keras.py").touch()  # not the one that is meant
    (tmp_path / "train.py").write_text("import keras\nprint('done')\n")
    done = run(tmp_path, "train.py")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr == "fitroom: nothing was protected: train.py did not import Keras\n"


def test_the_flag_wins_over_the_environment_and_the_script(tmp_path):
    needs("jax")
    own = "import os\nprint(os.environ['KERAS_BACKEND'])\nos.environ['KERAS_BACKEND'] = 'tensorflow'\nimport keras\n"
    (tmp_path / "train.py").write_text(f"{own}print(keras.backend.backend())\n")
    done = run(tmp_path, "--backend", "jax", "train.py", backend="torch")
    assert done.stdout.split() == ["jax", "jax"]
    assert "on JAX (--backend, which overrides KERAS_BACKEND=tensorflow)" in done.stderr
