"""PyTorch's devices and what its allocators count.

On CUDA all four counters; on XPU all but the limit; on MPS all but the peak; on the CPU none.
"""

import gc
import os
import sys
from typing import Any

import torch

from fitroom.backends.contract import Device, MemoryReading

_NOTHING_COUNTED = MemoryReading(in_use_bytes=None, peak_bytes=None, reserved_bytes=None, limit_bytes=None)


def devices() -> tuple[Device, ...]:
    """The devices in the order in which Keras takes them. Asking starts PyTorch on them."""
    found = []
    if torch.backends.mps.is_available():
        found.append(Device(name="mps:0", kind="other", description=None))
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        found.append(Device(name=f"gpu:{index}", kind="gpu", description=name))
    for index in range(torch.xpu.device_count()):
        name = torch.xpu.get_device_name(index)
        found.append(Device(name=f"xpu:{index}", kind="other", description=name))
    found.append(Device(name="cpu:0", kind="cpu", description=None))
    # Keras's own variable for training elsewhere than on the first of these.
    chosen = os.environ.get("KERAS_TORCH_DEVICE", "").replace("cuda", "gpu")
    return tuple(sorted(found, key=lambda device: not (chosen and device.name.startswith(chosen))))


def read_memory(device: Device, *, wait: bool = True) -> MemoryReading:
    """The counters of a device, after pending work is done; without `wait` while it runs."""
    if device.name == "mps:0":
        if wait:
            torch.mps.synchronize()
        return MemoryReading(
            in_use_bytes=torch.mps.current_allocated_memory(),
            peak_bytes=None,
            reserved_bytes=torch.mps.driver_allocated_memory(),
            limit_bytes=torch.mps.recommended_max_memory(),
        )
    counters, index = _counters(device)
    if counters is None:
        return _NOTHING_COUNTED
    if wait:
        counters.synchronize(index)
    return MemoryReading(
        in_use_bytes=counters.memory_allocated(index),
        peak_bytes=counters.max_memory_allocated(index),
        reserved_bytes=counters.memory_reserved(index),
        limit_bytes=_cuda_limit_bytes(index) if device.kind == "gpu" else None,
    )


def reset_peak(device: Device, *, wait: bool = True) -> None:
    """Start the peak anew. Where the device does not count there is no peak, before or after."""
    counters, index = _counters(device)
    if counters is not None:
        if wait:
            counters.synchronize(index)
        counters.reset_peak_memory_stats(index)


def release() -> None:
    """Collect Python's cycles, drop what `torch.compile` compiled, and give the free blocks back to the device.

    What it does not do. Gradients stay as long as their weights refer to them, which under Keras is until the next
    step; the workspaces of cuBLAS and cuDNN stay with the process; and a block that is free in part is kept whole.
    """
    gc.collect()
    if "torch._dynamo" in sys.modules:  # else nothing was compiled, and asking would import it
        torch.compiler.reset()
    torch.cuda.empty_cache()
    torch.xpu.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def _counters(device: Device) -> tuple[Any | None, int]:
    """The module that counts a device, and the device's number there."""
    kind, index = device.name.split(":")
    return {"gpu": torch.cuda, "xpu": torch.xpu}.get(kind), int(index)


def _cuda_limit_bytes(index: int) -> int:
    """The share of the card the process may take: all of it unless somebody set less."""
    total_bytes: int = torch.cuda.get_device_properties(index).total_memory
    return int(total_bytes * torch.cuda.get_per_process_memory_fraction(index))
