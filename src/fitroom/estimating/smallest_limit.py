"""Finds the smallest allocator limit under which a step runs.

Where the framework runs the same step under every limit, that is the step's `required_bytes`. XLA recomputes to stay
below a limit, so there the step is compiled for smaller and smaller limits until it no longer fits.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fitroom.errors import CompilerError
from fitroom.memory.step import StepRequest, TracedStep
from fitroom.memory.timeline import Kind

if TYPE_CHECKING:
    from fitroom.backends.contract import Backend

PRECISION = 0.02
"""How far above the smallest limit the answer may lie, as a share of it."""

_ALWAYS_THERE: tuple[Kind, ...] = ("weights", "optimizer", "input")


def trace_under_smallest_limit(backend: "Backend", model: Any, request: StepRequest) -> TracedStep:
    """Return the step as it runs under the smallest limit that it fits, found by bisection."""
    best = backend.trace(model, request)
    best = replace(best, limit_bytes=max(best.required_bytes, 1))
    if not best.depends_on_limit:
        return best
    by_kind = best.timeline.by_kind()
    fails_bytes, works_bytes = sum(by_kind[kind] for kind in _ALWAYS_THERE), best.limit_bytes
    while works_bytes - fails_bytes > PRECISION * works_bytes:
        middle_bytes = (works_bytes + fails_bytes) // 2
        trial = _try_to_trace(backend, model, replace(request, limit_bytes=middle_bytes))
        if trial and trial.required_bytes <= middle_bytes:
            # Compiled for exactly what this layout requires, XLA might choose another one: only the limit is certain.
            best, works_bytes = replace(trial, required_bytes=middle_bytes), middle_bytes
        else:
            fails_bytes = middle_bytes
    return best


def _try_to_trace(backend: "Backend", model: Any, request: StepRequest) -> TracedStep | None:
    try:
        return backend.trace(model, request)
    except CompilerError:  # XLA may give up under a limit that is far too small
        return None
