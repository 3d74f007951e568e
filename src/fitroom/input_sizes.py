"""The dimensions that a model leaves open, as in `keras.Input((None, None, 3))`, and what they are taken to be.

Memory depends on them, so an estimate or a plan needs them from the caller or from the data.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from fitroom.errors import InputError

InputShape = Sequence[Any] | Mapping[str, Sequence[int]]
"""The shape of a sample, such as (512, 512, 3); of several inputs one each, in a list or by name."""


@dataclass(frozen=True, kw_only=True)
class InputSizes:
    """What the caller says about open dimensions."""

    shape: InputShape | None = None
    image_size: int | None = None
    """Height and width of inputs of rank 4."""

    sequence_length: int | None = None
    """The second dimension of inputs of rank 2 and 3."""


_NOTHING = InputSizes()
_known: ContextVar[InputSizes] = ContextVar("open dimensions", default=_NOTHING)


@contextmanager
def known_sizes(
    shape: InputShape | None = None, *, image_size: int | None = None, sequence_length: int | None = None
) -> Iterator[None]:
    """Set the open dimensions within the block. What is left out here is as in the enclosing block."""
    before = _known.get()
    token = _known.set(
        InputSizes(
            shape=before.shape if shape is None else shape,
            image_size=image_size or before.image_size,
            sequence_length=sequence_length or before.sequence_length,
        )
    )
    try:
        yield
    finally:
        _known.reset(token)


def fill_in(shape: Sequence[int | None], *, name: str, place: int, count: int) -> tuple[int | None, ...]:
    """Replace open dimensions in the shape of one of `count` inputs, whose first dimension is the batch.

    >>> with known_sizes((512, 512, 3)):
    ...     fill_in((None, None, None, 3), name="images", place=0, count=1)
    (None, 512, 512, 3)
    >>> with known_sizes(sequence_length=128):
    ...     fill_in((None, None), name="tokens", place=0, count=1)
    (None, 128)
    """
    if None not in shape[1:]:
        return tuple(shape)
    known, filled = _known.get(), list(shape)
    if (given := _shape_of(known.shape, name, place, count)) is not None:
        _check(given, shape, name)
        return (shape[0], *given)
    if known.image_size is not None and len(shape) == 4:
        pixels = (2, 3) if filled[1] is not None and filled[1] <= 4 else (1, 2)  # channels first, or last
        for axis in pixels:
            filled[axis] = known.image_size if filled[axis] is None else filled[axis]
    if known.sequence_length is not None and len(shape) in (2, 3) and filled[1] is None:
        filled[1] = known.sequence_length
    return tuple(filled)


def describe_open(names_and_shapes: Sequence[tuple[str, Sequence[int | None]]]) -> str | None:
    """Say for people which shapes were taken for inputs with open dimensions; None where there are none."""
    count = len(names_and_shapes)
    found = [
        f"{name!r} as {fill_in(shape, name=name, place=place, count=count)[1:]}"
        for place, (name, shape) in enumerate(names_and_shapes)
        if None in shape[1:]
    ]
    return f"The model leaves dimensions of its input open; this is for {', '.join(found)}." if found else None


def _shape_of(given: InputShape | None, name: str, place: int, count: int) -> Sequence[Any] | None:
    if given is None:
        return None
    if isinstance(given, Mapping):
        return given.get(name)
    if all(isinstance(each, Sequence) for each in given) and given:
        return given[place] if place < len(given) else None
    if count > 1:
        raise InputError(
            f"`input_shape` is one shape, and the model has {count} inputs. Received: {given!r}.",
            hint=f"a shape for each, by name: input_shape={{{name!r}: ..., ...}}",
        )
    return given


def _check(given: Sequence[Any], shape: Sequence[int | None], name: str) -> None:
    fits = len(given) == len(shape) - 1 and all(
        isinstance(size, int) and size > 0 and wanted in (None, size)
        for size, wanted in zip(given, shape[1:], strict=True)
    )
    if not fits:
        raise InputError(
            f"`input_shape` does not fit the input {name!r}. Expected: {tuple(shape[1:])}, a number for each None. "
            f"Received: {tuple(given)}.",
            hint="the shape of one sample, without the batch",
        )
