"""In a process that only estimates Keras is imported without plots and other frameworks; whoever asks gets them."""

import os
import subprocess
import sys

KERAS = """
import matplotlib.pyplot as plt
from matplotlib import patches
try:
    import jax
except ImportError:
    jax = None
"""
IMPORTING = """
import sys
from fitroom.backends.light_import import import_keras_lightly
import_keras_lightly("torch")
import keras
print(sorted({"matplotlib", "matplotlib.pyplot", "jax"} & set(sys.modules)), keras.jax)
print(keras.plt.figure(), keras.patches.Patch)
import jax, matplotlib.pyplot, matplotlib.patches
print(keras.plt.figure is matplotlib.pyplot.figure, keras.patches.Patch is matplotlib.patches.Patch, jax.__name__)
print([type(finder).__name__ for finder in sys.meta_path if "light_import" in type(finder).__module__])
"""


def test_plots_are_imported_when_they_are_used_and_other_frameworks_when_somebody_else_asks(tmp_path):
    texts = {
        "keras/__init__.py": KERAS,
        "jax/__init__.py": "",
        "matplotlib/__init__.py": "",
        "matplotlib/pyplot.py": "def figure(): return 'a figure'",
        "matplotlib/patches.py": "Patch = 'a patch'",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    }
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["[] None", "a figure a patch", "True True jax", "[]"]
