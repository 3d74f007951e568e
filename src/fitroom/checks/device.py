"""Whether training runs on the card: what the driver shows, what the backend sees, and the probe's proof."""

from collections.abc import Iterator
from typing import Any

from fitroom.cards.catalogue import Card, find_card
from fitroom.checks.causes import find_causes, install_command
from fitroom.checks.finding import Finding
from fitroom.checks.machine import Machine
from fitroom.checks.probe import Probe, Work
from fitroom.errors import UnknownNameError
from fitroom.units import format_bytes

BACKEND_NAMES = {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}
_SLOW = 0.1
"""The share of the datasheet's float32 rate under which a result is suspicious."""


def check_card(machine: Machine, probe: Probe) -> Iterator[Finding]:
    """What the driver shows: the cards and its own version."""
    driver = machine.driver
    facts: dict[str, Any] = {"driver": driver.version, "cuda": driver.cuda_version, "error": driver.error}
    if machine.gpus:
        cards = [{"index": gpu.index, "name": gpu.name, "memory_bytes": gpu.memory_bytes} for gpu in machine.gpus]
        listed = ", ".join(f"{gpu.name} ({format_bytes(gpu.memory_bytes)})" for gpu in machine.gpus)
        cuda = f", CUDA up to {driver.cuda_version[0]}.{driver.cuda_version[1]}" if driver.cuda_version else ""
        is_less = len(machine.visible) < len(machine.gpus) and (machine.visible or probe.kind == "cpu")
        some = f"; CUDA_VISIBLE_DEVICES leaves {len(machine.visible)} of {len(machine.gpus)}" if is_less else ""
        found = f"{listed}; driver {driver.version}{cuda}{some}"
        yield Finding(status="pass", name="card", found=found, facts=facts | {"cards": cards})
    elif probe.kind == "gpu" and not _has_rocm(machine):
        found = f"the driver's NVML does not answer ({driver.error}): who holds memory of the card is not known"
        yield Finding(status="warning", name="card", found=found, facts=facts)
    elif machine.has_card:
        found = "this machine has an NVIDIA card, but its driver does not answer here"
        yield Finding(status="failure", name="card", found=found, facts=facts)
    elif probe.kind == "other" and machine.system != "Darwin":
        found = f"no NVIDIA card; {probe.devices[0]['description'] or probe.devices[0]['name']}"
        yield Finding(status="pass", name="card", found=found, facts=facts)
    elif machine.place in ("Colab", "Kaggle"):
        yield Finding(
            status="warning",
            name="card",
            found=f"this {machine.place} notebook has no accelerator: training runs on the CPU",
            fix=_NOTEBOOKS[machine.place],
            facts=facts,
        )
    else:
        yield from _check_other_makers(machine, facts)


_NOTEBOOKS = {
    "Colab": "Runtime > Change runtime type > T4 GPU",
    "Kaggle": "Settings > Accelerator > GPU T4 x2",
}


def _check_other_makers(machine: Machine, facts: dict[str, Any]) -> Iterator[Finding]:
    if machine.system == "Darwin":
        found = "Apple's GPU: Keras trains on it with PyTorch (MPS) alone; fitroom's estimates are for NVIDIA's cards"
        uses_it = machine.backend == "torch" and machine.processor == "arm64"
        yield Finding(
            status="pass" if uses_it else "warning",
            name="card",
            found=found,
            fix=None if uses_it else "export KERAS_BACKEND=torch",
            facts=facts,
        )
    elif "AMD" in machine.on_bus:
        has_rocm = _has_rocm(machine)
        yield Finding(
            status="pass" if has_rocm else "warning",
            name="card",
            found="an AMD card: PyTorch, JAX and TensorFlow train on it with their ROCm builds (Linux); fitroom trains "
            "there, and its estimates are for NVIDIA's cards",
            fix=None if has_rocm else "pip install torch --index-url https://download.pytorch.org/whl/rocm6.4",
            facts=facts,
        )
    else:
        yield Finding(status="pass", name="card", found="no GPU in this machine: training runs on the CPU", facts=facts)


def _has_rocm(machine: Machine) -> bool:
    """Whether the backend is a build for AMD's cards."""
    packages = machine.packages
    of_backend = {
        "jax": packages.having("jax-rocm"),
        "tensorflow": packages.version("tensorflow-rocm"),
        "torch": packages.torch_build.get("hip"),
    }
    return bool(of_backend[machine.backend])


def check_device(machine: Machine, probe: Probe) -> Iterator[Finding]:
    """What the backend sees against what the driver shows, and the causes where it fell back to the CPU."""
    name = BACKEND_NAMES[machine.backend]
    seen = [device["description"] or device["name"] for device in probe.devices]
    facts: dict[str, Any] = {"kind": probe.kind, "seen": seen, "log": list(probe.log), "error": probe.error}
    facts["missing_libraries"] = list(probe.missing_libraries) if machine.has_card else []
    if probe.kind is None:
        yield Finding(
            status="failure",
            name="device",
            found=f"{name} does not start: {probe.error}",
            fix=_repair(machine, probe),
            facts=facts,
        )
    elif probe.kind != "cpu":
        others = sum(device["kind"] == probe.kind for device in probe.devices) - 1
        more = f" and {others} more" if others else ""
        yield Finding(status="pass", name="device", found=f"{name} trains on {seen[0]}{more}", facts=facts)
        return
    elif not machine.has_card:
        yield Finding(status="pass", name="device", found=f"{name} trains on the CPU", facts=facts)
        return
    else:
        found = f"{name} falls back to the CPU, although this machine has {machine.card_words}"
        yield Finding(status="failure", name="device", found=found, fix=None, facts=facts)
    if machine.has_card:
        yield from _list_causes(machine, probe)


def _list_causes(machine: Machine, probe: Probe) -> Iterator[Finding]:
    causes = find_causes(machine)
    for cause in causes:
        yield Finding(status="failure", name=cause.name, found=cause.found, fix=cause.fix)
    names = {cause.name for cause in causes}
    if probe.missing_libraries and not names & {"CPU-only build", "tensorflow without CUDA libraries"}:
        listed = ", ".join(probe.missing_libraries)
        yield Finding(
            status="failure",
            name="missing libraries",
            found=f"{BACKEND_NAMES[machine.backend]} cannot open {listed}.",
            fix=install_command(machine),
            facts={"libraries": list(probe.missing_libraries)},
        )
    elif not causes and probe.kind is not None:
        said = f" Its own words: {probe.log[-1]}" if probe.log else ""
        yield Finding(
            status="failure",
            name="CUDA did not start",
            found=f"{BACKEND_NAMES[machine.backend]} is built for the card and did not start on it.{said}",
            fix=install_command(machine),
        )


def _repair(machine: Machine, probe: Probe) -> str | None:
    if "out of memory" in (probe.error or "").lower() or "RESOURCE_EXHAUSTED" in (probe.error or ""):
        return "end what else uses the card: see `card memory` below"
    if machine.has_card:
        return install_command(machine)
    return f"pip install --force-reinstall {machine.backend}"


def check_probe(machine: Machine, probe: Probe) -> Iterator[Finding]:
    """Whether a matrix product and a convolution really ran on the device, and not suspiciously slowly."""
    works = {"matrix product": probe.product, "convolution": probe.convolution}
    if probe.kind is None:
        return
    done = {name: work for name, work in works.items() if work is not None}
    facts: dict[str, Any] = {name: vars(work) for name, work in done.items()} | {"seconds": probe.seconds}
    if len(done) < len(works):
        missing = next(name for name, work in works.items() if work is None)
        yield Finding(
            status="failure",
            name="probe",
            found=f"the {missing} failed: {probe.error}",
            fix=_repair(machine, probe),
            facts=facts,
        )
        return
    if probe.kind == "cpu":
        yield Finding(
            status="pass", name="probe", found="a matrix product and a convolution ran on the CPU", facts=facts
        )
        return
    off = [name for name, work in done.items() if not work.on_device]
    card = find_card_or_none(probe.devices[0]["description"])
    slow = [name for name, work in done.items() if card and _is_slow(work, card)]
    rates = ", ".join(f"{name} {work.flops_per_second / 1e12:.1f} TFLOPS" for name, work in done.items())
    if off:
        found = f"the {' and the '.join(off)} ran on {done[off[0]].device}, not on the card"
        yield Finding(status="failure", name="probe", found=found, facts=facts)
    elif slow and card:
        yield Finding(
            status="warning",
            name="probe",
            found=f"it runs on the card, but suspiciously slowly: {rates}, under a tenth of the "
            f"{card.fp32_flops / 1e12:.0f} TFLOPS of a {card.name} in float32",
            fix="nvidia-smi -q -d PERFORMANCE,CLOCK,UTILIZATION  # throttled, shared, or limited in power?",
            facts=facts,
        )
    else:
        yield Finding(status="pass", name="probe", found=f"it runs on the card: {rates}", facts=facts)


def _is_slow(work: Work, card: Card) -> bool:
    return work.flops_per_second < _SLOW * card.fp32_flops


def find_card_or_none(name: str | None) -> Card | None:
    """The card of the catalogue that a name means; None where it has none like it."""
    try:
        return find_card(name) if name else None
    except UnknownNameError:
        return None
