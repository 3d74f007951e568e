"""Dirty images end to end: `train` uses or skips every file, with a reason, and `predict` has an answer for each."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from faults.command import Hangs, fitroom, place, unforeseen
from faults.outcome import Outcome
from sample_pictures import bad, good_but_odd

COUNT = 100


def train_on_dirt(folder: Path, backend: str, seed: int, outcome: Outcome, *, count: int = COUNT) -> None:
    """A training on good images and so many dirty ones."""
    place(folder)
    chance = random.Random(f"dirt-{seed}")
    images = folder / f"dirty-{seed}"
    shutil.rmtree(images, ignore_errors=True)
    shutil.copytree(folder / "pictures", images)
    for number in range(count):
        name, data = dirt(chance)
        label = chance.choice(("red", "green", "blue"))
        with open(os.fsencode(images / label) + b"/" + f"{number}-".encode() + name, "wb") as file:
            file.write(data)
    os.mkfifo(images / "red" / "pipe.jpg")
    (images / "red" / "device.jpg").symlink_to("/dev/zero")
    total = sum(len(files) for _, _, files in os.walk(images))
    flags = ("--model", "tiny.py:make_model", "--image-size", "32", "--batch-size", "16", "--epochs", "1")
    run = folder / f"dirty-run-{backend}-{seed}"
    what = f"{count} dirty images, seed {seed}, on {backend}"
    try:
        done = fitroom(folder, "train", images.name, *flags, "--run-dir", str(run), backend=backend)
        problem = _problem(done, run, total)
        if problem is None:
            asked = fitroom(folder, "predict", str(run), images.name, "--json", backend=backend)
            answers = json.loads(asked.stdout)["predictions"] if asked.returncode == 0 else []
            problem = unforeseen(asked) or (None if len(answers) == total else f"{len(answers)} answers for {total}")
    except Hangs as error:
        problem = str(error)
    outcome.add(what, problem, count=count)
    shutil.rmtree(images, ignore_errors=True)


def dirt(chance: random.Random) -> tuple[bytes, bytes]:
    """Name and content of a file that is odd, broken, or was damaged at random."""
    odd = [(name.encode(), data) for name, data in good_but_odd().items()]
    broken = [(name.encode(), data) for name, (data, _) in bad().items()]
    name, data = chance.choice(odd + broken)
    way = chance.choice(("as it is", "cut", "flipped", "no text"))
    if way == "cut":
        data = data[: chance.randrange(len(data) + 1)]
    elif way == "flipped" and data:
        changed = bytearray(data)
        for _ in range(chance.choice((1, 5, 50))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        data = bytes(changed)
    elif way == "no text":
        name = b"\xff\xe9" + name
    return name, data


def _problem(done: Any, run: Path, total: int) -> str | None:
    if strange := unforeseen(done):
        return strange
    if done.returncode:
        return f"exit {done.returncode}: {done.stderr[-400:]}"
    job = json.loads((run / "job.json").read_text())
    skipped = [json.loads(line) for line in (run / "skipped.jsonl").read_text().splitlines()]
    used = sum(sum(counts.values()) for counts in job["data"]["counts"].values())
    if used + len(skipped) != total:
        return f"{used} used and {len(skipped)} skipped of {total}"
    return None if all(one["reason"] for one in skipped) else "a file was skipped without a reason"
