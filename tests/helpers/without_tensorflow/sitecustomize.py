"""On `PYTHONPATH`: as if TensorFlow were not installed. On any backend Keras imports it where it is, for seconds."""

import contextlib
from importlib.machinery import PathFinder

with contextlib.suppress(ImportError):  # Python takes one `sitecustomize` only, and this one comes first
    import quick_garbage  # noqa: F401

_find_spec = PathFinder.find_spec


def _find_all_but_tensorflow(cls, name, path=None, target=None):
    return None if name == "tensorflow" else _find_spec(name, path, target)


# None in `sys.modules` would do for imports, but Keras takes the name's being there for the module.
PathFinder.find_spec = classmethod(_find_all_but_tensorflow)
