"""The machine as the checks see it, read once: cards, driver, system, settings, packages. No framework is started."""

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fitroom.cards.nvml import Driver, LiveGpu, all_gpus, live_gpus, read_driver
from fitroom.checks.packages import Packages

Place = Literal["Colab", "Kaggle", "WSL2", "Docker", "Podman", "Kubernetes", "Apptainer", "container"]
"""Where a process may run that has something of its own to say about cards."""

_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_DISPLAY = "0x03"
"""How the class of a graphics card begins on the PCI bus."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the checks ask about. Each check is a function of it, and of what the probe found."""

    backend: str
    """As Keras spells it."""

    environment: Mapping[str, str]
    packages: Packages
    driver: Driver
    gpus: tuple[LiveGpu, ...]
    """All that the driver shows, those that `CUDA_VISIBLE_DEVICES` hides included."""

    visible: tuple[LiveGpu, ...]
    """Those that it leaves."""

    system: str = field(default_factory=platform.system)
    """As Python names it: "Linux", "Windows", "Darwin"."""

    processor: str = field(default_factory=platform.machine)
    place: Place | None = None
    on_bus: tuple[str, ...] = ()
    """The makers of the graphics cards on the PCI bus, which a container sees, too: "NVIDIA", "AMD"."""

    has_kernel_driver: bool = False
    """Whether NVIDIA's driver is loaded in the kernel, whatever this process can use of it."""

    has_wsl_device: bool = False
    """Whether Windows offers its card to this Linux (`/dev/dxg`)."""

    @property
    def has_card(self) -> bool:
        """Whether there is a card of NVIDIA's that training could run on, if all were well."""
        return bool(self.gpus) or "NVIDIA" in self.on_bus or self.has_wsl_device

    @property
    def is_container(self) -> bool:
        """Whether this process runs in a container."""
        return self.place in ("Docker", "Podman", "Kubernetes", "Apptainer", "container")

    @property
    def card_words(self) -> str:
        """The cards within a sentence: "a card (Tesla T4)"."""
        names = " and ".join(dict.fromkeys(gpu.name for gpu in self.gpus))
        return f"a card ({names})" if names else "an NVIDIA card"


def read_machine(backend: str, *, environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Machine:
    """Read this machine for a backend.

    Args:
        backend: as Keras spells it.
        environment: in place of `os.environ`.
        root: where /proc, /sys and /dev are.
    """
    environment = os.environ if environment is None else environment
    return Machine(
        backend=backend,
        environment=environment,
        packages=Packages.read(),
        driver=read_driver(),
        gpus=all_gpus(),
        visible=live_gpus(),
        place=_find_place(environment, root),
        on_bus=_cards_on_bus(root),
        has_kernel_driver=(root / "proc/driver/nvidia/version").exists(),
        has_wsl_device=(root / "dev/dxg").exists(),
    )


def _find_place(environment: Mapping[str, str], root: Path) -> Place | None:
    if "COLAB_RELEASE_TAG" in environment or "COLAB_GPU" in environment:
        return "Colab"
    if "KAGGLE_KERNEL_RUN_TYPE" in environment:
        return "Kaggle"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "Kubernetes"
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "Apptainer"
    if (root / "run/.containerenv").exists():
        return "Podman"
    if (root / ".dockerenv").exists():
        return "Docker"
    if any(word in _read(root / "proc/1/cgroup") for word in ("docker", "kubepods", "containerd", "lxc")):
        return "container"
    return "WSL2" if "microsoft" in _read(root / "proc/version").lower() else None


def _cards_on_bus(root: Path) -> tuple[str, ...]:
    found = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        vendor = _VENDORS.get(_read(device / "vendor").strip())
        if vendor and _read(device / "class").startswith(_DISPLAY):
            found.append(vendor)
    return tuple(found)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
