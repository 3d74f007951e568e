"""Why a backend runs on the CPU although the machine has a card: frameworks fall back to it without an error.

Each cause is a function of the machine. They are asked only where a backend was found on the CPU, so they may judge by
settings and packages alone.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fitroom.checks.machine import Machine

_FRACTIONS = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
_LAST_TENSORFLOW_ON_WINDOWS = (2, 10)
_OLDEST_DRIVERS = {11: "450.80", 12: "525.60", 13: "580.65"}
"""Of CUDA's major versions: the driver for Linux that runs wheels built for them."""

_OLDEST_CAPABILITY = {12: (5, 0), 13: (7, 5)}
"""Of CUDA's major versions: the oldest cards that they compile for. CUDA 13 has dropped Maxwell, Pascal and Volta."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One reason why the card is not used."""

    name: str
    found: str
    fix: str | None


def find_causes(machine: Machine) -> list[Cause]:
    """The causes that apply to a backend that does not see the machine's card, the surest first."""
    own: tuple[_Check, ...] = {"jax": _OF_JAX, "tensorflow": _OF_TENSORFLOW, "torch": _OF_TORCH}[machine.backend]
    return [cause for check in (*_OF_ALL, *own) for cause in check(machine)]


def install_command(machine: Machine, *, cuda: int | None = None) -> str:
    """The command that installs the backend in its version with CUDA.

    Args:
        machine: with its driver and cards, which decide between CUDA 12 and 13.
        cuda: CUDA's major version, where that is not to be decided.
    """
    packages, backend = machine.packages, machine.backend
    version = (packages.framework_version(backend) or "").partition("+")[0]
    exactly = f"=={version}" if version else ""
    cuda = cuda or _newest_cuda(machine)
    if backend == "tensorflow":
        remove = "pip uninstall -y tensorflow-cpu tensorflow && " if packages.version("tensorflow-cpu") else ""
        return f"{remove}pip install 'tensorflow[and-cuda]{exactly}'"
    if backend == "jax":
        others = [name for name in packages.having("jax-cuda") if f"cuda{cuda}" not in name]
        remove = f"pip uninstall -y {' '.join(others)} && " if others else ""
        return f"{remove}pip install 'jax[cuda{cuda}]{exactly}'"
    index = {12: "cu126", 13: "cu130"}[cuda]
    return f"pip install --force-reinstall torch{exactly} --index-url https://download.pytorch.org/whl/{index}"


def _newest_cuda(machine: Machine) -> int:
    """The newest of CUDA 12 and 13 that driver and cards can run."""
    runs = machine.driver.cuda_version
    oldest = min((gpu.compute_capability or (9, 0) for gpu in machine.gpus), default=(9, 0))
    return 12 if (runs is not None and runs < (13, 0)) or oldest < _OLDEST_CAPABILITY[13] else 13


_Check = Callable[[Machine], Iterator[Cause]]


def _hidden_by_variable(machine: Machine) -> Iterator[Cause]:
    value = machine.environment.get("CUDA_VISIBLE_DEVICES")
    if value is not None and machine.gpus and not machine.visible:
        yield Cause(
            name="CUDA_VISIBLE_DEVICES",
            found=f"CUDA_VISIBLE_DEVICES={value!r} hides every card.",
            fix="unset CUDA_VISIBLE_DEVICES",
        )


def _no_driver(machine: Machine) -> Iterator[Cause]:
    if machine.gpus:
        return
    error = f"NVIDIA's driver does not answer ({machine.driver.error})"
    if "mismatch" in (machine.driver.error or "").lower():
        yield Cause(
            name="driver",
            found=f"{error}: it was updated, and the kernel still runs the old one.",
            fix="sudo reboot",
        )
    elif machine.is_container:
        yield Cause(
            name="container runtime",
            found=f"{error}: this container was started without NVIDIA's runtime.",
            fix=_CONTAINERS.get(machine.place or "", "docker run --gpus all ..."),
        )
    elif machine.has_wsl_device:
        yield Cause(
            name="WSL2",
            found=f"{error}, although Windows offers its card (/dev/dxg). WSL2 uses the driver of Windows: its "
            "libraries are in /usr/lib/wsl/lib, and no Linux driver may be installed beside them.",
            fix="export LD_LIBRARY_PATH=/usr/lib/wsl/lib:$LD_LIBRARY_PATH",
        )
    elif machine.has_kernel_driver:
        yield Cause(
            name="driver",
            found=f"{error}, although it is loaded in the kernel: its library is missing for this process.",
            fix="ldconfig -p | grep libnvidia-ml  # install the driver's libraries where this shows nothing",
        )
    else:
        yield Cause(
            name="driver",
            found=f"{error}: there is a card on the PCI bus, and no driver for it.",
            fix="sudo ubuntu-drivers install  # or https://www.nvidia.com/drivers",
        )


_CONTAINERS = {
    "Docker": "docker run --gpus all ...  # needs nvidia-container-toolkit on the host",
    "Podman": "podman run --device nvidia.com/gpu=all ...",
    "Apptainer": "apptainer exec --nv ...",
    "Kubernetes": "resources: {limits: {nvidia.com/gpu: 1}}  # in the container's specification",
}


def _driver_too_old(machine: Machine) -> Iterator[Cause]:
    built_for, runs = machine.packages.cuda_of(machine.backend), machine.driver.cuda_version
    if built_for is None or runs is None or runs[0] >= built_for[0]:
        return
    oldest = _OLDEST_DRIVERS.get(built_for[0], "a newer one")
    yield Cause(
        name="driver too old",
        found=f"The driver {machine.driver.version} runs CUDA {runs[0]}.{runs[1]} at most; this build of "
        f"{_name(machine)} is for CUDA {built_for[0]}, which needs driver {oldest} or later.",
        fix=f"update the driver to {oldest} or later, or: {install_command(machine)}",
    )


def _card_too_old(machine: Machine) -> Iterator[Cause]:
    built_for = machine.packages.cuda_of(machine.backend)
    oldest = _OLDEST_CAPABILITY.get(built_for[0]) if built_for else None
    for gpu in machine.visible:
        if built_for and oldest and gpu.compute_capability and gpu.compute_capability < oldest:
            yield Cause(
                name="card too old",
                found=f"{gpu.name} has compute capability {_dotted(gpu.compute_capability)}; CUDA {built_for[0]}, for "
                f"which this build of {_name(machine)} was made, begins at {_dotted(oldest)}.",
                fix=install_command(machine, cuda=12),
            )


def _two_fractions(machine: Machine) -> Iterator[Cause]:
    if all(machine.environment.get(name) for name in _FRACTIONS):
        yield Cause(
            name="two memory fractions",
            found=f"{' and '.join(_FRACTIONS)} are both set: JAX then drops the GPU with one line of log.",
            fix=f"unset {_FRACTIONS[1]}",
        )


def _jax_platforms(machine: Machine) -> Iterator[Cause]:
    for name in ("JAX_PLATFORMS", "JAX_PLATFORM_NAME"):
        value = machine.environment.get(name, "")
        if value and not {"cuda", "gpu"} & set(value.split(",")):
            yield Cause(name=name, found=f"{name}={value!r} leaves the GPU out.", fix=f"unset {name}")


def _jax_without_cuda(machine: Machine) -> Iterator[Cause]:
    packages, jaxlib = machine.packages, machine.packages.version("jaxlib")
    plugins = packages.jax_cuda_plugins
    if machine.system == "Windows":
        yield _on_windows("JAX has no GPU build for Windows.")
    elif not plugins:
        pjrt = " (jax-cuda*-pjrt alone is the compiler)" if packages.having("jax-cuda") else ""
        yield Cause(
            name="CPU-only build",
            found=f"JAX is installed without CUDA: there is no jax-cuda*-plugin{pjrt}.",
            fix=install_command(machine),
        )
    for plugin, version in plugins.items():
        if jaxlib and version != jaxlib:
            yield Cause(
                name="plugin version",
                found=f"{plugin} is {version} and jaxlib {jaxlib}: JAX loads a plugin of its own version alone.",
                fix=f"pip install '{plugin}[with-cuda]=={jaxlib}' {plugin.removesuffix('plugin')}pjrt=={jaxlib}",
            )


def _tensorflow_build(machine: Machine) -> Iterator[Cause]:
    packages = machine.packages
    version = packages.framework_version("tensorflow") or ""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if machine.system == "Windows" and numbers > _LAST_TENSORFLOW_ON_WINDOWS:
        yield _on_windows(f"TensorFlow {version} has no GPU build for Windows: 2.10 was the last.")
    elif packages.version("tensorflow-cpu"):
        beside = ", beside tensorflow, whose files it overwrites" if packages.version("tensorflow") else ""
        yield Cause(
            name="CPU-only build",
            found=f"tensorflow-cpu is installed{beside}: it has no CUDA.",
            fix=install_command(machine),
        )
    elif not packages.having("nvidia-cudnn"):
        yield Cause(
            name="tensorflow without CUDA libraries",
            found="tensorflow is installed without [and-cuda], and finds no CUDA libraries.",
            fix=install_command(machine),
        )


def _torch_device(machine: Machine) -> Iterator[Cause]:
    device = machine.environment.get("KERAS_TORCH_DEVICE", "")
    if device.startswith("cpu"):
        yield Cause(
            name="KERAS_TORCH_DEVICE",
            found=f"KERAS_TORCH_DEVICE={device!r} has Keras train on the CPU.",
            fix="unset KERAS_TORCH_DEVICE",
        )


def _torch_build(machine: Machine) -> Iterator[Cause]:
    version, build = machine.packages.version("torch"), machine.packages.torch_build
    if (version or "").endswith("+cpu") or (build and not build.get("cuda")):
        kind = "for AMD's ROCm" if build.get("hip") else "without CUDA"
        yield Cause(
            name="CPU-only build",
            found=f"PyTorch {version} is built {kind}.",
            fix=install_command(machine),
        )


def _on_windows(found: str) -> Cause:
    return Cause(
        name="native Windows",
        found=f"{found} Use WSL2, or KERAS_BACKEND=torch, which has one.",
        fix="wsl --install  # then install there",
    )


_OF_ALL: tuple[_Check, ...] = (_no_driver, _hidden_by_variable, _driver_too_old, _card_too_old)
_OF_JAX: tuple[_Check, ...] = (_two_fractions, _jax_platforms, _jax_without_cuda)
_OF_TENSORFLOW: tuple[_Check, ...] = (_tensorflow_build,)
_OF_TORCH: tuple[_Check, ...] = (_torch_device, _torch_build)


def _name(machine: Machine) -> str:
    return {"jax": "JAX", "tensorflow": "TensorFlow", "torch": "PyTorch"}[machine.backend]


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
