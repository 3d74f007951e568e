"""The installed packages, read from their metadata and files: no framework is imported."""

import ast
import contextlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path

_DIST_OF = {"jax": ("jax",), "torch": ("torch",), "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly")}
_CUDA_OF_TENSORFLOW = re.compile(r"'cuda_version', '(\d+)\.(\d+)")


@dataclass(frozen=True)
class Packages:
    """What is installed, by normalised name ("nvidia-cudnn-cu12")."""

    installed: dict[str, metadata.Distribution]

    @classmethod
    def read(cls, folders: list[str] | None = None) -> "Packages":
        """Read what is installed; of two packages of one name the first on the path counts, as for Python.

        Args:
            folders: in place of `sys.path`.
        """
        found: dict[str, metadata.Distribution] = {}
        for distribution in metadata.distributions(path=sys.path if folders is None else folders):
            name = distribution.metadata["Name"]
            if name:
                found.setdefault(_normalise(name), distribution)
        return cls(found)

    def version(self, name: str) -> str | None:
        """The version of a package, or None where it is not installed."""
        found = self.installed.get(name)
        return found.version if found else None

    def having(self, prefix: str) -> dict[str, str]:
        """Names and versions of the packages whose names begin so."""
        return {name: one.version for name, one in sorted(self.installed.items()) if name.startswith(prefix)}

    def framework_version(self, backend: str) -> str | None:
        """The version of a backend's framework, under whichever name it is installed."""
        return next(filter(None, map(self.version, _DIST_OF[backend])), None)

    @cached_property
    def jax_cuda_plugins(self) -> dict[str, str]:
        """The packages that run JAX on NVIDIA's cards; the compiler alone (`jax-cuda13-pjrt`) does not."""
        return {name: version for name, version in self.having("jax-cuda").items() if name.endswith("-plugin")}

    def cuda_of(self, backend: str) -> tuple[int, int] | None:
        """The CUDA that an installed framework was built for; None for a build without CUDA, or where unknown."""
        if backend == "jax":
            numbers = [re.findall(r"\d+", name)[0] for name in self.jax_cuda_plugins]
            return (int(max(numbers)), 0) if numbers else None
        if backend == "torch":
            cuda = self.torch_build.get("cuda")
            return _two_numbers(cuda) if cuda else None
        text = self._read_file("tensorflow", "tensorflow/python/platform/build_info.py")
        match = _CUDA_OF_TENSORFLOW.search(text)
        return (int(match[1]), int(match[2])) if match else None

    @cached_property
    def torch_build(self) -> dict[str, str | None]:
        """What `torch.version` says, `cuda` and `hip` among it; empty where PyTorch is not installed."""
        build: dict[str, str | None] = {}
        try:
            lines = ast.parse(self._read_file("torch", "torch/version.py")).body
        except SyntaxError:
            return build
        for line in lines:
            target = getattr(line, "target", None) or next(iter(getattr(line, "targets", ())), None)
            value = getattr(line, "value", None)
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                build[target.id] = None if value.value is None else str(value.value)
        return build

    def shared_files(self) -> Iterator[tuple[str, str, str]]:
        """Two of NVIDIA's packages and a library that both bring: the later one has overwritten the other's."""
        owners: dict[str, list[str]] = defaultdict(list)
        for name in self.having("nvidia-"):
            for file in self.installed[name].files or ():
                if ".so" in file.name:
                    owners[str(file)].append(name)
        told = set()
        for path, names in owners.items():
            if len(names) > 1 and tuple(names) not in told:
                told.add(tuple(names))
                yield names[0], names[1], path

    def _read_file(self, backend: str, path: str) -> str:
        for name in _DIST_OF[backend]:
            if found := self.installed.get(name):
                with contextlib.suppress(OSError):
                    return Path(str(found.locate_file(path))).read_text(encoding="utf-8")
        return ""


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _two_numbers(version: str) -> tuple[int, int]:
    numbers = [*map(int, re.findall(r"\d+", version)), 0, 0]
    return numbers[0], numbers[1]
