"""The quick half of `fitroom doctor`: a note where training runs on the CPU although the machine has a card."""

from fitroom.backends.contract import Backend
from fitroom.cards.nvml import all_gpus
from fitroom.checks.causes import find_causes
from fitroom.checks.machine import read_machine

_has_looked = False


def device_note(backend: Backend) -> str | None:
    """The note where a backend would train on the CPU beside an NVIDIA card, with the likely reason; else None.

    The driver is asked first, and costs a machine without one a millisecond. Where there is a card, the backend is
    asked for its devices: call this where it is about to train anyway.
    """
    global _has_looked
    _has_looked = True
    if not all_gpus() or backend.devices()[0].kind != "cpu" or backend.name == "fake":
        return None
    machine = read_machine(backend.name)
    causes = find_causes(machine)
    reason = causes[0].found if causes else f"{backend.name} did not start on it."
    fix = f" {causes[0].fix}." if causes and causes[0].fix else ""
    more = "`fitroom doctor` says more."
    return f"training runs on the CPU, although this machine has {machine.card_words}: {reason}{fix} {more}"


def device_note_once(backend: Backend) -> str | None:
    """The note of `device_note` the first time in this process, and None from then on."""
    return None if _has_looked else device_note(backend)
