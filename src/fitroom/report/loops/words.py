"""Sentences about a round of a loop and about leaks."""

from fitroom.loops.fresh import Held, Round
from fitroom.loops.leaks import Growth, Leaks
from fitroom.loops.slope import CONFIDENCE, FEWEST_READINGS
from fitroom.units import format_bytes

NO_SUSPECTS = (
    "libraries below Python keep a program for each new shape: pass arrays of the same shapes, padded where they differ"
)
"""What to look at where memory grows that no object of Python holds."""


def describe_round(finished: Round) -> list[str]:
    """Say what a round freed and what of it stayed, a line each."""
    if not finished.is_over:
        return ["The round is not over: what it frees is known after its block."]
    stayed = finished.stayed
    lines = [f"freed {format_bytes(finished.freed_bytes)} of arrays{_list_owners(finished.freed)}"]
    lines.append(f"stayed {format_bytes(sum(each.bytes for each in stayed))}" + ("" if stayed else ": nothing"))
    for held in stayed:
        where = f", held by {held.holder}" if held.holder else ""
        lines.append(f"  {format_bytes(held.bytes)}: {held.owner} ({held.count} arrays){where}")
    if finished.device_in_use_bytes is not None:
        lines.append(f"in use on the device: {format_bytes(finished.device_in_use_bytes)}")
    if finished.host_freed_bytes is not None and finished.host_freed_bytes > 0:
        lines.append(f"freed on the host: {format_bytes(finished.host_freed_bytes)}")
    return [*lines, *finished.notes]


def _list_owners(freed: tuple[Held, ...]) -> str:
    names = [f"{each.owner} {format_bytes(each.bytes)}" for each in freed[:3]]
    more = f" and {len(freed) - 3} more" if len(freed) > 3 else ""
    return f": {', '.join(names)}{more}" if names else ""


def judge_leaks(found: Leaks) -> str:
    """Say the verdict in one sentence."""
    judged = found.rounds - found.warm_up_rounds
    if found.verdict == "not enough rounds":
        return (
            f"Not enough rounds: {judged} were judged after {found.warm_up_rounds} of warm-up, and a verdict takes "
            f"{FEWEST_READINGS}."
        )
    if found.verdict == "leaks":
        grown = {each.memory: each.slope.bytes_a_round for each in found.growths if each.is_leak and each.slope}
        sizes = [f"{format_bytes(round(size))} a round on the {memory}" for memory, size in grown.items()]
        return f"Leaks {' and '.join(sizes)}."
    limits = " and ".join(f"{format_bytes(each.limit_bytes)} on the {each.memory}" for each in found.growths)
    return f"Steady: a leak of {limits} a round or more would have been seen."


def describe_growth(growth: Growth) -> str:
    """Say how one kind of memory grew, with its interval and the limit of detection."""
    first, last = growth.readings_bytes[0], growth.readings_bytes[-1]
    span = f"{growth.memory}, counted by {growth.counted_by}: {format_bytes(first)} to {format_bytes(last)}"
    if growth.slope is None:
        return span
    slope = growth.slope
    return (
        f"{span}; {_signed(slope.bytes_a_round)} a round ({CONFIDENCE:.0%} interval {_signed(slope.low_bytes)} to "
        f"{_signed(slope.high_bytes)}); smallest leak that would show: {format_bytes(growth.limit_bytes)}"
    )


def _signed(size_bytes: float) -> str:
    size = round(size_bytes)
    return f"{'+' if size > 0 else ''}{format_bytes(size)}"
