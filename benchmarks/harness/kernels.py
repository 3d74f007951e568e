"""Kernels that XLA chose in one process, handed on to others.

XLA tries kernels on the card while it compiles. Side by side that takes long and chooses badly, since each is timed
while others use the card. So one process after another chooses (`chosen_into`), and what was found is put together
(`put_together`); processes that are given it (`taken_from`) compile without the card.
"""

import re
from collections.abc import Iterable
from pathlib import Path

_ENTRY = re.compile(r"^(?:entries|results) \{\n.*?^\}\n", re.DOTALL | re.MULTILINE)
"""Of JAX's XLA, and of TensorFlow's, which is older."""
_WHAT = re.compile(r"(?:hlo_fingerprint|hlo): .*")
_VERSION = re.compile(r"version: \d+\n")


def chosen_into(file: Path) -> str:
    """What to add to XLA_FLAGS so that a process leaves its choices in a file."""
    return f"--xla_gpu_dump_autotune_results_to={file}"


def taken_from(file: Path) -> str:
    """What to add so that a process goes by a file; nothing where there is none, for which XLA would refuse to run."""
    return f"--xla_gpu_load_autotune_results_from={file}" if file.exists() else ""


def put_together(files: Iterable[Path], into: Path) -> int:
    """Make one file of several, whose first choice for a kernel counts; the number of kernels."""
    found: dict[str, str] = {}
    version = ""
    for file in files:
        text = file.read_text()
        if stated := _VERSION.match(text):
            version = stated.group()
        for entry in _ENTRY.findall(text):
            if what := _WHAT.search(entry):
                found.setdefault(what.group(), entry)
    beside = into.with_suffix(".new")
    beside.write_text(version + "".join(found.values()))
    beside.rename(into)
    return len(found)
