"""Tracing without what an estimate never looks at: where in Python each operation was made, and garbage."""

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tensorflow.python.framework import ops  # no public name leaves out where operations were made

_NOTES = "extract_traceback"


@contextmanager
def light_tracing() -> Iterator[None]:
    """Trace, during the block, without noting the calls that led to each operation, and without collecting garbage.

    The notes take a tenth of the time, and again when the graph is lowered. A graph is a hundred thousand objects,
    nearly all of which stay.
    """
    create, was_enabled = ops._create_c_op, gc.isenabled()
    ops._create_c_op = _without_notes(create)
    gc.disable()
    try:
        yield
    finally:
        ops._create_c_op = create
        if was_enabled:
            gc.enable()


def _without_notes(create: Callable[..., Any]) -> Callable[..., Any]:
    return partial(create, **{_NOTES: False}) if _NOTES in inspect.signature(create).parameters else create
