"""TensorFlow with a limit of 400 MB on its CPU allocator, set before it is imported: it runs out of memory for real.

In a process that has imported it without that limit, nothing of this folder can run.
"""

import os
import sys

from fitroom.backends.choose import installed_backends
from processes import LIMITED_CPU

if "tensorflow" not in installed_backends() or not {"keras", "tensorflow"}.isdisjoint(sys.modules):
    collect_ignore_glob = ["*.py"]
else:
    os.environ.update(LIMITED_CPU | {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"})
