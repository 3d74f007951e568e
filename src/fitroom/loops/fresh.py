"""`fitroom.fresh`: a round of a loop that leaves no memory behind."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import ParamSpec, TypeVar

from fitroom.display import TextDisplay
from fitroom.errors import InputError
from fitroom.loops.host import read_host, trim_heap
from fitroom.loops.owners import LiveArray, born_since, list_live_arrays, sum_by_owner
from fitroom.train.leftovers import clear_frames

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Held:
    """Arrays of one owner."""

    owner: str
    """Such as "model 'sequential_1'", "optimizer 'adam'", or "other arrays"."""

    bytes: int
    count: int
    """How many arrays."""

    holder: str | None = None
    """Where that is known, who holds them: "`best`, a Sequential in folds.py"."""


class Round(TextDisplay):
    """What one round freed, and what of it stayed. Filled in when its block ends."""

    def __init__(self) -> None:
        self.freed: tuple[Held, ...] = ()
        """Arrays that were alive at the end of the block and are gone, by owner."""

        self.notes: tuple[str, ...] = ()
        """What the framework cannot give back within a process."""

        self.host_freed_bytes: int | None = None
        """Of the host's heap; None where that cannot be read."""

        self.device_in_use_bytes: int | None = None
        """What the allocator has in use after the round; None where it does not count."""

        self.device_freed_bytes: int | None = None
        self.is_over = False
        self._stayed: list[LiveArray] = []

    def finish(
        self,
        *,
        gone: list[LiveArray],
        stayed: list[LiveArray],
        device_bytes: tuple[int | None, int | None],
        heap_bytes: tuple[int | None, int | None],
        notes: tuple[str, ...],
    ) -> None:
        """Fill it in: the arrays that went and that stayed; bytes in use before and after the release."""
        self.freed = tuple(_make_held(owner, group) for owner, group in sum_by_owner(gone).items())
        self._stayed = stayed
        self.device_in_use_bytes = device_bytes[1]
        self.device_freed_bytes = _difference(*device_bytes)
        self.host_freed_bytes = _difference(*heap_bytes)
        self.notes = notes
        self.is_over = True

    @property
    def stayed(self) -> tuple[Held, ...]:
        """Arrays that the round made and that somebody still holds, by owner, with the holder of the largest."""
        from fitroom.holders import find_holders

        groups = sum_by_owner(each for each in self._stayed if each.reference() is not None)
        largest = [max(arrays, key=lambda each: each.bytes).reference() for arrays in groups.values()]
        return tuple(
            _make_held(owner, arrays, None if holder.kind == "unknown" else holder.root)
            for (owner, arrays), holder in zip(groups.items(), find_holders(largest), strict=True)
        )

    @property
    def freed_bytes(self) -> int:
        """The bytes of all arrays that were freed."""
        return sum(held.bytes for held in self.freed)

    @property
    def stayed_bytes(self) -> int:
        """The bytes of the round's arrays that are alive."""
        return sum(each.bytes for each in self._stayed if each.reference() is not None)


class Fresh:
    """The block of one round; see `fresh`. Each block is a new one."""

    def __init__(self) -> None:
        self._round: Round | None = None

    def __enter__(self) -> Round:
        if self._round is not None:
            raise InputError(
                "A block of `fitroom.fresh()` can be entered once.", hint="write `with fitroom.fresh():` for each round"
            )
        from fitroom.backends.choose import current_backend

        self._round = Round()
        self._backend = current_backend()
        self._before = list_live_arrays(self._backend)
        self._end_round = self._backend.begin_round()
        return self._round

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._round is not None
        if error is not None:
            clear_frames(error)  # of functions that are finished; those that still run keep their variables
        device = self._backend.devices()[0]
        arrays, host = list_live_arrays(self._backend), read_host()
        in_use_bytes = self._backend.read_memory(device).in_use_bytes
        notes = self._end_round()
        trim_heap()
        self._round.finish(
            gone=[each for each in arrays.values() if each.reference() is None],
            stayed=[each for each in born_since(self._before, arrays).values() if each.reference() is not None],
            device_bytes=(in_use_bytes, self._backend.read_memory(device).in_use_bytes),
            heap_bytes=(host.heap_bytes, read_host().heap_bytes),
            notes=notes,
        )
        self._before = {}

    def __call__(self, function: Callable[_P, _T]) -> Callable[_P, _T]:
        """A function of which each call is a round."""

        @functools.wraps(function)
        def call(*arguments: _P.args, **options: _P.kwargs) -> _T:
            with Fresh():
                return function(*arguments, **options)

        return call


def fresh() -> Fresh:
    """Give back, at the end of a block, all memory of the block that nobody can use any more.

    For a loop that trains model after model: folds, trials, seeds. What was made before the block, and what is still
    referred to after it, keeps working and keeps its values; so do Keras's settings, names and random state, which
    `keras.backend.clear_session()` would reset. An error that leaves the block no longer holds the variables of the
    functions it came through.

    Names that the block assigned are still there after it, and hold what they name: call a function in the block, or
    write `del model` at its end. As a decorator, each call of the function is a round.

    >>> for fold in range(5):  # doctest: +SKIP
    ...     with fitroom.fresh() as round:
    ...         scores.append(train_fold(fold))
    ...     print(round)
    """
    return Fresh()


def _make_held(owner: str, arrays: list[LiveArray], holder: str | None = None) -> Held:
    return Held(owner=owner, bytes=sum(each.bytes for each in arrays), count=len(arrays), holder=holder)


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else before - after
