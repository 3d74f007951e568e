"""Hostile folders and `.keras` files: nothing in them is run, waited for, written through, or takes all the memory."""

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults.command import Hangs, fitroom, place, unforeseen
from faults.killing import _reference
from faults.outcome import Outcome

MARK = "code-was-run"
EVIL = f"open({MARK!r}, 'w').close()\n\ndef make_model(classes=3, image_size=32):\n    raise SystemExit\n"
MOST_BYTES = 3 * 2**30
"""Of memory that a command may take to look at a file."""


def attack_runs(folder: Path, backend: str, seed: int, outcome: Outcome) -> None:
    """Run folders of a stranger's, resumed, predicted with and reported on."""
    place(folder)
    _reference(folder, backend)
    for name, attack in ATTACKS.items():
        run = folder / f"hostile-{seed}"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(folder / f"undisturbed-{backend}", run)
        (folder / MARK).unlink(missing_ok=True)
        (folder / "precious.txt").write_text("precious")
        (run / "results.json").unlink()  # so that there is something left to do
        attack(run)
        # The user trusts the model that they began with, and nothing else that the folder may ask for.
        named = [] if name in RUNS_CODE else ["--model", "tiny.py:make_model"]
        for command in (["train", "--resume", "--run-dir", run.name, *named], ["report", run.name]):
            _try(folder, command, backend, f"{name}: {command[0]}", outcome)


def attack_models(folder: Path, backend: str, seed: int, outcome: Outcome) -> None:
    """`.keras` files, random mutations of a good one and bombs, given to `predict`."""
    place(folder)
    _reference(folder, backend)
    good = folder / f"undisturbed-{backend}" / "model.keras"
    chance = random.Random(f"hostile-{seed}")
    for name, attack in MODELS.items():
        (folder / MARK).unlink(missing_ok=True)
        (folder / "precious.txt").write_text("precious")
        file = folder / f"hostile-{seed}.keras"
        attack(good, file, chance)
        _try(folder, ["predict", file.name, "pictures/red/00.jpg"], backend, name, outcome)


def _try(folder: Path, command: list[str], backend: str, what: str, outcome: Outcome) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    try:
        done = fitroom(folder, *command, backend=backend)
    except Hangs as error:
        outcome.add(what, str(error))
        return
    problem = unforeseen(done)
    if done.returncode not in (0, 1):
        problem = f"exit {done.returncode}: {done.stderr[-300:]}"
    if (folder / MARK).exists():
        problem = "it ran code"
    if (folder / "precious.txt").read_text() != "precious":
        problem = "a file elsewhere was changed"
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    if most > max(MOST_BYTES, before * 1024):
        problem = f"it took {most / 2**30:.1f} GiB of memory"
    outcome.add(what, problem)


def _change(run: Path, name: str, change: Callable[[dict[str, Any]], Any]) -> None:
    kept = json.loads((run / name).read_text())
    kept.pop("sha256", None)
    change(kept)
    (run / name).write_text(json.dumps(kept))


def _option(name: str, value: Any) -> Callable[[Path], None]:
    return lambda run: _change(run, "job.json", lambda job: job["options"].update({name: value}))


def _code_beside(model: str) -> Callable[[Path], None]:
    def attack(run: Path) -> None:
        (run / "evil.py").write_text(EVIL)
        (run.parent / "evil_module.py").write_text(EVIL)
        _option("model", model.format(run=run))(run)

    return attack


def _link(name: str) -> Callable[[Path], None]:
    def attack(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(run.parent / "precious.txt")

    return attack


def _pipe(name: str) -> Callable[[Path], None]:
    def attack(run: Path) -> None:
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)

    return attack


def _unsafe(run: Path) -> None:
    _with_lambda(run / "model.keras", run / "evil.keras", random.Random(0))
    _change(run, "job.json", lambda job: job["options"].update({"model": str(run / "evil.keras"), "unsafe": True}))


def _deep(name: str) -> Callable[[Path], None]:
    def attack(run: Path) -> None:
        (run / name).write_text("[" * 10**6)

    return attack


ATTACKS: dict[str, Callable[[Path], None]] = {
    "a function of a file": _code_beside("{run}/evil.py:make_model"),
    "a function with spaces around": _code_beside(" {run}/evil.py:make_model\n"),
    "a function of a module": _code_beside("evil_module:make_model"),
    "a Lambda layer, unsafe": _unsafe,
    "a backend that is a path": lambda run: _change(run, "job.json", lambda job: job.update(backend="../evil")),
    "a precision that is a config": lambda run: _change(
        run, "job.json", lambda job: job.update(precision={"policy": {"module": "evil_module"}, "why": ""})
    ),
    "an optimizer that is none": _option("optimizer", "__class__"),
    "weights that are a pipe": _option("weights", "/dev/stdin"),
    **{f"a link: {name}": _link(name) for name in ("lock", "log.jsonl", "readings.jsonl", ".run.json.partial")},
    **{f"a pipe: {name}": _pipe(name) for name in ("run.json", "job.json", "history.json", "log.jsonl", "lock")},
    **{f"nested: {name}": _deep(name) for name in ("run.json", "job.json", "history.json", "plan.json")},
}


RUNS_CODE = (
    *("a function of a file", "a function with spaces around", "a function of a module"),
    "a Lambda layer, unsafe",
)


def _members(good: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(good) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _write(file: Path, members: dict[str, bytes], way: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file, "w", way) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def _bomb(member: str) -> Callable[[Path, Path, random.Random], None]:
    def attack(good: Path, file: Path, chance: random.Random) -> None:
        members = _members(good)
        members.pop(member, None)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
            with archive.open(member, "w", force_zip64=True) as written:
                for _ in range(64):
                    written.write(bytes(2**26))

    return attack


def _with_config(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path, Path, random.Random], None]:
    def attack(good: Path, file: Path, chance: random.Random) -> None:
        members = _members(good)
        config = json.loads(members["config.json"])
        change(config)
        _write(file, members | {"config.json": json.dumps(config).encode()})

    return attack


def _with_lambda(good: Path, file: Path, chance: random.Random) -> None:
    """A real Lambda layer, made by Keras in another process."""
    make = (
        "import keras, sys\n"
        "x = keras.Input((32, 32, 3))\n"
        f"y = keras.layers.Lambda(lambda t: [open({MARK!r}, 'w').close(), t][1], output_shape=(32, 32, 3))(x)\n"
        "keras.Model(x, keras.layers.Dense(3)(keras.layers.GlobalAveragePooling2D()(y))).save(sys.argv[1])\n"
    )
    own = os.environ | {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", make, str(file)], cwd="/", env=own, capture_output=True, timeout=240)
    Path("/", MARK).unlink(missing_ok=True)


def _mutated(good: Path, file: Path, chance: random.Random) -> None:
    data = bytearray(good.read_bytes())
    for _ in range(chance.choice((1, 4, 30))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    file.write_bytes(data[: chance.choice((len(data), chance.randrange(len(data))))])


def _empty(good: Path, file: Path, chance: random.Random) -> None:
    file.write_bytes(b"")


MODELS: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "a bomb of a config": _bomb("config.json"),
    "bomb of weights": _bomb("model.weights.h5"),
    "a bomb of assets": _bomb("assets/vocabulary.txt"),
    "a Lambda layer": _with_lambda,
    "a class of a module": _with_config(lambda config: config.update(module="evil_module", class_name="Evil")),
    "a function of the system": _with_config(lambda config: config.update(module="os", class_name="system")),
    "a config that is a list": lambda good, file, chance: _write(file, _members(good) | {"config.json": b"[]"}),
    "a config without end": lambda good, file, chance: _write(file, _members(good) | {"config.json": b"[" * 10**6}),
    "a layer of 2**40 units": _with_config(lambda config: config["config"]["layers"][-1]["config"].update(units=2**40)),
    "an empty file": _empty,
    **{f"a mutation, {number}": _mutated for number in range(6)},
}
