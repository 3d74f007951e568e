"""The probe: a child process in which the chosen backend starts, says what it sees, and computes on it.

A process of its own, because a framework that starts takes memory, prints, and may crash; and because the one that asks
may have started it already.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TIME_LIMIT_SECONDS = 120
_MISSING = re.compile(r"(lib[\w+-]+\.so[\d.]*): cannot open shared object|dynamic library '(lib[^']+)'")
_CHATTER = re.compile(
    r"oneDNN custom|cpu_feature_guard|AVX|rebuild TensorFlow|absl::InitializeLog|cudart dlerror|computation_placer"
    r"|Unable to register cu|^To enable|^Traceback|^\s"
)
_TELLING = re.compile(
    r"error|fail|could not|cannot|not found|unable|skipping|no gpu|falling back|mismatch|not set", re.I
)

_ORIGIN = re.compile(r"^[^\]]*?\S+\.(cc|h|py):\d+\]\s*")
_ADVICE = re.compile(r"\. (Please|Follow|Set) .*")


@dataclass(frozen=True, kw_only=True)
class Work:
    """One kind of computation, as the probe timed it."""

    device: str
    """Where the result lay, in the framework's own words."""

    on_device: bool
    """Whether that is an accelerator."""

    flops_per_second: float


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What the child process found."""

    devices: tuple[dict[str, Any], ...] = ()
    """As `fitroom.backends.contract.Device` has them, the one to train on first."""

    product: Work | None = None
    convolution: Work | None = None
    memory: dict[str, int | None] = field(default_factory=dict)
    """The allocator's own counters after the work: `in_use_bytes`, `reserved_bytes`, `limit_bytes`."""

    driver_bytes: int | None = None
    """By how much the memory in use on the card grew meanwhile, as the driver counts."""

    versions: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    """Why it came to nothing."""

    log: tuple[str, ...] = ()
    """What the framework wrote about trouble, shortened."""

    missing_libraries: tuple[str, ...] = ()
    seconds: float = 0.0
    """Of the two computations, compiling included; not of the start."""

    @property
    def kind(self) -> str | None:
        """The kind of the device that Keras trains on: "gpu", "cpu", "other"; None where the backend did not start."""
        return self.devices[0]["kind"] if self.devices else None


def run_probe(
    backend: str, *, environment: Mapping[str, str] | None = None, time_limit_seconds: float = _TIME_LIMIT_SECONDS
) -> Probe:
    """Start a backend in a child process and compute on its first device. It never raises for what goes wrong there.

    Args:
        backend: as Keras spells it.
        environment: in place of `os.environ`.
        time_limit_seconds: after which the child is ended.
    """
    with tempfile.TemporaryDirectory(prefix="fitroom-probe-") as folder:
        answer, errors = Path(folder) / "answer.json", Path(folder) / "stderr"
        exit_code = _run_child(backend, answer, errors, environment, time_limit_seconds)
        text = errors.read_text(errors="replace")
        found = json.loads(answer.read_text()) if answer.exists() else {}
    log = read_log(text)
    error = found.pop("error", None)
    if not found and error is None:
        last = f" Its last words: {log[-1]}" if log else ""
        error = f"it took more than {time_limit_seconds:.0f} s" if exit_code is None else _died(exit_code) + last
    missing = {*found.pop("missing_libraries", ()), *(a or b for a, b in _MISSING.findall(f"{text}\n{error or ''}"))}
    product, convolution = (Work(**found[name]) if name in found else None for name in ("product", "convolution"))
    return Probe(
        devices=tuple(found.get("devices", ())),
        product=product,
        convolution=convolution,
        memory=found.get("memory", {}),
        driver_bytes=found.get("driver_bytes"),
        versions=found.get("versions", {}),
        error=error,
        log=tuple(log),
        missing_libraries=tuple(sorted(missing)),
        seconds=found.get("seconds", 0.0),
    )


def read_log(text: str) -> list[str]:
    """The lines of a framework's output that tell of trouble, without date and file, each once.

    >>> read_log("2026-01-01 10:00:00.1: W tensorflow/x.cc:12] Cannot dlopen some GPU libraries. Please ...")
    ['Cannot dlopen some GPU libraries.']
    """
    told = [line for line in text.splitlines() if _TELLING.search(line) and not _CHATTER.search(line)]
    without_origin = (_ORIGIN.sub("", line).strip() for line in told)
    return list(dict.fromkeys(_ADVICE.sub(".", line)[:240] for line in without_origin))


def _run_child(
    backend: str, answer: Path, errors: Path, environment: Mapping[str, str] | None, time_limit_seconds: float
) -> int | None:
    """The exit code of the child, or None where it was ended for its time."""
    inherited = dict(os.environ if environment is None else environment)
    # A look takes no more of the card than it needs, whatever a training would take.
    modest = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    own = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "0"}
    own["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with errors.open("wb") as stderr:
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "fitroom.checks.probe_child", backend, str(answer)],
                env=modest | inherited | own,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                timeout=time_limit_seconds,
            )
        except subprocess.TimeoutExpired:
            return None
    return done.returncode


def _died(exit_code: int) -> str:
    if exit_code < 0:
        return f"its process was ended by {signal.Signals(-exit_code).name}."
    return f"its process exited with {exit_code}."
