"""What `fitroom doctor` finds on a machine with an NVIDIA card: in order, and with each fault planted.

    python benchmarks/measure/doctor.py --out doctor.jsonl                       # backends of this interpreter
    python benchmarks/measure/doctor.py --out doctor.jsonl --tensorflow-env tensorflow.env
    python benchmarks/measure/doctor.py --out doctor.jsonl --only jax            # faults whose names have it

Each fault is planted in a process of its own that runs `python -m fitroom doctor --json`. A line a fault: what was
expected, whether it was found, in how many seconds. It takes under four minutes; what does not fit is written as
skipped. A file for `--tensorflow-env` exports what TensorFlow's own interpreter needs, TF_PYTHON among it; without one,
TensorFlow is tried in this interpreter. Nothing is loaded from a network.
"""

import argparse
import datetime
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"
AT_ONCE = 4
IN_ORDER = frozenset({"device=pass", "probe=pass", "card=pass"})
LIBRARIES = ("libcudart.so.12", "libcudart.so.13", "libcublas.so.12", "libcublas.so.13", "libcudnn.so.9")
HOLD = """
import sys, time, torch
free, total = torch.cuda.mem_get_info()
size = int(float(sys.argv[1]) * total) if float(sys.argv[1]) < 1 else free - int(sys.argv[1])
held = torch.empty(size, dtype=torch.uint8, device="cuda")
print("held", flush=True)
time.sleep(120)
"""
FIT = """
import keras, numpy, fitroom
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
for _ in range(2):
    fitroom.fit(model, numpy.zeros((4, 2)), numpy.zeros((4, 1)), verbose=0)
"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What is planted, and what is to be found."""

    name: str
    backend: str
    expected: frozenset[str]
    """Findings as "name=status"; "a=failure|b=warning" is either of them."""

    exit_code: int | None
    """None where either will do."""

    environment: dict[str, str | None] = field(default_factory=dict)
    """Variables that are set, or taken away by None. What is in a path is put in front of what was there."""

    hold: str | None = None
    """What another process holds of the card meanwhile: a share, or bytes that it leaves."""

    prefix: tuple[str, ...] = ()
    """A command in front of Python."""

    is_fit: bool = False
    """Whether `fitroom.fit` is run and its note looked for, in place of the command."""


def main() -> None:
    """Plant the faults one after the other and append a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tensorflow-env", type=Path, help="a file of exports for TensorFlow's interpreter")
    parser.add_argument("--only", default="", help="a part of the names of faults")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for one fault")
    parser.add_argument("--total-limit", type=float, default=225.0, help="seconds after which no fault is begun")
    arguments = parser.parse_args()
    began = time.monotonic()
    tensorflow = read_exports(arguments.tensorflow_env) if arguments.tensorflow_env else None
    with tempfile.TemporaryDirectory() as folder:
        faults = [fault for fault in list_faults(Path(folder), tensorflow) if arguments.only in fault.name]
        alone = [fault for fault in faults if fault.hold or fault.expected == IN_ORDER]
        together = [fault for fault in faults if fault not in alone]

        def look(fault: Fault) -> dict[str, Any]:
            if time.monotonic() - began > arguments.total_limit:
                return describe(fault) | {"skipped": "no time was left"}
            return examine(fault, tensorflow, arguments.time_limit)

        with ThreadPoolExecutor(AT_ONCE) as threads:
            for records in (map(look, alone), threads.map(look, together)):
                for record in records:
                    with arguments.out.open("a") as lines:
                        lines.write(json.dumps(record) + "\n")
                    told = record.get("skipped") or ("found" if record["found"] else "NOT FOUND")
                    print(f"{record['fault']:44} {told}  {record.get('seconds', 0):.1f} s", flush=True)


def list_faults(folder: Path, tensorflow: dict[str, str] | None) -> Iterator[Fault]:
    """All faults that can be planted here; files that they need are written to the folder."""
    backends = [name for name in ("jax", "torch", "tensorflow") if importlib.util.find_spec(name)]
    if tensorflow and "tensorflow" not in backends:
        backends.append("tensorflow")
    for backend in backends:
        yield Fault(name=f"{backend}: in order", backend=backend, expected=IN_ORDER, exit_code=0)
    for backend in backends:
        yield from list_faults_of_all(backend, folder)
    if "jax" in backends:
        yield from list_faults_of_jax(folder)
    if "torch" in backends:
        yield from list_faults_of_torch(folder)
    if "tensorflow" in backends:
        yield from list_faults_of_tensorflow(folder, needs_path="LD_LIBRARY_PATH" in (tensorflow or os.environ))


def failing(*names: str, also: tuple[str, ...] = ()) -> frozenset[str]:
    """The findings where a backend fell back to the CPU for these causes."""
    return frozenset({"device=failure", *(f"{name}=failure" for name in names), *also})


def list_faults_of_all(backend: str, folder: Path) -> Iterator[Fault]:
    """Settings and files that hide the card from any backend."""
    yield Fault(
        name=f"{backend}: CUDA_VISIBLE_DEVICES is empty",
        backend=backend,
        expected=failing("CUDA_VISIBLE_DEVICES"),
        exit_code=1,
        environment={"CUDA_VISIBLE_DEVICES": ""},
    )
    bogus = folder / "bogus"
    bogus.mkdir(exist_ok=True)
    for library in LIBRARIES:
        (bogus / library).write_text("not a library")
    yield Fault(
        name=f"{backend}: other libraries in LD_LIBRARY_PATH",
        backend=backend,
        expected=frozenset({"clashing libraries=warning|missing libraries=failure|device=failure"}),
        exit_code=None,
        environment={"LD_LIBRARY_PATH": str(bogus)},
    )


def list_faults_of_jax(folder: Path) -> Iterator[Fault]:
    """Settings of JAX, and a plugin that does not start."""
    yield Fault(
        name="jax: both memory fractions",
        backend="jax",
        expected=failing("two memory fractions"),
        exit_code=1,
        environment={"XLA_CLIENT_MEM_FRACTION": "0.5", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"},
    )
    yield Fault(
        name="jax: JAX_PLATFORMS=cpu",
        backend="jax",
        expected=failing("JAX_PLATFORMS"),
        exit_code=1,
        environment={"JAX_PLATFORMS": "cpu"},
    )
    yield Fault(
        name="jax: pool that grows",
        backend="jax",
        expected=frozenset({"device=pass", "preallocation=warning"}),
        exit_code=0,
        environment={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
    )
    plugins = folder / "plugins" / "jax_plugins"
    plugins.mkdir(parents=True)
    (plugins / "__init__.py").write_text('"""Takes the place of the namespace in which JAX looks for plugins."""\n')
    yield Fault(
        name="jax: plugin that fails to start",
        backend="jax",
        expected=frozenset({"device=failure", "CUDA did not start=failure|CPU-only build=failure"}),
        exit_code=1,
        environment={"PYTHONPATH": str(plugins.parent)},
    )
    yield from list_small_mounts()


def list_small_mounts() -> Iterator[Fault]:
    """What needs mounts of its own: little shared memory, and a driver whose library is hidden."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        return
    small = 'mount -t tmpfs -o size=32m tmpfs /dev/shm && exec "$@"'
    yield Fault(
        name="jax: little shared memory",
        backend="jax",
        expected=frozenset({"shared memory=warning"}),
        exit_code=None,
        prefix=("unshare", "-rm", "sh", "-c", small, "sh"),
    )
    library = "$(readlink -f $(ldconfig -p | grep -o '/.*libnvidia-ml.so.1' | head -1))"
    yield Fault(
        name="jax: the driver's NVML is hidden",
        backend="jax",
        expected=frozenset({"card=failure", "device=failure"}),  # JAX asks NVML for its cards, too
        exit_code=1,
        prefix=("unshare", "-rm", "sh", "-c", f'mount --bind /dev/null {library} && exec "$@"', "sh"),
    )


def list_faults_of_torch(folder: Path) -> Iterator[Fault]:
    """Keras's own variable, other processes on the card, a build without CUDA, and the note of `fit`."""
    yield Fault(
        name="torch: KERAS_TORCH_DEVICE=cpu",
        backend="torch",
        expected=failing("KERAS_TORCH_DEVICE"),
        exit_code=1,
        environment={"KERAS_TORCH_DEVICE": "cpu"},
    )
    packages = write_metadata(folder / "cpu_torch", "torch", "2.11.0+cpu")
    yield Fault(
        name="torch: a build without CUDA",
        backend="torch",
        expected=failing("CPU-only build"),
        exit_code=1,
        # The metadata are those of such a build; what hides the card from the real one is the variable.
        environment={"PYTHONPATH": str(packages), "KERAS_TORCH_DEVICE": "cpu"},
    )
    yield Fault(
        name="torch: another process holds 30 % of the card",
        backend="torch",
        expected=frozenset({"device=pass", "probe=pass", "card memory=warning"}),
        exit_code=0,
        hold="0.3",
    )
    yield Fault(
        name="torch: another process leaves 300 MiB of the card",
        backend="torch",
        expected=frozenset({"card memory=warning", "device=failure|probe=failure"}),
        exit_code=1,
        hold=str(300 * 2**20),
    )
    yield Fault(
        name="torch: fit beside a hidden card",
        backend="torch",
        expected=frozenset({"note=said once"}),
        exit_code=0,
        environment={"CUDA_VISIBLE_DEVICES": ""},
        is_fit=True,
    )


def list_faults_of_tensorflow(folder: Path, *, needs_path: bool) -> Iterator[Fault]:
    """Keras 2, two packages in one place, and libraries that are not found where a variable says where they are."""
    packages = write_metadata(folder / "cpu_tensorflow", "tensorflow-cpu", "2.21.0")
    yield Fault(
        name="tensorflow: tensorflow-cpu beside it, legacy Keras",
        backend="tensorflow",
        expected=frozenset({"two TensorFlows=warning", "TF_USE_LEGACY_KERAS=warning"}),
        exit_code=None,
        environment={"PYTHONPATH": str(packages), "TF_USE_LEGACY_KERAS": "1"},
    )
    if needs_path:
        yield Fault(
            name="tensorflow: libraries hidden",
            backend="tensorflow",
            expected=failing("missing libraries"),
            exit_code=1,
            environment={"LD_LIBRARY_PATH": None},
        )


def write_metadata(folder: Path, name: str, version: str) -> Path:
    """Write the metadata of a package that is not there; returns the folder for PYTHONPATH."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def examine(fault: Fault, tensorflow: dict[str, str] | None, time_limit: float) -> dict[str, Any]:
    """Plant a fault, run the command, and compare what it says with what was expected."""
    environment = dict(tensorflow if tensorflow and fault.backend == "tensorflow" else os.environ)
    python = environment.get("TF_PYTHON", sys.executable) if fault.backend == "tensorflow" else sys.executable
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SOURCE), environment.get("PYTHONPATH"))))
    environment["KERAS_BACKEND"] = fault.backend
    for name, value in fault.environment.items():
        before = environment.pop(name, None)
        if value is not None:
            environment[name] = os.pathsep.join(filter(None, (value, before))) if name.endswith("PATH") else value
    if fault.is_fit:
        command = [python, "-c", FIT]
    else:
        command = [*fault.prefix, python, "-m", "fitroom", "doctor", "--backend", fault.backend, "--json"]
    with hold_card(fault.hold):
        began = time.monotonic()
        exit_code, stdout, stderr = run(command, environment, time_limit)
        seconds = round(time.monotonic() - began, 2)
    findings = read_note(stderr) if fault.is_fit else read_findings(stdout)
    seen = {f"{name}={status}" for name, status, _ in findings}
    found = all(seen & set(one.split("|")) for one in fault.expected) and fault.exit_code in (None, exit_code)
    said = {name: text for name, _, text in findings}
    return describe(fault) | {
        "card": said.get("card"),
        "versions": said.get("backend"),
        "found": found,
        "exit_code": exit_code,
        "seconds": seconds,
        "findings": {name: [status, text] for name, status, text in findings if status != "pass" or found is False},
        "stderr": "" if found else stderr[-1500:],
    }


def run(command: list[str], environment: dict[str, str], time_limit: float) -> tuple[int | None, str, str]:
    """Run a command; returns its exit code, None where it was stopped for its time, and what it wrote."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        stdout, stderr = process.communicate(timeout=time_limit)
        return process.returncode, stdout, stderr
    except subprocess.TimeoutExpired:
        process.terminate()  # it ends the process that it probes with
        stdout, stderr = process.communicate()
        return None, stdout, stderr


def describe(fault: Fault) -> dict[str, Any]:
    """What was planted, without what came of it."""
    return {
        "fault": fault.name,
        "backend": fault.backend,
        "expected": sorted(fault.expected),
        "expected_exit_code": fault.exit_code,
        "date": str(datetime.date.today()),
    }


def read_findings(text: str) -> list[tuple[str, str, str]]:
    """Name, status and sentence of each finding in the output of the command."""
    try:
        findings = json.loads(text)["findings"]
    except (ValueError, KeyError):
        return []
    return [(finding["name"], finding["status"], finding["found"]) for finding in findings]


def read_note(text: str) -> list[tuple[str, str, str]]:
    """How often `fit` said that the card is not used."""
    said = [line for line in text.splitlines() if "training runs on the CPU" in line]
    return [("note", "said once" if len(said) == 1 else f"said {len(said)} times", said[0] if said else "")]


@contextmanager
def hold_card(amount: str | None) -> Iterator[None]:
    """Have another process hold memory of the card for the time of the block."""
    if amount is None:
        yield
        return
    holder = subprocess.Popen([sys.executable, "-c", HOLD, amount], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
    finally:
        holder.kill()
        holder.wait()


def read_exports(file: Path) -> dict[str, str]:
    """The environment after a file of exports was read by a shell."""
    done = subprocess.run(
        ["bash", "-c", 'set -a; . "$0"; exec env -0', str(file)], capture_output=True, text=True, check=True
    )
    return dict(entry.split("=", 1) for entry in done.stdout.split("\0") if "=" in entry)


if __name__ == "__main__":
    main()
