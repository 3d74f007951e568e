"""How long commands take from the shell, as ratios to one fixed computation in the same run.

    python benchmarks/measure/latency.py --out FILE                        # every case, this checkout
    python benchmarks/measure/latency.py --only plan/jax --repeat 3        # cases whose name has these words
    python benchmarks/measure/latency.py --source OLDER/src --label before # another checkout, the same cases
    python benchmarks/measure/latency.py --list

The fixed computation is a fresh process that imports Keras and builds Xception, on the same backend. It runs before
each case, so that machines, and moments of one busy machine, compare. Wall clock is what a user waits; CPU seconds, of
the process and all its children, are what a busy machine disturbs least: half of the wall-clock ratio's noise on two
busy cores is the neighbours'. Each command starts with an empty cache, except for those named "cached".

A line of the result has, besides both ratios, the seconds to the first answer where there is one, the longest silence
on stderr, and the most memory that one of its processes had on the host.
"""

import argparse
import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.paths import ROOT, SOURCE

REFERENCE = "import keras; keras.applications.Xception(weights=None)"
BACKENDS = ("jax", "torch", "tensorflow")
FIRST_ANSWER = "interpolated"
"""The word in the line of stderr that brings a plan's first answer."""

_XCEPTION = ("xception", "--image-size", "299", "--gpu", "RTX 3060")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command on one backend."""

    name: str
    backend: str
    words: tuple[str, ...]
    """What follows `fitroom`."""

    wanted: float | None = None
    """The ratio of wall-clock seconds that it should not exceed."""

    wanted_first: float | None = None
    """The same for its first answer."""

    wanted_seconds: float | None = None
    """The seconds that it should not exceed, where the machine's speed should not matter."""

    cached: bool = False
    """Whether the same command has run before, on the same cache."""

    needs: tuple[str, ...] = ()
    """What must be given on the command line of this script: "flowers"."""

    facts: dict[str, Any] = field(default_factory=dict)
    """What curves are drawn over, such as {"layers": 200}."""


def list_cases(flowers: Path | None = None, work: Path = Path()) -> list[Case]:
    """Return all cases; more of them are more calls here."""
    cases: list[Case] = []
    for backend, wanted in (("jax", 1.2), ("torch", 1.2), ("tensorflow", 1.6)):
        on = ("--backend", backend)
        plan = ("plan", *_XCEPTION, "--batch-size", "256", *on)
        cases += [
            _case("estimate", backend, ("estimate", *_XCEPTION, "--batch-size", "32", *on), wanted=wanted),
            _case("plan", backend, plan, wanted=4, wanted_first=1.5),
            _case("plan, precision auto", backend, (*plan, "--precision", "auto")),
            _case("plan, cached", backend, plan, wanted_seconds=1, cached=True),
            _case("plan, all cards", backend, ("plan", *_XCEPTION[:3], "--batch-size", "256", "--gpu", "all", *on)),
            _case("plan, largest batch", backend, (*plan[:-3], "max", *on)),
            _case("segments", backend, ("segments", *_XCEPTION[:3], *on)),
        ]
        if backend == "tensorflow":  # whose step is jitted on a card without the flag
            graph = ("estimate", *_XCEPTION, "--batch-size", "32", "--no-jit", *on)
            cases.append(_case("estimate, graph mode", backend, graph, wanted=wanted))
        image = str(work / f"image-{backend}.jpg")
        model = str(work / f"classifier-{backend}.keras")
        cases.append(_case("predict one image", backend, ("predict", model, image, *on), wanted_seconds=10))
        train = ("train", str(flowers), "--model", "xception", "--epochs", "1", "--weights", "none")
        cases.append(
            _case("train, until its first batch", backend, (*train, *on), wanted_seconds=30, needs=("flowers",))
        )
    return cases


def _case(name: str, backend: str, words: tuple[str, ...], **rest: Any) -> Case:
    return Case(name=f"{name}/{backend}", backend=backend, words=words, **rest)


def main() -> None:
    """Measure the cases that were asked for and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="words, one of which a case's name must contain")
    parser.add_argument("--source", type=Path, default=SOURCE, help="the `src` of the checkout that is measured")
    parser.add_argument("--label", default="after")
    parser.add_argument("--commit", help="of that checkout, where it is no git repository")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--flowers", type=Path, help="a folder of images in one folder a class")
    parser.add_argument("--out", type=Path, help="a file of JSON lines that results are added to")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--stderr", action="store_true", help="show each line of stderr with its second")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="latency-") as folder:
        cases = [
            case
            for case in list_cases(arguments.flowers, Path(folder))
            if not arguments.only or any(word in case.name for word in arguments.only)
        ]
        if arguments.list:
            print("\n".join(case.name for case in cases))
            return
        for case in cases:
            if "flowers" in case.needs and arguments.flowers is None:
                print(f"{case.name}: needs --flowers FOLDER", file=sys.stderr)
                continue
            line = measure(case, arguments.source.resolve(), Path(folder), arguments.repeat, show=arguments.stderr)
            line = {"label": arguments.label, "commit": arguments.commit or _commit(arguments.source)} | line
            print(json.dumps(line), flush=True)
            if arguments.out:
                with arguments.out.open("a") as out:
                    out.write(json.dumps(line) + "\n")


def measure(case: Case, source: Path, folder: Path, repeat: int, *, show: bool = False) -> dict[str, Any]:
    """Return the medians of so many runs of a case, each after one of the reference."""
    _prepare(case, folder)
    cache = folder / "cache"
    if case.cached:
        _run(case.words, case.backend, source, cache)
    references, runs = [], []
    for _ in range(repeat):
        references.append(run_reference(case.backend))
        if not case.cached:
            cache = Path(tempfile.mkdtemp(prefix="cache-", dir=folder))
        runs.append(_run(case.words, case.backend, source, cache, show=show))
    medians = {name: _median([getattr(run, name) for run in runs]) for name in _FIGURES}
    reference = {name: _median([getattr(run, name) for run in references]) for name in ("seconds", "cpu_seconds")}
    first = medians["first_answer_seconds"]
    return {
        "case": case.name,
        "backend": case.backend,
        "command": " ".join(["fitroom", *(_quote(word, folder) for word in case.words)]),
        "cached": case.cached,
        **case.facts,
        "ratio": _round(medians["seconds"] / reference["seconds"]),
        "cpu_ratio": _round(medians["cpu_seconds"] / reference["cpu_seconds"]),
        "first_answer_ratio": None if first is None else _round(first / reference["seconds"]),
        **{name: None if value is None else _round(value) for name, value in medians.items()},
        "reference_seconds": _round(reference["seconds"]),
        "reference_cpu_seconds": _round(reference["cpu_seconds"]),
        "wanted": {
            name: value for name, value in asdict(case).items() if name.startswith("wanted") and value is not None
        },
        "runs": repeat,
        "cores": len(os.sched_getaffinity(0)),
        "load": _round(os.getloadavg()[0]),
        "versions": {name: metadata.version(name) for name in ("keras", "jax", "torch", "tensorflow-cpu")},
        "date": datetime.date.today().isoformat(),
    }


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one process and its children took."""

    seconds: float
    cpu_seconds: float
    host_bytes: int
    """The most memory that one of the processes had."""

    first_answer_seconds: float | None
    longest_silence_seconds: float
    """Between two lines on stderr, before the first and after the last."""


_FIGURES = ("seconds", "cpu_seconds", "host_bytes", "first_answer_seconds", "longest_silence_seconds")


def run_reference(backend: str) -> Run:
    """Run the fixed computation in a fresh process."""
    return _watch([sys.executable, "-c", REFERENCE], _environment(backend), show=False)


def _run(words: Sequence[str], backend: str, source: Path, cache: Path, *, show: bool = False) -> Run:
    environment = _environment(backend) | {"FITROOM_CACHE_DIR": str(cache), "PYTHONPATH": str(source)}
    return _watch([sys.executable, "-m", "fitroom", *words], environment, show=show, stop_at=_stop_of(words))


def _stop_of(words: Sequence[str]) -> Callable[[dict[str, Any]], bool] | None:
    """When a training has shown what is measured: as its first batch begins. On a CPU the batch itself takes longer."""
    return (lambda event: event.get("event") == "began") if words[0] == "train" else None


def _environment(backend: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FITROOM_", "PYTHONPATH"))}
    return kept | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}


def _watch(
    command: Sequence[str],
    environment: dict[str, str],
    *,
    show: bool,
    stop_at: Callable[[dict[str, Any]], bool] | None = None,
) -> Run:
    """Run a command to its end, or until a JSON line on stdout is what `stop_at` waits for."""
    began = time.perf_counter()
    stdout = subprocess.PIPE if stop_at else subprocess.DEVNULL
    words = [*command, "--json"] if stop_at else list(command)
    process = subprocess.Popen(words, env=environment, stdout=stdout, stderr=subprocess.PIPE)
    if stop_at:
        threading.Thread(target=_stop, args=(process, stop_at), daemon=True).start()
    times, first, said = [0.0], None, []
    for line in _chunks(process.stderr):
        now = time.perf_counter() - began
        times.append(now)
        said.append(line)
        if first is None and FIRST_ANSWER in line:
            first = now
        if show:
            print(f"{now:7.2f}  {line.rstrip()}", file=sys.stderr)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode and not stop_at:
        raise SystemExit(f"{' '.join(words)} failed with {process.returncode}:\n{''.join(said)}")
    times.append(seconds)
    return Run(
        seconds=seconds,
        cpu_seconds=used.ru_utime + used.ru_stime,
        host_bytes=used.ru_maxrss * 1024,
        first_answer_seconds=first,
        longest_silence_seconds=max(later - earlier for earlier, later in itertools.pairwise(times)),
    )


def _chunks(stream: Any) -> Iterator[str]:
    while line := stream.readline():
        yield line.decode(errors="replace")


def _stop(process: Any, stop_at: Callable[[dict[str, Any]], bool]) -> None:
    for line in process.stdout:
        if line.startswith(b"{") and stop_at(json.loads(line)):
            process.terminate()
            return


_CLASSIFIER = """
import sys, keras, numpy as np
keras.utils.set_random_seed(1)
keras.applications.Xception(weights=None, classes=5, input_shape=(299, 299, 3)).save(sys.argv[1])
keras.utils.save_img(sys.argv[2], np.random.default_rng(0).uniform(0, 255, (299, 299, 3)))
"""


def _prepare(case: Case, folder: Path) -> None:
    """Make the files that a case reads."""
    model, image = folder / f"classifier-{case.backend}.keras", folder / f"image-{case.backend}.jpg"
    if "predict" in case.words and not model.exists():
        program = [sys.executable, "-c", _CLASSIFIER, str(model), str(image)]
        subprocess.run(program, env=_environment(case.backend), check=True, capture_output=True)


def _median(values: Sequence[float | None]) -> Any:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _round(value: float) -> float:
    return value if isinstance(value, int) else round(value, 2)


def _quote(word: str, folder: Path) -> str:
    word = word.replace(f"{folder}/", "")
    return f"'{word}'" if " " in word else word


def _commit(source: Path) -> str:
    command = ["git", "-C", str(source if source.exists() else ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
