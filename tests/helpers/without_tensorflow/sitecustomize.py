"""On `PYTHONPATH`: as if TensorFlow were not installed. On any backend Keras imports it where it is, for seconds."""

import contextlib
import sys

with contextlib.suppress(ImportError):  # Python takes one `sitecustomize` only, and this one comes first
    import quick_garbage  # noqa: F401

sys.modules["tensorflow"] = None
