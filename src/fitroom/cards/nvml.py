"""The NVIDIA cards in this machine, asked of the driver. No framework is started and no memory taken."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fitroom.cards.catalogue import Card, find_card
from fitroom.errors import InputError


@dataclass(frozen=True, kw_only=True)
class LiveGpu:
    """One NVIDIA card in this machine, now."""

    index: int
    """As the driver counts, whatever `CUDA_VISIBLE_DEVICES` says."""

    name: str
    memory_bytes: int
    used_bytes: int
    """In use by the driver and by other processes; what this process holds is not counted."""

    compute_capability: tuple[int, int] | None = None

    @property
    def free_bytes(self) -> int:
        """What this process can have, the bytes it already holds included."""
        return self.memory_bytes - self.used_bytes


@dataclass(frozen=True, kw_only=True)
class Driver:
    """NVIDIA's driver, as its library NVML answers."""

    version: str | None
    """Such as "580.159.03"; None where NVML does not answer."""

    cuda_version: tuple[int, int] | None
    """The newest CUDA that the driver runs, such as (13, 0)."""

    error: str | None
    """Why NVML does not answer, in its own words; None where it does."""


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of a card."""

    pid: int
    name: str | None
    """Its program and, of an interpreter, the script; None where this process cannot see it, as from a container."""

    used_bytes: int | None
    """None where the driver does not tell (Windows)."""


@dataclass(frozen=True, kw_only=True)
class GpuUsage:
    """Who holds the memory of one card, as the driver counts: contexts, libraries and pools, in use or not."""

    gpu: LiveGpu
    used_bytes: int
    """By all processes, this one included, without the driver's own."""

    processes: tuple[GpuProcess, ...]
    """Those that this process can see, itself included, the largest first."""

    @property
    def hidden_bytes(self) -> int:
        """Held by processes that this one cannot see."""
        return max(0, self.used_bytes - sum(process.used_bytes or 0 for process in self.processes))


def read_driver() -> Driver:
    """Ask the driver for its version, or for the reason why it does not answer."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Driver(version=None, cuda_version=None, error=str(error))
    try:
        cuda = int(pynvml.nvmlSystemGetCudaDriverVersion())
        version = str(pynvml.nvmlSystemGetDriverVersion())
        return Driver(version=version, cuda_version=(cuda // 1000, cuda % 1000 // 10), error=None)
    except pynvml.NVMLError as error:
        return Driver(version=None, cuda_version=None, error=str(error))
    finally:
        pynvml.nvmlShutdown()


def read_usage() -> tuple[GpuUsage, ...]:
    """Who holds memory of each card that a framework in this process would see; () without an NVIDIA driver."""
    import pynvml

    gpus = live_gpus()
    if not gpus:
        return ()
    pynvml.nvmlInit()
    try:
        return tuple(_usage(pynvml, gpu, pynvml.nvmlDeviceGetHandleByIndex(gpu.index)) for gpu in gpus)
    finally:
        pynvml.nvmlShutdown()


def live_gpus() -> tuple[LiveGpu, ...]:
    """The cards that a framework in this process would see, in its order; () without an NVIDIA driver.

    `CUDA_VISIBLE_DEVICES` is honoured for indices and UUIDs. CUDA itself counts the fastest card first unless
    `CUDA_DEVICE_ORDER=PCI_BUS_ID`; in a machine with unlike cards the order can differ from this one.
    """
    return _gpus(_visible)


def all_gpus() -> tuple[LiveGpu, ...]:
    """Every card in this machine, those that `CUDA_VISIBLE_DEVICES` hides included; () without an NVIDIA driver."""
    return _gpus(lambda uuids: list(range(len(uuids))))


def _gpus(chosen: Callable[[list[str]], list[int]]) -> tuple[LiveGpu, ...]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles, uuids = _handles(pynvml)
        gpus = (_read(pynvml, index, handles[index]) for index in chosen(uuids))
        return tuple(gpu for gpu in gpus if gpu is not None)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def visible_handles(pynvml: Any) -> list[Any]:
    """The driver's handles of the cards that a framework in this process would see; `pynvml` has been initialised."""
    try:
        handles, uuids = _handles(pynvml)
    except pynvml.NVMLError:
        return []
    return [handles[index] for index in _visible(uuids)]


def _handles(pynvml: Any) -> tuple[list[Any], list[str]]:
    """Every card of the machine: its handle and its UUID."""
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return handles, [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]


def _read(pynvml: Any, index: int, handle: Any) -> LiveGpu | None:
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError:
        # A card that shares the host's memory has no figure of its own.
        return None
    return LiveGpu(
        index=index,
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=memory.total,
        used_bytes=max(0, memory.used - _own_bytes(pynvml, handle)),
        compute_capability=_compute_capability(pynvml, handle),
    )


def _usage(pynvml: Any, gpu: LiveGpu, handle: Any) -> GpuUsage:
    held: dict[int, int | None] = {}
    for ask in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
        try:
            held |= {process.pid: process.usedGpuMemory for process in ask(handle)}
        except pynvml.NVMLError:
            continue
    seen = [
        GpuProcess(pid=pid, name=name, used_bytes=used)
        for pid, used in held.items()
        if (name := _process_name(pid)) is not None
    ]
    return GpuUsage(
        gpu=gpu,
        used_bytes=_used_bytes(pynvml, handle),
        processes=tuple(sorted(seen, key=lambda process: -(process.used_bytes or 0))),
    )


def _used_bytes(pynvml: Any, handle: Any) -> int:
    """Memory in use without what the driver keeps for itself, which older drivers do not tell apart."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
    except pynvml.NVMLError:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def _process_name(pid: int) -> str | None:
    """The program of a process; None where there is none of this number here.

    The driver counts processes as the host does. In a container the number may be that of another process, or of none.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        words = [os.path.basename(word) for word in process.cmdline() if word and not word.startswith("-")]
        return " ".join(words[:2]) or str(process.name())
    except psutil.AccessDenied:
        return "a process of another user"
    except psutil.Error:
        return None


def _compute_capability(pynvml: Any, handle: Any) -> tuple[int, int] | None:
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    except pynvml.NVMLError:
        return None
    return major, minor


def _own_bytes(pynvml: Any, handle: Any) -> int:
    try:
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:
        return 0
    # The driver does not tell a process's share everywhere (Windows): None then.
    return sum(process.usedGpuMemory or 0 for process in processes if process.pid == os.getpid())


def _visible(uuids: list[str]) -> list[int]:
    """The indices that `CUDA_VISIBLE_DEVICES` leaves, in its order."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return list(range(len(uuids)))
    visible: list[int] = []
    for entry in (part.strip() for part in setting.split(",")):
        named = [index for index, uuid in enumerate(uuids) if entry == str(index) or _abbreviates(entry, uuid)]
        if len(named) != 1 or named[0] in visible:
            break  # as CUDA does at the first entry that names no card
        visible += named
    return visible


def _abbreviates(entry: str, uuid: str) -> bool:
    return entry.startswith("GPU-") and uuid.startswith(entry)


def find_live_gpu(card: Card) -> LiveGpu:
    """Return the live GPU that is this card of the catalogue; raises InputError where there is none, or another one."""
    gpus = live_gpus()
    if not gpus:
        raise InputError(
            "There is no NVIDIA GPU in this machine to measure on.", hint="leave --measure out to predict instead"
        )
    if find_card(gpus[0].name) != card:
        raise InputError(
            f"The card in this machine is a {gpus[0].name}. Received: {card.name}.",
            hint="leave --gpu out to measure on the card that is here, or --measure to predict for the other",
        )
    return gpus[0]
