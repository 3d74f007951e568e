"""Recognising that JAX is out of memory."""

import jax

from fitroom.backends.out_of_memory import recognise
from fitroom.errors import NoRoomError


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device ran out of memory.

    JAX has one class for all that goes wrong at run time, `jax.errors.JaxRuntimeError`; its text begins with the
    status, here RESOURCE_EXHAUSTED. A step that is refused before it runs is a `NoRoomError`.
    """
    return recognise(error, by_class=_is_resource_exhausted)


def _is_resource_exhausted(error: BaseException) -> bool:
    if isinstance(error, NoRoomError):
        return True
    return isinstance(error, jax.errors.JaxRuntimeError) and str(error).startswith("RESOURCE_EXHAUSTED")
