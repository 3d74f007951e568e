"""On the `PYTHONPATH` of all processes that tests start: tests/conftest.py puts it there."""

import quick_garbage  # noqa: F401
