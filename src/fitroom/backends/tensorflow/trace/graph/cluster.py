"""A card that is not there, as Grappler's optimizers see one."""

from typing import Any

from tensorflow.core.protobuf import device_properties_pb2
from tensorflow.python.grappler import cluster as grappler_cluster  # no public name leads to Grappler

from fitroom.cards.catalogue import Card

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"

_MIB = 2**20
_CUDNN = "90300"
"""The cuDNN that TensorFlow 2.18 and later are built with; the layout optimizer asks for its version."""


def virtual_cluster(card: Card | None) -> Any:
    """A cluster of a CPU and the card. What decides is its compute capability: layouts are chosen by it."""
    properties, named = device_properties_pb2.DeviceProperties, device_properties_pb2.NamedDevice
    cpu = properties(type="CPU", frequency=3000, num_cores=8, memory_size=64 * 1024 * _MIB)
    devices = [named(name=CPU, properties=cpu)]
    if card is not None:
        devices.insert(0, named(name=GPU, properties=_gpu(card)))
    return grappler_cluster.Cluster(devices=devices)


def _gpu(card: Card) -> Any:
    major, minor = card.compute_capability or (8, 0)
    gpu = device_properties_pb2.DeviceProperties(
        type="GPU",
        vendor="NVIDIA",
        model=card.name,
        frequency=round(card.clock_ghz * 1000),
        num_cores=card.sm_count,
        bandwidth=card.bandwidth_bytes_per_second // 1000,
        memory_size=card.memory_bytes,
    )
    gpu.environment.update({"architecture": f"{major}.{minor}", "cuda": "12050", "cudnn": _CUDNN})
    return gpu
