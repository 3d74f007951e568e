"""Out of memory told by an error's text, and by the errors behind it: what the three backends share.

Each backend says which classes its framework raises; the rest is the same for all. A framework's error reaches
us wrapped more often than not: Keras rebuilds errors to add the layer's arguments, user code raises its own
from it, and libraries below the framework (cuDNN, cuBLAS) know only a status code.

The texts here decide whether an error that is raised now counts as out of memory, so that its batch is repeated.
`explaining/messages.py` explains logs, with sizes and devices; `train/transaction.py` only picks a line to quote.
"""

import re
from collections.abc import Callable, Iterator

from fitroom.errors import StateLostError

_OUT_OF_MEMORY = re.compile(
    r"""
      out[ _]of[ _]memory                    # CUDA, HIP, XPU, MPS; CUDA_ERROR_OUT_OF_MEMORY; XLA
    | \bOOM\ when\ allocating                # TensorFlow, the executor
    | Dst\ tensor\ is\ not\ initialized      # TensorFlow, a copy to a card that is full
    | unable\ to\ allocate\ output\ tensor   # TensorFlow, a value that one device hands to another
    | DefaultCPUAllocator:\ (can't\ allocate|not\ enough)\ memory    # PyTorch on Linux, on Windows
    | failed\ to\ allocate\ (memory|request|\d+\ bytes)              # XLA, also without its status
    | Autotuning\ failed\ .*No\ valid\ config\ found               # XLA: no kernel found memory to be tried in
    | \w+_ALLOC_FAILED\b                     # CUDNN_STATUS_, CUBLAS_STATUS_, CUSPARSE_STATUS_, CUFFT_
    """,
    re.IGNORECASE | re.VERBOSE,
)

# Resources that run out under the same words or the same status, and that a smaller step does not bring back.
_SOMETHING_ELSE = re.compile(
    r"""
      no\ space\ left\ on\ device            # a disk, or /dev/shm; TensorFlow says RESOURCE_EXHAUSTED
    | (disk\ )?quota\ exceeded
    | too\ many\ open\ files
    | (received|sent|serialized)\ message\ larger\ than\ max         # gRPC
    | shared\ memory\ size\ limit            # the few hundred KiB inside one multiprocessor
    """,
    re.IGNORECASE | re.VERBOSE,
)


def recognise(error: BaseException, *, by_class: Callable[[BaseException], bool]) -> bool:
    """Whether `error`, or an error behind it, says that the device is out of memory.

    By class first, as the backend's `by_class` tells; by text second. Never so: an interrupt or an exit, whatever
    they came in the middle of; and the host's own `MemoryError` and `OSError`, because the batch is on the host
    in one piece however small the steps on the device are, so that trying a smaller step would only repeat it. Nor is
    a `StateLostError`, whatever was behind it: there is no state left to try with.

    >>> recognise(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), by_class=lambda error: False)
    True
    >>> recognise(MemoryError("out of memory"), by_class=lambda error: False)
    False
    """
    if not isinstance(error, Exception) or isinstance(error, StateLostError):
        return False
    return any(_tells(link, by_class) for link in error_and_causes(error))


def error_and_causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those behind it: what it was raised from, what it was raised during, and the members of a group.

    An error that was raised `from None` hides what it was raised during. It is looked behind where its text repeats
    the hidden error's, as that of Keras's errors does: those keep the text of the error below them and not its class.

    >>> group = ExceptionGroup("two steps", [ValueError("one"), KeyError("other")])
    >>> [type(each).__name__ for each in error_and_causes(group)]
    ['ExceptionGroup', 'ValueError', 'KeyError']
    """
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting.append(link.__cause__)
        if not link.__suppress_context__ or _repeats(link, link.__context__):
            waiting.append(link.__context__)
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions


def _repeats(wrapper: BaseException, hidden: BaseException | None) -> bool:
    """Whether the text of an error has the first line of another's in it."""
    first_line = str(hidden).strip().partition("\n")[0].strip()
    return hidden is not None and bool(first_line) and first_line in str(wrapper)


def _tells(link: BaseException, by_class: Callable[[BaseException], bool]) -> bool:
    text = str(link)
    if isinstance(link, MemoryError | OSError) or _SOMETHING_ELSE.search(text):
        return False
    return by_class(link) or _OUT_OF_MEMORY.search(text) is not None
