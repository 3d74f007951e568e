"""The error of a fake device that is out of memory, and how it is recognised."""

from fitroom.backends.out_of_memory import recognise


class FakeOutOfMemoryError(RuntimeError):
    """What the fake device raises when it is asked for more than it has.

    Its text says nothing that the frameworks' errors say, so that it is recognised by its class alone.
    """

    def __init__(self, size_bytes: int, *, in_use_bytes: int, capacity_bytes: int) -> None:
        super().__init__(
            f"The fake device cannot give {size_bytes} bytes: {in_use_bytes} of {capacity_bytes} are in use."
        )
        self.size_bytes = size_bytes


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the fake device ran out of memory."""
    return recognise(error, by_class=lambda link: isinstance(link, FakeOutOfMemoryError))
