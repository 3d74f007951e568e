"""Tracing without what an estimate never looks at: where in Python each operation was made, and garbage."""

import gc
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tensorflow.python.framework import op_def_library, ops  # no public name leaves out what these do

_NOTES = "extract_traceback"
_CHECK = "_SatisfiesTypeConstraint"


@contextmanager
def light_tracing() -> Iterator[None]:
    """Trace, during the block, without noting the calls that led to each operation, and without collecting garbage.

    The notes take a tenth of the time, and again when the graph is lowered. A graph is a hundred thousand objects,
    nearly all of which stay. TensorFlow also words, for each operation that is given a valid type, the error for one
    that is not: a fifteenth of the time.
    """
    create, check, was_enabled = ops._create_c_op, getattr(op_def_library, _CHECK, None), gc.isenabled()
    ops._create_c_op = _without_notes(create)
    if check is not None:
        setattr(op_def_library, _CHECK, partial(_check_type, check))
    gc.disable()
    try:
        yield
    finally:
        ops._create_c_op = create
        if check is not None:
            setattr(op_def_library, _CHECK, check)
        if was_enabled:
            gc.enable()


def _without_notes(create: Callable[..., Any]) -> Callable[..., Any]:
    return partial(create, **{_NOTES: False}) if _NOTES in inspect.signature(create).parameters else create


def _check_type(check: Callable[..., None], dtype: Any, attribute: Any, *rest: Any, **named: Any) -> None:
    """Leave to TensorFlow's own check what may be refused."""
    if attribute.HasField("allowed_values") and dtype not in attribute.allowed_values.list.type:
        check(dtype, attribute, *rest, **named)
