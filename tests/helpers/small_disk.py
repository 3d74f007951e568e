"""File systems of a kind that a test needs, real ones, seen by one process alone."""

import subprocess
from pathlib import Path

import pytest

_UNSHARE = ("unshare", "--map-root-user", "--mount")


def run_on(mount: str, command: list[str]) -> subprocess.CompletedProcess:
    """Run a command where `mount ...` was done before; skips where this machine does not allow that."""
    try:
        allowed = subprocess.run([*_UNSHARE, "sh", "-c", mount], capture_output=True, timeout=30)
    except FileNotFoundError:
        pytest.skip("no unshare on this machine")
    if allowed.returncode:
        pytest.skip(f"this machine lets us mount nothing: {allowed.stderr.decode()}")
    script = ["sh", "-c", f'{mount} && exec "$@"', "sh", *command]
    return subprocess.run([*_UNSHARE, *script], capture_output=True, text=True, timeout=120)


def small_disk(folder: Path, *, size_kib: int) -> str:
    """The mount of a disk of that size."""
    return f"mount -t tmpfs -o size={size_kib}k none '{folder}'"


def read_only(folder: Path) -> str:
    """The mount that makes a folder read-only, for root too."""
    return f"mount --bind '{folder}' '{folder}' && mount -o remount,bind,ro '{folder}'"
