"""On `PYTHONPATH`: as if TensorFlow were not installed. On any backend Keras imports it where it is, for seconds."""

import sys

sys.modules["tensorflow"] = None
