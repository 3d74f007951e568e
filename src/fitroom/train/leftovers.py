"""Memory that the last uncaught out-of-memory error still holds.

Python and notebooks keep the last error for inspection, its traceback keeps every frame on the way, and a frame keeps
its tensors: gigabytes that will not be used again.
"""

import gc
import sys
import traceback
from typing import Any

from fitroom.backends.contract import Backend


def free_last_error(backend: Backend) -> bool:
    """Clear the frames of the last uncaught error, if it was out of memory. Returns whether there was one."""
    held = [getattr(sys, name, None) for name in ("last_exc", "last_value")]
    errors = [error for error in held if isinstance(error, BaseException) and backend.is_out_of_memory(error)]
    if not errors:
        return False
    for error in errors:
        clear_frames(error)
    if isinstance(getattr(sys, "last_traceback", None), type(errors[0].__traceback__)):
        traceback.clear_frames(sys.last_traceback)
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        if hasattr(sys, name):
            delattr(sys, name)
    errors.clear()
    held.clear()
    _clear_notebook(backend)
    gc.collect()
    backend.release()
    return True


def clear_frames(error: BaseException) -> None:
    """Clear the frames of an error, of its causes and contexts, and of the members of a group."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        at = waiting.pop()
        if at is None or id(at) in seen:
            continue
        seen.add(id(at))
        traceback.clear_frames(at.__traceback__)
        waiting += [at.__cause__, at.__context__, *(at.exceptions if isinstance(at, BaseExceptionGroup) else ())]


def _clear_notebook(backend: Backend) -> None:
    """Remove errors from IPython's `Out` and `_`, which keep the value that a cell ended with."""
    main = sys.modules.get("__main__")
    results: Any = getattr(main, "Out", None)
    if not isinstance(results, dict):
        return
    for number in [n for n, value in results.items() if _is_error(value, backend)]:
        clear_frames(results.pop(number))
    for name in ("_", "__", "___"):
        if _is_error(getattr(main, name, None), backend):
            setattr(main, name, None)


def _is_error(value: Any, backend: Backend) -> bool:
    return isinstance(value, BaseException) and backend.is_out_of_memory(value)
