"""Many measurements in one visit to a card: those that are timed have it to themselves, the others share it.

    python benchmarks/harness/visit.py VISIT.json --out FOLDER [--python tensorflow=/path/to/python]

A visit is a list of phases, one after another: `{"name", "workers", "until", "tasks"}`. A phase starts no task later
than `until`, in seconds from the start of the visit; with "cores", such as "5-15", its tasks have those only, and the
one whose turn it is has the others (see turns.py). A task is a command line of a script in benchmarks/; or
`{"command": ...}` with, where need be, "gib" (of the card: it waits until there is room), "seconds" (after which it is
killed), "python" (a name of `--python`), "environment", and "kernels": "choose" to leave XLA's choice of kernels to
those that say "take" (see kernels.py). `{out}` stands for FOLDER. What a task prints is in FOLDER/logs, when it came to
its end in FOLDER/visit.log.

to_measure.json is such a visit, of what is missing. Its plans are to be in FOLDER/plans: `measure/plan.py make --to`
puts them there, on any machine.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.card_queue import Room
from harness.kernels import chosen_into, put_together, taken_from

BENCHMARKS = Path(__file__).parents[1]
GIB = 2**30
ROOM_BYTES = 134 * GIB
"""Of a card of 140: each process takes some beside its allocator."""


def main() -> None:
    """Go through the phases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("visit", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="an interpreter for tasks")
    parser.add_argument("--room", type=float, default=ROOM_BYTES / GIB, help="GiB of the card to use at once")
    arguments = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in arguments.python)
    visit = Visit(arguments.out.resolve(), pythons, Room(int(arguments.room * GIB)))
    for phase in json.loads(arguments.visit.read_text()):
        visit.go_through(phase)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One process."""

    command: str
    number: int
    gib: float = 16.7
    seconds: float = 200
    python: str = "own"
    kernels: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, given: str | dict[str, Any], number: int) -> Self:
        """As it stands in a phase, by its number there."""
        return cls(number=number, **({"command": given} if isinstance(given, str) else given))


class Visit:
    """One stretch of time with a card."""

    def __init__(self, out: Path, pythons: dict[str, str], room: Room) -> None:
        self._out, self._pythons, self._room = out, pythons, room
        self._begun = time.monotonic()
        self._telling = threading.Lock()
        for folder in ("logs", "kernels"):
            (out / folder).mkdir(parents=True, exist_ok=True)

    def go_through(self, phase: dict[str, Any]) -> None:
        """Do its tasks, as many at once as it has workers."""
        tasks = [Task.of(each, number) for number, each in enumerate(phase["tasks"])]
        self._tell(f"phase {phase['name']}: {len(tasks)} tasks")
        with ThreadPoolExecutor(phase["workers"]) as pool:
            for future in [pool.submit(self._do, task, phase) for task in tasks]:
                future.result()
        self._put_kernels_together()

    def _do(self, task: Task, phase: dict[str, Any]) -> None:
        if self._seconds > phase["until"]:
            self._tell(f"left out: {task.command}")
            return
        begun = self._seconds
        ended = self._room.run(int(task.gib * GIB), lambda: self._run(task, phase))
        self._tell(f"{ended} after {self._seconds - begun:.0f} s: {task.command}")

    def _run(self, task: Task, phase: dict[str, Any]) -> str:
        on_cores = ["taskset", "-c", phase["cores"]] if "cores" in phase else []
        script, *words = shlex.split(task.command.replace("{out}", str(self._out)))
        environment = {name: value.replace("{out}", str(self._out)) for name, value in task.environment.items()}
        with (self._out / "logs" / f"{phase['name']}-{task.number}.log").open("w") as log:
            process = subprocess.Popen(
                [*on_cores, self._pythons.get(task.python, sys.executable), str(BENCHMARKS / script), *words],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._with_kernels(os.environ | environment, task, phase["name"]),
                start_new_session=True,  # to end it with its children
            )
            try:
                return f"exit code {process.wait(task.seconds)}"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "killed"

    def _with_kernels(self, environment: dict[str, str], task: Task, phase: str) -> dict[str, str]:
        folder = self._out / "kernels"
        more = {
            "choose": chosen_into(folder / f"{task.python}-{phase}-{task.number}.txt"),
            "take": taken_from(folder / f"{task.python}.txt"),
        }
        flags = f"{environment.get('XLA_FLAGS', '')} {more.get(task.kernels, '')}".strip()
        return environment | {"XLA_FLAGS": flags}

    def _put_kernels_together(self) -> None:
        folder = self._out / "kernels"
        for of_xla in {file.name.split("-")[0] for file in folder.glob("*-*.txt")}:
            number = put_together(sorted(folder.glob(f"{of_xla}-*.txt")), folder / f"{of_xla}.txt")
            self._tell(f"{number} kernels of {of_xla}")

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._begun

    def _tell(self, text: str) -> None:
        with self._telling, (self._out / "visit.log").open("a") as log:
            for file in (log, sys.stdout):
                print(f"{self._seconds:7.1f} {text}", file=file, flush=True)


if __name__ == "__main__":
    main()
