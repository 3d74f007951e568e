"""`fitroom.leaks`: whether memory grows from round to round of a loop, by how much, and what holds it."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from fitroom.backends.contract import Backend
from fitroom.display import RichDisplay
from fitroom.errors import InputError
from fitroom.loops.host import collect_garbage, quick_collections, read_host, trim_heap
from fitroom.loops.slope import FEWEST_READINGS, Slope, fit_slope

WARM_UP_ROUNDS = 3

_FINEST_BYTES = {"device": 4 * 1024, "host": 24 * 1024}
"""Growth a round that is never called a leak: loops keep scores, and allocators round."""


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """Something that grew in each of the rounds that were looked at."""

    kind: str
    """Such as model, layer, optimizer, history, loss, traceback, notebook, retrace, registry, array, objects, host."""

    what: str
    """What there is more of: "model 'sequential_4': 6 arrays"."""

    bytes_a_round: int | None
    """None where that is not known, as of compiled functions."""

    holder: str | None
    """Who holds it, or None where that is not known."""

    made_at: str | None
    """The line of the user's that made it, "train.py:31", or None where that is not known."""

    advice: str


@dataclass(frozen=True, kw_only=True)
class Growth:
    """The readings of one kind of memory, and how they grow."""

    memory: Literal["device", "host"]
    counted_by: str
    """Whose count it is: the allocator's, a sum of the arrays that are alive, or the heap's."""

    readings_bytes: tuple[int, ...]
    """After each round, the warm-up included."""

    slope: Slope | None
    """None where there are too few rounds."""

    limit_bytes: int
    """The smallest growth a round that these readings would have shown."""

    @property
    def is_leak(self) -> bool:
        """Whether it grows, by more than could be chance and more than a loop's own notes."""
        if self.slope is None:
            return False
        return self.slope.low_bytes >= _FINEST_BYTES[self.memory]


@dataclass(frozen=True, kw_only=True)
class Leaks(RichDisplay):
    """What `fitroom.leaks` found."""

    verdict: Literal["leaks", "steady", "not enough rounds"]
    bytes_a_round: int | None
    """Growth per round, of the device where it grows, else of the host; None where nothing does."""

    rounds: int
    warm_up_rounds: int
    growths: tuple[Growth, ...]
    suspects: tuple[Suspect, ...]
    """What grew, the largest first, lines of code last; empty where nothing leaks."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self) | {
            "growths": [asdict(each) | {"is_leak": each.is_leak} for each in self.growths],
        }

    @property
    def is_leaking(self) -> bool:
        """Whether memory grows."""
        return self.verdict == "leaks"


def leaks(
    function: Callable[..., Any],
    rounds: int = 10,
    *,
    warm_up: int = WARM_UP_ROUNDS,
    fresh: bool = False,
    on_round: Callable[[int, int], None] | None = None,
) -> Leaks:
    """Call a function again and again, and find out whether memory grows from call to call.

    After each round garbage is collected, and the bytes that the framework's allocator and the process's heap have in
    use are read. Where they grow, three more rounds are run to find out what does.

    Args:
        function: One round. It is called with nothing, or with the round's number if it has a parameter without a
            default. What it returns is dropped.
        rounds: How many rounds, the warm-up included.
        warm_up: How many of these are not judged: caches fill and functions are compiled.
        fresh: Whether each round is a block of `fitroom.fresh()`.
        on_round: Called before each round with its number and the number of all.

    >>> found = fitroom.leaks(train_fold, rounds=12)  # doctest: +SKIP
    >>> print(found)  # doctest: +SKIP
    """
    _check_arguments(function, rounds, warm_up)
    from fitroom.backends.choose import current_backend

    backend = current_backend()
    run = _make_run(function, fresh)
    memory = _Memory(backend)
    if fresh:
        backend.begin_round()  # what `fresh` looks for among all objects, it finds only before they are frozen
    with quick_collections() as forget_garbage:
        for number in range(rounds):
            if on_round:
                on_round(number, rounds)
            run(number)
            memory.read()
            if number < warm_up:
                forget_garbage()
    growths = memory.judge(warm_up)
    leaking = [each for each in growths if each.is_leak]
    if any(each.slope is None for each in growths):
        verdict: Literal["leaks", "steady", "not enough rounds"] = "not enough rounds"
    else:
        verdict = "leaks" if leaking else "steady"
    suspects: tuple[Suspect, ...] = ()
    if leaking:
        from fitroom.loops.suspects import find_suspects

        suspects = find_suspects(backend, run, first=rounds, on_round=on_round)
    return Leaks(
        verdict=verdict,
        bytes_a_round=next((round(each.slope.bytes_a_round) for each in leaking if each.slope), None),
        rounds=rounds,
        warm_up_rounds=warm_up,
        growths=growths,
        suspects=suspects,
    )


class _Memory:
    """Readings after each round."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._device = backend.devices()[0]
        self._device_bytes: list[int] = []
        self._heap_bytes: list[int] = []
        self._counts = False

    def read(self) -> None:
        """Read once, after what is garbage is gone."""
        collect_garbage()
        in_use = self._backend.read_memory(self._device).in_use_bytes
        # TensorFlow's allocator of the CPU leaves out whatever is smaller than 256 KiB.
        self._counts = in_use is not None and self._device.kind != "cpu"
        if in_use is None or not self._counts:
            in_use = sum(size for _, size in self._backend.live_arrays())
        self._device_bytes.append(in_use)
        trim_heap()
        host = read_host()
        self._heap_bytes.append(host.resident_bytes if host.heap_bytes is None else host.heap_bytes)

    def judge(self, warm_up: int) -> tuple[Growth, ...]:
        """How both kinds of memory grew after the warm-up."""
        name = self._device.name
        counted_by = f"the allocator of {name}" if self._counts else f"the arrays that are alive on {name}"
        return (
            _judge("device", counted_by, self._device_bytes, warm_up),
            _judge("host", "the heap of the process", self._heap_bytes, warm_up),
        )


def _judge(memory: Literal["device", "host"], counted_by: str, readings: Sequence[int], warm_up: int) -> Growth:
    slope = fit_slope(readings[warm_up:])
    if slope is not None and not _still_grows(readings[warm_up:]):
        # It grew and stopped: a cache that took longer than the warm-up to fill.
        slope = Slope(bytes_a_round=0.0, low_bytes=0.0, high_bytes=slope.high_bytes)
    noise = 0 if slope is None else (slope.high_bytes - slope.low_bytes) / 2
    return Growth(
        memory=memory,
        counted_by=counted_by,
        readings_bytes=tuple(readings),
        slope=slope,
        limit_bytes=max(_FINEST_BYTES[memory], round(noise)),
    )


def _still_grows(readings: Sequence[int]) -> bool:
    """Whether the second half of the readings rises on the whole."""
    half = readings[len(readings) // 2 :]
    return half[-1] > half[0] and sum(later > earlier for earlier, later in pairwise(half)) > 1


def _make_run(function: Callable[..., Any], fresh: bool) -> Callable[[int], None]:
    from fitroom.loops.fresh import Fresh

    takes_number = _takes_number(function)

    def run(number: int) -> None:
        block: AbstractContextManager[Any] = Fresh() if fresh else nullcontext()
        with block:
            function(number) if takes_number else function()

    return run


def _takes_number(function: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a callable of C
        return False
    required = [each for each in parameters if each.default is each.empty and each.kind in _BY_POSITION]
    if len(required) > 1 or any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters):
        names = ", ".join(repr(each.name) for each in required)
        raise InputError(
            f"The function must take nothing, or the number of the round. Received: one that asks for {names}.",
            hint="wrap it in a function that takes nothing: def one_round(): train(model, data)",
        )
    return bool(required)


_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _check_arguments(function: Any, rounds: Any, warm_up: Any) -> None:
    if not callable(function):
        raise InputError(
            f"The first argument must be a function: one round. Received: {function!r} of type "
            f"{type(function).__name__}.",
            hint="fitroom.leaks(train_fold), without calling it",
        )
    check_rounds(rounds, warm_up)


def check_rounds(rounds: Any, warm_up: Any) -> None:
    """Raise an error where rounds cannot be judged with these numbers."""
    for name, number, least in (("rounds", rounds, 1), ("warm_up", warm_up, 0)):
        if not isinstance(number, int) or isinstance(number, bool) or number < least:
            raise InputError(f"`{name}` must be a whole number from {least} on. Received: {number!r}.")
    if rounds < warm_up + 1:
        raise InputError(
            f"No round is left to judge. Received: {rounds} rounds, of which {warm_up} warm up.",
            hint=f"{warm_up + FEWEST_READINGS} rounds are the fewest that give a verdict; or let fewer warm up",
        )
