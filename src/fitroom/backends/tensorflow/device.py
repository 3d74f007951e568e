"""TensorFlow's devices and what its allocators count.

Two counters are public, the bytes in use and their peak: on a GPU always, on the CPU with the oneDNN allocator
(Linux on x86, by default; blocks under 4 KiB are left out) or with the BFC allocator that
`TF_CPU_ALLOCATOR_USE_BFC=true` chooses. What is reserved is not public, nor is the limit unless somebody set it.
"""

import gc
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from fitroom.backends.contract import Device, MemoryReading

_MIB = 2**20
_CPU_BFC_DEFAULT_MIB = 65_536


def devices() -> tuple[Device, ...]:
    """The GPUs, then the CPU. Asking does not start TensorFlow, so memory growth may still be set afterwards."""
    return tuple(
        Device(
            name=name,
            kind="gpu" if name.startswith("gpu") else "cpu",
            description=tf.config.experimental.get_device_details(physical).get("device_name"),
        )
        for name, physical, _ in _logical_devices()
    )


def read_memory(device: Device, *, wait: bool = True) -> MemoryReading:
    """The counters of a device, after pending work is done; without `wait` while it runs."""
    if wait:
        tf.test.experimental.sync_devices()
    try:
        counted = tf.config.experimental.get_memory_info(device.name.upper())
    except ValueError:  # "Allocator stats not available for device": the plain CPU allocator does not count.
        counted = {}
    return MemoryReading(
        in_use_bytes=counted.get("current"),
        peak_bytes=counted.get("peak"),
        reserved_bytes=None,
        limit_bytes=_limit_bytes(device),
    )


def reset_peak(device: Device, *, wait: bool = True) -> None:
    """Start the peak anew. Where the device does not count there is no peak, before or after."""
    if read_memory(device, wait=wait).peak_bytes is not None:
        tf.config.experimental.reset_memory_stats(device.name.upper())


def release() -> None:
    """Collect Python's cycles, which is how a `tf.function`, its kernels and the tensors it captured go.

    What it does not do. It never shrinks TensorFlow's pool: free blocks stay with the process. It leaves eager
    kernels cached, as dropping them would restart the random state of those that have one. It cannot free what
    TensorFlow itself still refers to: a traced `tf.custom_gradient` stays in a registry for good, and with it
    every variable of the function it was traced in, such as Keras's own `train_function`. Ours let go of them.
    """
    gc.collect()
    gc.collect()  # what graphs let go of in the first is cycles, too


def _logical_devices() -> Iterator[tuple[str, Any, Any]]:
    """Name, physical device and configuration of each logical device, in the order TensorFlow numbers them."""
    for kind in ("GPU", "CPU"):
        index = 0
        for physical in tf.config.get_visible_devices(kind):
            for configuration in tf.config.get_logical_device_configuration(physical) or [None]:
                yield f"{kind.lower()}:{index}", physical, configuration
                index += 1


def _limit_bytes(device: Device) -> int | None:
    """The limit somebody set: on a logical device, or on the CPU's BFC allocator. TensorFlow's own is not public."""
    if device.kind == "cpu":
        return _cpu_bfc_limit_bytes()
    for name, _, configuration in _logical_devices():
        if name == device.name and configuration is not None and configuration.memory_limit is not None:
            return int(configuration.memory_limit) * _MIB
    return None


def _cpu_bfc_limit_bytes() -> int | None:
    if os.environ.get("TF_CPU_ALLOCATOR_USE_BFC", "").lower() not in ("1", "true"):
        return None
    return int(os.environ.get("TF_CPU_BFC_MEM_LIMIT_IN_MB") or _CPU_BFC_DEFAULT_MIB) * _MIB
