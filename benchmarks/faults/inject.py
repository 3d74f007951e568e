"""Runs a command or a script with one fault in it: at the n-th time that a point is reached, a kill or an I/O error.

    FAULT='{"point": "fsync", "number": 3, "what": "kill"}' python inject.py fitroom train flowers/
    FAULT='{"point": "replace", "number": 1, "what": "EIO"}' python inject.py script.py RUN_DIR

Points of the system: fsync, replace, unlink, open (of a file to be written). Points of fitroom: scan (of one image),
save (of a model), evaluate, export, report, checkpoint. "kill" ends the process as a power cut would, before the call;
"kill after" after it. Any other word is an error of the system by its name.
"""

import builtins
import errno
import importlib
import importlib.abc
import importlib.util
import json
import os
import runpy
import signal
import sys
from collections.abc import Callable
from typing import Any

FAULT = json.loads(os.environ.get("FAULT", "null"))
LIVES = {
    "scan": ("fitroom.data.scan", "look_at"),
    "evaluate": ("fitroom.classify.evaluation", "evaluate"),
    "export": ("fitroom.classify.evaluation", "publish"),
    "report": ("fitroom.report.run.report", "write_report"),
    "checkpoint": ("fitroom.runs.checkpoint", "_write_one"),
    "save": ("fitroom.files.durable", "_save"),
}
_reached = 0


def at_the_point(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with the fault in it."""

    def faulty(*arguments: Any, **options: Any) -> Any:
        global _reached
        _reached += 1
        is_due = _reached == FAULT["number"]
        if is_due and "mark" in FAULT:  # a fault that was not reached is no try
            os.close(os.open(FAULT["mark"], os.O_CREAT | os.O_WRONLY, 0o644))
        if is_due and FAULT["what"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif is_due and FAULT["what"] != "kill after":
            number = getattr(errno, FAULT["what"])
            raise OSError(number, os.strerror(number))
        found = call(*arguments, **options)
        if is_due:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return faulty


class Finder(importlib.abc.MetaPathFinder):
    """Puts the fault into a module of fitroom's when it is imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """As Python asks; its own finders do the work."""
        module, function = LIVES[FAULT["point"]]
        if name != module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_and_change(loaded: Any) -> None:
            run(loaded)
            setattr(loaded, function, at_the_point(getattr(loaded, function)))

        spec.loader.exec_module = run_and_change  # type: ignore[assignment, method-assign]
        return spec


def install() -> None:
    """Put the fault where it was asked for."""
    if not FAULT:
        return
    point = FAULT["point"]
    if point in LIVES:
        sys.meta_path.insert(0, Finder())
    elif point == "open":
        opened, faulty = builtins.open, at_the_point(builtins.open)

        def only_writing(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            is_ours = set(mode) & set("wxa") and isinstance(file, str | os.PathLike) and FAULT["within"] in str(file)
            return (faulty if is_ours else opened)(file, mode, *arguments, **options)

        builtins.open = only_writing
    else:
        setattr(os, point, at_the_point(getattr(os, point)))


if __name__ == "__main__":
    install()
    del sys.argv[0]
    if sys.argv[0] == "fitroom":
        runpy.run_module("fitroom", run_name="__main__", alter_sys=False)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
        runpy.run_path(sys.argv[0], run_name="__main__")
