"""The memory of the card: who holds it, how much a backend takes at its start, and what its settings mean."""

from collections.abc import Iterator, Mapping
from typing import Any

from fitroom.cards.nvml import GpuUsage
from fitroom.checks.device import find_card_or_none
from fitroom.checks.finding import Finding
from fitroom.checks.machine import Machine
from fitroom.checks.probe import Probe
from fitroom.units import format_bytes, used_of

_MUCH = 0.1
"""The share of a card that others may hold before it is worth a warning: a desktop takes a few percent."""

_FRACTION, _OLD_FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"


def check_usage(machine: Machine, usages: tuple[GpuUsage, ...], own_pid: int) -> Iterator[Finding]:
    """Who holds memory of each card, by name, or by the sum where they cannot be seen."""
    for usage in usages:
        gpu = usage.gpu
        holders = [
            f"{format_bytes(process.used_bytes)} by {_describe(process.name, process.pid, own_pid)}"
            for process in usage.processes
        ]
        if usage.hidden_bytes > 0.005 * gpu.memory_bytes:
            where = "outside this container" if machine.is_container else "that cannot be seen from here"
            holders.append(f"{usage.hidden_bytes:,} bytes by processes {where}")
        others_bytes = usage.used_bytes - sum(p.used_bytes or 0 for p in usage.processes if p.pid == own_pid)
        is_much = others_bytes > _MUCH * gpu.memory_bytes
        held = f": {'; '.join(holders)}" if holders else ""
        yield Finding(
            status="warning" if is_much else "pass",
            name="card memory",
            found=f"{gpu.name}: {used_of(usage.used_bytes, gpu.memory_bytes)} used as the driver counts (NVML){held}",
            fix="nvidia-smi  # end what you do not need, or train with what is left: fitroom train --budget "
            f"{format_bytes(gpu.free_bytes).replace(' ', '')}"
            if is_much
            else None,
            facts={
                "index": gpu.index,
                "memory_bytes": gpu.memory_bytes,
                "used_bytes": usage.used_bytes,
                "hidden_bytes": usage.hidden_bytes,
                "processes": [vars(process) for process in usage.processes],
            },
        )


def _describe(name: str | None, pid: int, own_pid: int) -> str:
    return f"this process ({pid})" if pid == own_pid else f"{name} ({pid})"


def check_allocator(machine: Machine, probe: Probe) -> Iterator[Finding]:
    """How much a backend takes at its start, which is not what its tensors use, and what the settings change."""
    if probe.kind != "gpu":
        return
    memory_bytes = machine.visible[0].memory_bytes if machine.visible else None
    found, warning, fix = {"jax": _of_jax, "tensorflow": _of_tensorflow, "torch": _of_torch}[machine.backend](
        machine.environment, memory_bytes
    )
    in_use = probe.memory.get("in_use_bytes")
    counted = ""
    if in_use is not None and probe.driver_bytes:
        counted = (
            f" In the probe, tensors used {format_bytes(in_use)} (the allocator's count) and the process held "
            f"{format_bytes(probe.driver_bytes)} (NVML's): the rest is CUDA's context, libraries and pool."
        )
    facts: dict[str, Any] = {"settings": _settings(machine.environment), "probe_driver_bytes": probe.driver_bytes}
    facts |= {f"probe_{name}": value for name, value in probe.memory.items()}
    yield Finding(
        status="warning" if warning else "pass",
        name="preallocation",
        found=f"{found}{warning}{counted}",
        fix=fix,
        facts=facts,
    )


_SETTINGS = (
    _FRACTION,
    _OLD_FRACTION,
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in _SETTINGS if name in environment}


def _of_jax(environment: Mapping[str, str], memory_bytes: int | None) -> tuple[str, str, str | None]:
    if environment.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() == "platform":
        return (
            "JAX asks the driver for every buffer (XLA_PYTHON_CLIENT_ALLOCATOR=platform)",
            ", which is slow: for debugging only.",
            "unset XLA_PYTHON_CLIENT_ALLOCATOR",
        )
    if environment.get("XLA_PYTHON_CLIENT_PREALLOCATE", "").lower() in ("false", "0"):
        return (
            "JAX's pool grows as it is needed, by doubling (XLA_PYTHON_CLIENT_PREALLOCATE=false)",
            ": it fragments, and may reserve more than twice what is used.",
            "unset XLA_PYTHON_CLIENT_PREALLOCATE",
        )
    name = _FRACTION if _FRACTION in environment else _OLD_FRACTION
    text = environment.get(name, "")
    try:
        fraction = float(text) if text else 0.75
    except ValueError:
        return f"{name}={text!r}", " is no number: JAX expects a part of the card, such as 0.9.", f"export {name}=0.9"
    share = f" = {format_bytes(int(fraction * memory_bytes))}" if memory_bytes else ""
    why = f"{name}={text}" if text else "the default"
    found = f"JAX takes {fraction:.0%} of the card{share} at its start ({why}), and nvidia-smi shows it as used."
    if not 0 < fraction <= 1:
        return found, " The fraction must be over 0 and up to 1.", f"export {name}=0.9"
    return found, "", None if text else f"export {_FRACTION}=0.9  # for more; fitroom train --budget sets it"


def _of_tensorflow(environment: Mapping[str, str], memory_bytes: int | None) -> tuple[str, str, str | None]:
    if environment.get("TF_FORCE_GPU_ALLOW_GROWTH", "").lower() in ("true", "1"):
        return (
            "TensorFlow's pool grows as it is needed and never shrinks (TF_FORCE_GPU_ALLOW_GROWTH): others can use the "
            "rest, and fragmentation may cost some of it.",
            "",
            None,
        )
    return (
        "TensorFlow takes nearly all free memory of the card at its start (the default), and nvidia-smi shows it as "
        "used. TF_FORCE_GPU_ALLOW_GROWTH=true takes it as it is needed, to share the card.",
        "",
        None,
    )


def _of_torch(environment: Mapping[str, str], memory_bytes: int | None) -> tuple[str, str, str | None]:
    configured = environment.get("PYTORCH_ALLOC_CONF") or environment.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    found = "PyTorch takes memory as it is needed and caches what is freed"
    if "expandable_segments:True" in configured:
        return f"{found}, in segments that grow (expandable_segments), with little fragmentation.", "", None
    advice = "PYTORCH_ALLOC_CONF=expandable_segments:True lessens fragmentation where batches differ in size"
    return f"{found}. {advice}.", "", None


def check_precision(machine: Machine) -> Iterator[Finding]:
    """Whether mixed precision pays on this card."""
    if not machine.visible:
        return
    gpu = machine.visible[0]
    card, capability = find_card_or_none(gpu.name), gpu.compute_capability or (0, 0)
    facts: dict[str, Any] = {"compute_capability": list(capability)}
    rates = ""
    if card:
        facts |= {"fp32_flops": card.fp32_flops, "fp16_flops": card.fp16_flops, "bf16_flops": card.bf16_flops}
        half = card.bf16_flops or card.fp16_flops
        rates = f": {half / 1e12:,.0f} TFLOPS against {card.fp32_flops / 1e12:,.0f}" if half else ""
    if capability >= (8, 0):
        found, policy = f"mixed_bfloat16 pays on {gpu.name}{rates}, and needs no loss scaling", "mixed_bfloat16"
    elif capability >= (7, 0) and (card is None or card.fp16_flops):
        found, policy = f"mixed_float16 pays on {gpu.name}{rates}; it has no bfloat16 units", "mixed_float16"
    else:
        found = f"mixed precision saves memory and no time on {gpu.name}: it has no matrix units"
        yield Finding(status="pass", name="mixed precision", found=found, facts=facts | {"pays": False})
        return
    yield Finding(
        status="pass",
        name="mixed precision",
        found=found,
        fix=f'keras.config.set_dtype_policy("{policy}")',
        facts=facts | {"pays": True, "policy": policy},
    )
