"""Kill a training with SIGKILL at random moments until it is done; what comes of it."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from processes import hide_tensorflow

SCRIPT = Path(__file__).with_name("killed_run.py")


def trained(
    folder: Path, backend: str, *, kills: int = 0, seed: int = 0, script: Path = SCRIPT
) -> tuple[dict[str, Any], int]:
    """The result of a script in `folder`, and how often it was really killed on the way.

    A kill comes at a random moment of the first second after training began (imports are not worth killing); when as
    many as asked were done, or the training is, it is left alone.
    """
    environment = os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
    if backend != "tensorflow":
        environment = hide_tensorflow(environment)
    moments = random.Random(seed)
    done = 0
    while True:
        child = subprocess.Popen(
            [sys.executable, str(script), str(folder)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        first = child.stdout.readline()
        if done < kills:
            assert first.strip() == "begun", child.communicate()[1][-3000:]
            time.sleep(moments.uniform(0.0, 1.2))
            if child.poll() is None:
                child.kill()
                child.communicate()
                done += 1
                continue
        said, errors = child.communicate()
        results = [line for line in said.splitlines() if line.startswith("RESULT ")]
        assert results, errors[-3000:]
        found: dict[str, Any] = json.loads(results[-1][7:])
        return found, done
