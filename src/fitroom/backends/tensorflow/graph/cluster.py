"""A card that is not there, as Grappler's optimizers see one."""

from typing import Any

from tensorflow.core.protobuf import device_properties_pb2
from tensorflow.python.grappler import cluster as grappler_cluster  # no public name leads to Grappler

from fitroom.estimating.cards import Card

GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"

_MIB = 2**20
_CUDNN = "90300"
"""The cuDNN that TensorFlow 2.18 and later are built with; the layout optimizer asks for its version."""


def virtual_cluster(card: Card) -> Any:
    """A cluster of one CPU and the card. What decides is its compute capability: layouts are chosen by it."""
    properties = device_properties_pb2.DeviceProperties
    major, minor = card.compute_capability or (8, 0)
    gpu = properties(
        type="GPU",
        vendor="NVIDIA",
        model=card.name,
        frequency=round(card.clock_ghz * 1000),
        num_cores=card.sm_count,
        bandwidth=card.bandwidth_bytes_per_second // 1000,
        memory_size=card.memory_bytes,
    )
    gpu.environment.update({"architecture": f"{major}.{minor}", "cuda": "12050", "cudnn": _CUDNN})
    cpu = properties(type="CPU", frequency=3000, num_cores=8, memory_size=64 * 1024 * _MIB)
    named = device_properties_pb2.NamedDevice
    return grappler_cluster.Cluster(devices=[named(name=GPU, properties=gpu), named(name=CPU, properties=cpu)])
