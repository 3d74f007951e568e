"""The checks of a machine in their order."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from fitroom.backends.choose import BackendChoice, backend_before_keras, settle_backend
from fitroom.cards.nvml import read_usage
from fitroom.checks.card_memory import check_allocator, check_precision, check_usage
from fitroom.checks.device import BACKEND_NAMES, check_card, check_device, check_probe
from fitroom.checks.finding import Diagnosis, Finding
from fitroom.checks.host import check_host
from fitroom.checks.machine import read_machine
from fitroom.checks.probe import Probe, run_probe
from fitroom.checks.versions import check_versions
from fitroom.errors import BackendError, FitroomError, InputError

Say = Callable[[str], None]


def diagnose(backend: str | None, *, run_dir: Path, why: str = "--backend", say: Say = lambda text: None) -> Diagnosis:
    """Check the machine for a backend. One that is not installed is a finding; a name that is unknown is an error.

    Args:
        backend: as the user named it; None for the one that Keras would take.
        run_dir: where checkpoints will be written.
        why: who named the backend.
        say: called with what is being done.
    """
    try:
        choice = settle_backend(backend, why=why)
    except (InputError, BackendError):
        raise
    except FitroomError as error:
        missing = Finding(status="failure", name="backend", found=error.message, fix=error.hint)
        return Diagnosis(backend=backend_before_keras(backend) or "none", findings=(missing,))
    return Diagnosis(backend=choice.name, findings=tuple(_check_all(choice, run_dir, say)))


def _check_all(choice: BackendChoice, run_dir: Path, say: Say) -> Iterator[Finding]:
    say("reading the machine")
    machine = read_machine(choice.name)
    usages = read_usage()  # before the probe, which holds memory itself
    say(f"starting {BACKEND_NAMES[choice.name]} ({choice.why})")
    probe = run_probe(choice.name)
    yield _describe_backend(choice, probe)
    yield from check_card(machine, probe)
    yield from check_device(machine, probe)
    yield from check_probe(machine, probe)
    yield from check_usage(machine, usages, os.getpid())
    yield from check_allocator(machine, probe)
    yield from check_precision(machine)
    yield from check_host(run_dir)
    yield from check_versions(machine)


def _describe_backend(choice: BackendChoice, probe: Probe) -> Finding:
    versions = ", ".join(f"{name} {version}" for name, version in probe.versions.items())
    return Finding(
        status="pass",
        name="backend",
        found=f"{BACKEND_NAMES[choice.name]} ({choice.why})" + (f": {versions}" if versions else ""),
        facts={"backend": choice.name, "why": choice.why, "versions": probe.versions},
    )
