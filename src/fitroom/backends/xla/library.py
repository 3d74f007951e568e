"""Where XLA's GPU compiler lies: one shared library in a package that JAX calls its PJRT plugin."""

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("jax-cuda13-pjrt", "jax-cuda12-pjrt")
"""The packages that carry the compiler, the preferred one first."""

_FILE_NAME = "xla_cuda_plugin.so"


@dataclass(frozen=True, kw_only=True)
class CompilerLibrary:
    """One compiler on disk."""

    package: str
    version: str
    path: Path

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


def installed_compiler() -> CompilerLibrary | None:
    """The compiler that is installed beside fitroom, or None."""
    return _first_of(importlib.metadata.distributions())


def compiler_in(folder: Path) -> CompilerLibrary | None:
    """The compiler in a folder that `pip install --target` made, or None."""
    return _first_of(importlib.metadata.distributions(path=[str(folder)]))


def _first_of(distributions: Iterable[importlib.metadata.Distribution]) -> CompilerLibrary | None:
    found = {(each.name or "").replace("_", "-"): each for each in distributions}
    for package in PACKAGES:
        for file in (found[package].files or []) if package in found else []:
            if file.name == _FILE_NAME:
                path = Path(str(found[package].locate_file(file)))
                return CompilerLibrary(package=package, version=found[package].version, path=path)
    return None
