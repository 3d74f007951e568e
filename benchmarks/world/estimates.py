"""Estimate the configurations of the corpus without a card: which can be estimated, which are refused and why.

    python benchmarks/world/estimates.py jax                   # or torch, tensorflow-graph, tensorflow-jit
    python benchmarks/world/estimates.py torch --only "dilated,bert" --again --to FILE

Adds a line a configuration and mode to results/world_predicted.jsonl, for an H200; what has one is not estimated again
without `--again`. Processes estimate a few configurations each, one after another, `--jobs` of them side by side: one
that crashes or takes too long costs itself alone, and TensorFlow does not give back the memory of graphs.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from world.child import ANSWER, Child
from world.corpus import CONFIGURATIONS, FIRST, MODES, Configuration, by_name

RESULT = Path(__file__).parents[1] / "results" / "world_predicted.jsonl"
GPU = "H200"
MOST_SECONDS = 420
MOST_OF_ONE_PROCESS = 6


def main() -> None:
    """Estimate what has no line yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--only", default="", help="configurations or families that hold one of these words")
    parser.add_argument("--again", action="store_true", help="anew what has a line")
    parser.add_argument("--first", action="store_true", help="one configuration of each family")
    parser.add_argument("--to", type=Path, default=RESULT)
    parser.add_argument("--jobs", type=int, default=1, help="so many side by side")
    parser.add_argument("--debug", action="store_true", help="in this process, with tracebacks")
    parser.add_argument("--serve", action="store_true", help="in this process, what stdin names")
    arguments = parser.parse_args()
    mode = arguments.mode
    start_backend(mode)
    if arguments.serve:
        for name in sys.stdin:
            print(ANSWER + json.dumps(estimated(by_name(name.strip()), mode)), flush=True)
        return
    known = {(line["name"], line["mode"]) for line in read_lines(arguments.to)}
    todo: queue.SimpleQueue[Configuration] = queue.SimpleQueue()
    for each in chosen(arguments.only):
        if (arguments.again or (each.name, mode) not in known) and (each in FIRST or not arguments.first):
            todo.put(each)
    if arguments.debug:
        _work(todo, arguments.to, mode, lambda each: estimated(each, mode, debug=True))
        return
    with ThreadPoolExecutor(arguments.jobs) as pool:
        workers = [pool.submit(_work, todo, arguments.to, mode, _Children(mode).ask) for _ in range(arguments.jobs)]
        for worker in workers:
            worker.result()


def _work(
    todo: "queue.SimpleQueue[Configuration]", file: Path, mode: str, ask: Callable[[Configuration], dict[str, Any]]
) -> None:
    """Estimate what is left of the queue."""
    with contextlib.suppress(queue.Empty):
        while each := todo.get_nowait():
            line = {"name": each.name, "mode": mode, "family": each.family, "half": each.half}
            write_line(file, line | ask(each))


class _Children:
    """Processes, one after another, that estimate a few configurations each."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._child: Child | None = None
        self._num_asked = 0

    def ask(self, configuration: Configuration) -> dict[str, Any]:
        """What came of one configuration."""
        if self._child is None:
            self._child = Child([__file__, self._mode, "--serve"], os.environ)
        found = self._child.ask(configuration.name, MOST_SECONDS + 60)
        self._num_asked += 1
        if not self._child.is_alive or self._num_asked % MOST_OF_ONE_PROCESS == 0:
            self._child.end()
            self._child = None
        return found


def start_backend(mode: str) -> None:
    """Set what the frameworks read at their start."""
    os.environ |= {"KERAS_BACKEND": mode.partition("-")[0], "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}


def chosen(words: str) -> list[Configuration]:
    """The configurations whose name or family holds one of the words, one of each family before all others."""
    found = [each for each in CONFIGURATIONS if any(word in f"{each.name} {each.family}" for word in words.split(","))]
    return sorted(found, key=lambda each: each not in FIRST)


def estimated(configuration: Configuration, mode: str, *, debug: bool = False) -> dict[str, Any]:
    """What came of one configuration."""
    import keras

    import fitroom
    from fitroom.input_sizes import known_sizes

    started = time.perf_counter()
    keras.utils.clear_session()
    try:
        with time_limit(MOST_SECONDS):
            model = configuration.load()
            if configuration.optimizer or configuration.loss:
                configuration.compile(model)
            with known_sizes(sequence_length=configuration.sequence_length):
                found = fitroom.estimate(
                    model,
                    configuration.batch_size,
                    gpu=GPU,
                    input_shape=configuration.input_shape,
                    recipe=fitroom.Recipe(
                        jit={"tensorflow-jit": True, "tensorflow-graph": False}.get(mode),
                        image_size=configuration.image_size,
                    ),
                )
    except fitroom.FitroomError as error:
        if debug:
            traceback.print_exc()
        return {"refused": str(error), "kind": type(error).__name__, "seconds": seconds_since(started)}
    except BaseException as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"crashed": f"{type(error).__name__}: {str(error)[:300]}", "seconds": seconds_since(started)}
    return {
        "batch_size": configuration.batch_size,
        "peak_bytes": found.peak_bytes,
        "required_bytes": found.required_bytes,
        "method": found.method,
        "precision": found.precision,
        "share_with_layer": round(1 - found.timeline.by_layer().get("(no layer)", 0) / max(found.peak_bytes, 1), 4),
        "seconds": seconds_since(started),
        "notes": [note for note in found.notes if not note.startswith(("The model leaves", "Not compiled"))],
        "versions": dict(found.versions),
        "date": time.strftime("%Y-%m-%d"),
    }


def seconds_since(started: float) -> float:
    """Seconds, rounded."""
    return round(time.perf_counter() - started, 1)


class TooLongError(BaseException):
    """It took longer than it may; no Exception, which frameworks and we take for failures of a model."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooLongError in the block after some seconds."""

    def stop(*_: object) -> None:
        raise TooLongError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a result, the last one of each configuration and mode; none where there is no file."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return list({(line["name"], line["mode"]): line for line in lines}.values())


def write_line(file: Path, line: dict[str, Any]) -> None:
    """Replace the line of a configuration and mode, in the order of the corpus; other processes write others."""
    import fcntl

    with Path(tempfile.gettempdir(), f"{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = {(each["name"], each["mode"]): each for each in read_lines(file)} | {(line["name"], line["mode"]): line}
        in_order = [
            kept[each.name, mode]
            for each in CONFIGURATIONS
            for mode in (*MODES, "tensorflow")
            if (each.name, mode) in kept
        ]
        beside = file.with_suffix(".new")
        beside.write_text("".join(json.dumps(each) + "\n" for each in in_order))
        beside.rename(file)
    said = line.get("refused") or line.get("crashed")
    peak_bytes = line.get("peak_bytes")
    said = said or ("not counted" if peak_bytes is None else f"{peak_bytes:,}")
    print(f"{line['name']:32} {line.get('seconds', 0):6.1f} s  {said}", flush=True)


if __name__ == "__main__":
    main()
