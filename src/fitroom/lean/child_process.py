"""Work in a process and on a backend of its own, away from the card: a job goes in, an answer comes out, as JSON."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fitroom.errors import FitroomError

_ANSWER = "answer.json"


def run_in_child(
    module: str, job: dict[str, Any], *, backend: str, what: str, hint: str | None = None
) -> dict[str, Any]:
    """Run `python -m module JOB` and return its answer; an error of the child is raised here.

    Args:
        module: A module of fitroom that ends in `answer_job(...)`.
        job: What it is to do.
        backend: The backend of Keras there.
        what: The work in words, for the error of a child that ends without an answer.
        hint: What to try then.
    """
    environment = os.environ | {
        "KERAS_BACKEND": backend,
        "CUDA_VISIBLE_DEVICES": "",  # the card is left to training; kernels of the CPU are the same everywhere
        "JAX_PLATFORMS": "cpu",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    with tempfile.TemporaryDirectory(prefix="fitroom-lean-") as work:
        place = Path(work) / "job.json"
        place.write_text(json.dumps(job))
        done = subprocess.run(
            [sys.executable, "-m", module, str(place)],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if not (Path(work) / _ANSWER).exists():
            said = [line for line in done.stderr.splitlines() if line.strip()]
            reason = said[-1] if said else f"the process ended with exit code {done.returncode}"
            if missing := re.match(r"ModuleNotFoundError: No module named '([\w.]+)'", reason):
                hint = f"pip install {missing[1].split('.')[0]}"
            raise FitroomError(f"{what} failed: {reason}", hint=hint)
        answer: dict[str, Any] = json.loads((Path(work) / _ANSWER).read_text())
    if "error" in answer:
        raise FitroomError(answer["error"], hint=answer["hint"])
    return answer


def answer_job(work: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """In the child: do the work, and leave the answer or the error beside the job."""
    place = Path(sys.argv[1])
    try:
        answer = work(json.loads(place.read_text()))
    except FitroomError as error:
        answer = {"error": error.message, "hint": error.hint}
    place.with_name(_ANSWER).write_text(json.dumps(answer))
