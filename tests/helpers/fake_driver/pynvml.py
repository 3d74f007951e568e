"""Stands in for NVIDIA's driver in child processes: a test puts this folder first on PYTHONPATH.

FAKE_DRIVER is JSON: "driver", "cuda" (as NVML counts, 12040), "error", and "gpus" of "name", "total", "used",
"capability" and "processes", which are pairs of a process id and its bytes.
"""

import json
import os
from types import SimpleNamespace

_ANSWERS = json.loads(os.environ.get("FAKE_DRIVER", '{"error": "NVML Shared Library Not Found"}'))
nvmlMemory_v2 = 2  # noqa: N816


class NVMLError(Exception):
    """As the driver's library raises it."""


def nvmlInit():  # noqa: N802
    if error := _ANSWERS.get("error"):
        raise NVMLError(error)


def nvmlShutdown():  # noqa: N802
    pass


def nvmlSystemGetDriverVersion():  # noqa: N802
    return _ANSWERS.get("driver", "580.95.05")


def nvmlSystemGetCudaDriverVersion():  # noqa: N802
    return _ANSWERS.get("cuda", 13000)


def nvmlDeviceGetCount():  # noqa: N802
    return len(_ANSWERS["gpus"])


def nvmlDeviceGetHandleByIndex(index):  # noqa: N802
    return _ANSWERS["gpus"][index] | {"index": index}


def nvmlDeviceGetUUID(gpu):  # noqa: N802
    return f"GPU-{gpu['index']}"


def nvmlDeviceGetName(gpu):  # noqa: N802
    return gpu["name"]


def nvmlDeviceGetMemoryInfo(gpu, version=None):  # noqa: N802
    return SimpleNamespace(total=gpu.get("total", 16 * 2**30), used=gpu.get("used", 0))


def nvmlDeviceGetCudaComputeCapability(gpu):  # noqa: N802
    return tuple(gpu.get("capability", (7, 5)))


def nvmlDeviceGetComputeRunningProcesses(gpu):  # noqa: N802
    return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.get("processes", ())]


def nvmlDeviceGetGraphicsRunningProcesses(gpu):  # noqa: N802
    return []
