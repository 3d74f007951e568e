"""`fitroom.doctor`: the checks in their order."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fitroom.backends.choose import BackendChoice, settle_backend
from fitroom.cards.nvml import read_usage
from fitroom.checks.card_memory import check_allocator, check_precision, check_usage
from fitroom.checks.device import BACKEND_NAMES, check_card, check_device, check_probe
from fitroom.checks.finding import Diagnosis, Finding
from fitroom.checks.host import check_host
from fitroom.checks.machine import Machine, read_machine
from fitroom.checks.probe import Probe, run_probe
from fitroom.checks.versions import check_versions

Say = Callable[[str], None]


def doctor(
    backend: str | None = None,
    *,
    data: Any = None,
    model: Any = None,
    batch_size: int = 32,
    run_dir: str | Path = "runs",
) -> Diagnosis:
    """Check whether this machine trains on its GPU, and what stands in the way; with `data`, whether the input is fast.

    A backend is started in a process of its own, which takes some seconds and little memory of the card. Returns the
    findings, which print themselves.

    >>> diagnosis = fitroom.doctor()  # doctest: +SKIP
    >>> print(diagnosis)  # doctest: +SKIP
    >>> [finding.fix for finding in diagnosis.having("failure")]  # doctest: +SKIP
    ['unset CUDA_VISIBLE_DEVICES']

    Args:
        backend: "jax", "tensorflow" or "torch". Left out: that of the imported Keras, of `KERAS_BACKEND` or of
            keras.json, else the first that is installed.
        data: what `fit` gets as `x`, arrays as `(x, y)`, or a folder of images: times it in place of the machine.
        model: a compiled Keras model, whose step is timed beside the data.
        batch_size: of arrays and folders.
        run_dir: where checkpoints will be written, for the room on its disk.
    """
    with _environment_kept():
        choice = settle_backend(backend, why="`backend`")
        if data is not None:
            from fitroom.checks.input_timing import check_input

            findings = check_input(data, model=model, batch_size=batch_size)
            return Diagnosis(backend=choice.name, findings=tuple(findings))
        return diagnose(choice, run_dir=Path(run_dir))


def diagnose(choice: BackendChoice, *, run_dir: Path, say: Say = lambda text: None) -> Diagnosis:
    """Check the machine for a backend.

    Args:
        choice: the backend, and why it was taken.
        run_dir: where checkpoints will be written.
        say: called with what is being done.
    """
    say("reading the machine")
    machine = read_machine(choice.name)
    usages = read_usage()
    say(f"starting {BACKEND_NAMES[choice.name]}")
    probe = run_probe(choice.name)
    found = [_describe_backend(choice, probe), *_check_all(machine, probe)]
    return Diagnosis(
        backend=choice.name,
        findings=(
            *found,
            *check_usage(machine, usages, os.getpid()),
            *check_allocator(machine, probe),
            *check_precision(machine),
            *check_host(run_dir),
            *check_versions(machine),
        ),
    )


def _check_all(machine: Machine, probe: Probe) -> Iterator[Finding]:
    yield from check_card(machine)
    yield from check_device(machine, probe)
    yield from check_probe(machine, probe)


def _describe_backend(choice: BackendChoice, probe: Probe) -> Finding:
    versions = ", ".join(f"{name} {version}" for name, version in probe.versions.items())
    return Finding(
        status="pass",
        name="backend",
        found=f"{BACKEND_NAMES[choice.name]} ({choice.why})" + (f": {versions}" if versions else ""),
        facts={"backend": choice.name, "why": choice.why, "versions": probe.versions},
    )


@contextmanager
def _environment_kept() -> Iterator[None]:
    """Leave KERAS_BACKEND as it was: looking decides nothing for the process that asks."""
    before = os.environ.get("KERAS_BACKEND")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("KERAS_BACKEND", None)
        else:
            os.environ["KERAS_BACKEND"] = before
