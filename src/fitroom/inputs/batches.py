"""The batches of one epoch as they are made, and the error of a host that has no memory for the next one."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fitroom.batch import Batch
from fitroom.errors import HostMemoryError
from fitroom.inputs import randomness

_ALLOCATION = re.compile(r"(OOM when|Unable to allocate|can't allocate|out of memory).*", re.IGNORECASE)


class Batches(Iterator[Batch]):
    """An iterator over batches that also gives the state in which the next one will be made."""

    def __init__(
        self, made: Iterator[Batch], *, first: int, batch_size: int | None, state: Callable[[], dict[str, Any]]
    ) -> None:
        self._made, self._number, self._batch_size = made, first, batch_size
        self.state = state

    def __next__(self) -> Batch:
        try:
            batch = next(self._made)
        except Exception as error:
            if is_host_memory(error):
                raise host_memory_error(self._number, self._batch_size, error) from error
            raise
        self._number += 1
        return batch

    def close(self) -> None:
        """Stop what makes batches in the background."""
        close = getattr(self._made, "close", None)
        if close is not None:
            close()


@contextmanager
def keep_random_state(state: dict[str, Any], start: int) -> Iterator[None]:
    """Restore a source within the block, then set the random state in which the source makes its next batch.

    Within an epoch (`start` above 0) that is the recorded state, taken before later batches were prefetched. Between
    epochs nothing is prefetched, so the process keeps its own state, from which callbacks may have drawn since.
    """
    random = state["random"] if start else randomness.capture()
    yield
    randomness.restore(random)


def host_memory_error(number: int, batch_size: int | None, error: BaseException) -> HostMemoryError:
    """The error for batch `number` of an epoch, which could not be made."""
    size = "" if batch_size is None else f" of {batch_size} samples"
    text = str(error).strip()
    told = _ALLOCATION.search(text)  # TensorFlow's text begins with a long description of the place
    said = (told.group() if told else text.split("\n")[0])[:200]
    return HostMemoryError(
        f"The host ran out of memory while batch {number}{size} was being made"
        f"{f': {said}' if said else ''}. No memory of the GPU is short.",
        hint="a smaller batch_size, fewer workers or smaller buffers in the dataset, or data that are read from disk "
        "batch by batch; what was trained so far is intact",
    )


def is_host_memory(error: BaseException) -> bool:
    """Whether an error of a dataset means that the host's memory is full; datasets do not use the device's."""
    if isinstance(error, MemoryError):
        return True
    names = {kind.__name__ for kind in type(error).__mro__}
    return "ResourceExhaustedError" in names or "DefaultCPUAllocator" in str(error)
