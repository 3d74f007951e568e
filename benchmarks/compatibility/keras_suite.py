"""Keras's own tests of training, plain and served by fitroom: what passes plain and fails served?

    python benchmarks/compatibility/keras_suite.py                        # writes results/keras_suite.json
    python benchmarks/compatibility/keras_suite.py --backend jax -k fit   # some of it; prints, writes nothing

The tests are those that the installed Keras has. They are copied to a folder of their own, with one change: their
models are `keras.Model`s, as users' are (keras_suite_plugin.py). Each test is compared with itself, unserved.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "keras_suite.json"
BACKENDS = ("tensorflow", "jax", "torch")
FOLDERS = ("trainers", "callbacks")
FILES = (
    "backend/tensorflow/distribute_test.py",
    "backend/jax/distribution_lib_test.py",
    "backend/jax/trainer_test.py",
)

PRIVATE: dict[str, str] = {
    "test_fit_eval_flow_for_jax_model_weights": (
        "It asserts that Keras takes the values away from a model's variables during `fit`. Served, they stay: a step "
        "that runs out of memory must find them."
    ),
}
"""Tests that look at Keras's private state, by name, each with the reason why it differs when served."""

_CHANGES = (
    (re.compile(r"class (\w+)\(Trainer, layers\.Layer\)"), r"class \1(Trainer)"),
    (re.compile(r"class (\w+)\(Trainer, (layers\.\w+)\)"), r"class \1(\2, Trainer)"),
    (
        re.compile(r"from keras\.src\.backend\.\w+\.trainer import \w+Trainer as Trainer"),
        "from keras_suite_plugin import Trainer",
    ),
    (
        re.compile(r"from keras\.src\.backend\.\w+\.trainer import \(\s*\w+Trainer as Trainer,\s*\)"),
        "from keras_suite_plugin import Trainer",
    ),
)


def copy_tests(to: Path) -> None:
    """Copy Keras's tests of training, with models that are `keras.Model`s."""
    spec = importlib.util.find_spec("keras")
    assert spec is not None
    source = Path(str(spec.origin)).parent / "src"
    found = [path for folder in FOLDERS for path in sorted((source / folder).glob("*_test.py"))]
    for path in [*found, *(source / name for name in FILES)]:
        text = path.read_text()
        for pattern, replacement in _CHANGES:
            text = pattern.sub(replacement, text)
        copy = to / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text)


def run(tests: Path, backend: str, *, served: bool, only: str | None) -> tuple[dict[str, str], list[dict]]:
    """The outcome of each test, by its name, and the calls that were served or left to Keras."""
    work = tests.parent
    report, calls = work / "report.xml", work / "calls.json"
    for path in (report, calls):
        path.unlink(missing_ok=True)
    environment = os.environ | {
        "KERAS_BACKEND": backend,
        "FITROOM_SUITE": "served" if served else "plain",
        "FITROOM_SUITE_CALLS": str(calls),
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[1] / "src"), os.environ.get("PYTHONPATH", "")]),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    environment.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")  # for tests of several devices
    command = [sys.executable, "-m", "pytest", "-q", "-p", "keras_suite_plugin", "-p", "no:cacheprovider"]
    command += [
        "--import-mode=importlib",
        f"--junitxml={report}",
        "--rootdir",
        str(work),
        "--tb=short",
        "--continue-on-collection-errors",
    ]
    command += ["-k", only] if only else []
    with (work / f"{backend}-{'served' if served else 'plain'}.log").open("w") as log:
        subprocess.run([*command, str(tests)], env=environment, cwd=work, check=False, stdout=log, stderr=log)
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        outcomes[f"{case.get('classname')}::{case.get('name')}"] = outcome
    return outcomes, json.loads(calls.read_text()) if calls.exists() else []


def main() -> int:
    """Run, compare, report; 1 where a test fails served that passes plain and is not in PRIVATE."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", choices=BACKENDS)
    parser.add_argument("-k", dest="only", help="as pytest's -k")
    parser.add_argument("--logs", type=Path, help="a folder to keep the tests' copies and pytest's output in")
    parser.add_argument("--copies", action="store_true", help="the copies are there: on a machine whose Keras has none")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file to write")
    options = parser.parse_args()
    rows, broken = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        work = (options.logs or Path(scratch)).resolve()
        tests = work / "tests"
        tests.mkdir(parents=True, exist_ok=True)
        if not options.copies:
            copy_tests(tests)
        for backend in options.backend or BACKENDS:
            plain, _ = run(tests, backend, served=False, only=options.only)
            served, calls = run(tests, backend, served=True, only=options.only)
            lost = sorted(name for name, outcome in plain.items() if outcome == "passed" != served.get(name))
            private = {name: PRIVATE[name.split("::")[-1]] for name in lost if name.split("::")[-1] in PRIVATE}
            new = [name for name in lost if name not in private]
            broken += len(new)
            row = {
                "backend": backend,
                "date": str(datetime.date.today()),
                "versions": _versions(),
                "plain": dict(Counter(plain.values())),
                "served": dict(Counter(served.values())),
                "fails_served": new,
                "private_state": private,
                "calls": sorted(calls, key=lambda call: (call["method"], str(call["left_to_keras"]))),
            }
            rows.append(row)
            print(f"{backend}: plain {row['plain']}, served {row['served']}; {len(new)} fail served")
            for name in new:
                print(f"  {name}")
    if not options.only:
        others = json.loads(options.results.read_text()) if options.results.exists() else []
        ran = {row["backend"] for row in rows}
        rows += [row for row in others if row["backend"] not in ran]
        options.results.write_text(json.dumps(sorted(rows, key=lambda row: row["backend"]), indent=1) + "\n")
        print(f"wrote {options.results}")
    return 1 if broken else 0


def _versions() -> dict[str, str]:
    found = {}
    for name in ("keras", "jax", "tensorflow-cpu", "tensorflow", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
