"""Which devices train, as users name them: all, the first few, or some by number."""

from collections.abc import Iterable
from dataclasses import dataclass

from fitroom.errors import InputError

ALL = "all"
_HOW = 'all, a number of devices such as 4, or device numbers such as "0,1"; [1] or "1," for device 1 alone'


@dataclass(frozen=True, kw_only=True)
class DeviceSelection:
    """The devices that were asked for. `choose` finds them among those that there are.

    >>> DeviceSelection.of("all").choose(3), DeviceSelection.of("2").choose(3), DeviceSelection.of("0,2").choose(3)
    ((0, 1, 2), (0, 1), (0, 2))
    """

    count: int | None = None
    """The first so many; None for all, or where `numbers` names them."""

    numbers: tuple[int, ...] | None = None
    """The devices by number, as the framework counts them."""

    @classmethod
    def of(cls, value: "DeviceSelection | str | int | Iterable[int]") -> "DeviceSelection":
        """Read what a user wrote. Raises InputError for anything that names no devices."""
        if isinstance(value, DeviceSelection):
            return value
        if isinstance(value, bool):
            raise _not_devices(value)
        if isinstance(value, int):
            return cls(count=_check_count(value))
        if isinstance(value, str):
            return _of_text(value)
        try:
            numbers = tuple(value)
        except TypeError:
            raise _not_devices(value) from None
        if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
            raise _not_devices(value)
        return cls(numbers=_check_numbers(numbers))

    def choose(self, available: int, *, kind: str = "device") -> tuple[int, ...]:
        """The numbers of the devices, of `available` ones. Raises InputError where there are fewer."""
        kinds = f"{kind}es" if kind.endswith("s") else f"{kind}s"
        last = max(self.numbers) if self.numbers else (self.count or 0) - 1
        if last >= available:
            asked = f"{kind} {last}" if self.numbers else f"{self.count} {kinds}"
            there = f"one {kind}, number 0" if available == 1 else f"{available} {kinds}, 0 to {available - 1}"
            raise InputError(
                f"There is no {asked}: the framework sees {there}."
                if self.numbers
                else f"{asked} were asked for, and the framework sees {there}.",
                hint="`fitroom doctor` lists the devices; CUDA_VISIBLE_DEVICES may hide some",
            )
        return self.numbers or tuple(range(available if self.count is None else self.count))

    def __str__(self) -> str:
        """As it would be typed.

        >>> str(DeviceSelection.of([1])), str(DeviceSelection.of("ALL")), str(DeviceSelection.of(2))
        ('1,', 'all', '2')
        """
        if self.numbers is not None:
            return ",".join(map(str, self.numbers)) + ("," if len(self.numbers) == 1 else "")
        return ALL if self.count is None else str(self.count)


def _of_text(text: str) -> DeviceSelection:
    word = text.strip().lower()
    if word == ALL:
        return DeviceSelection()
    words = [part.strip() for part in word.split(",")]
    if len(words) == 1 and words[0].isdecimal():
        return DeviceSelection(count=_check_count(int(words[0])))
    if words[-1] == "":  # "1,": device 1 alone, as Python writes a tuple of one
        words = words[:-1]
    if not words or not all(part.isdecimal() for part in words):
        raise _not_devices(text)
    return DeviceSelection(numbers=_check_numbers(tuple(map(int, words))))


def _check_count(count: int) -> int:
    if count < 1:
        raise InputError(f"The number of devices must be at least 1. Received: {count}.", hint=_HOW)
    return count


def _check_numbers(numbers: tuple[int, ...]) -> tuple[int, ...]:
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise InputError(
            f"Devices are named by different numbers from 0 on. Received: {', '.join(map(str, numbers)) or 'none'}.",
            hint=_HOW,
        )
    return numbers


def _not_devices(value: object) -> InputError:
    return InputError(f"These are no devices. Received: {value!r}.", hint=_HOW)
