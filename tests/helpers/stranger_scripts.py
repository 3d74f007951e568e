"""The scripts of scripts/ that nobody wrote for fitroom, and how to run them plain, served, and short of memory.

Each prints its losses as JSON on its last line. The patterns are those of Keras's documentation.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pressure import limited
from processes import hide_tensorflow
from ready_process import run_forked

FOLDER = Path(__file__).with_name("scripts")
ALL = ("tensorflow", "jax", "torch")


@dataclass(frozen=True, kw_only=True)
class Script:
    """One script, and what is to be expected of it."""

    name: str
    kind: str
    backends: tuple[str, ...] = ALL
    limit_mb: int
    """Of TensorFlow's allocator on the CPU: plain dies of it."""

    uncut: str | None = None
    """Why its batches cannot be cut, in words of the error; None: they can, and served it survives the limit."""

    needs_tensorflow: bool = True
    """Whether Keras may use it on other backends, too, as layers that prepare data do."""

    unordered: tuple[str, ...] = ()
    """Backends on which Keras itself gives the batches in another order, so that losses cannot be compared."""

    @property
    def path(self) -> Path:
        """Its file."""
        return FOLDER / f"{self.name}.py"


ROUNDING = 2e-6
"""The largest relative difference of two losses that is taken for rounding, after a few updates.

No script has a bias before BatchNormalization together with Adam: the gradient of such a bias is nothing but rounding,
of which Adam makes whole steps (7e-5 in the validation loss of image_folder, where the training loss differed by 1e-6).
"""

OWN_STEP = "the model brings its own `train_step`"
COUPLES = "couples the samples of a batch"
OWN_LOSS = "the model brings its own `compute_loss`"

SCRIPTS = (
    Script(name="own_train_step", kind="own train_step, one optimizer", limit_mb=40, uncut=OWN_STEP),
    Script(name="gan", kind="GAN, two optimizers", backends=("tensorflow", "torch"), limit_mb=32, uncut=OWN_STEP),
    Script(name="vae", kind="variational autoencoder, no y", limit_mb=40, uncut=OWN_STEP, needs_tensorflow=False),
    Script(name="segmentation", kind="U-Net, a class per pixel, PyDataset", limit_mb=70),
    Script(name="distillation", kind="teacher and student, own compute_loss", limit_mb=45, uncut=OWN_LOSS),
    Script(name="text_transformer", kind="transformer with a mask", limit_mb=25),
    Script(name="image_folder", kind="folder of images, augmentation in the model", limit_mb=70),
    Script(name="several_inputs", kind="inputs and outputs by name, weights", limit_mb=24),
    Script(name="tf_keras", kind="import tensorflow first, tf.keras", backends=("tensorflow",), limit_mb=60),
    Script(name="super_resolution", kind="sub-pixel net of any size, generator", limit_mb=66),
    Script(name="time_series", kind="LSTM, callbacks, evaluate and predict", limit_mb=20),
    Script(name="two_phases", kind="subclassed, fine-tuned, train_on_batch", limit_mb=18),
    Script(
        name="contrastive", kind="add_loss over the whole batch", limit_mb=55, uncut="couples the samples of a batch"
    ),
    Script(name="steps_per_execution", kind="several steps in one call", backends=("tensorflow", "jax"), limit_mb=7),
    # Where Keras looks at a batch to build the model, its workers go on with the next, and leave that one for the end.
    Script(name="workers", kind="PyDataset with workers, weights", limit_mb=18, unordered=("jax", "torch")),
    Script(name="weights_callback", kind="callback that reads and sets weights", limit_mb=25),
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one run of a script."""

    exit_code: int
    losses: dict[str, Any] | None
    stderr: str

    @property
    def ran_out(self) -> bool:
        """Whether it ended because memory did."""
        return self.exit_code != 0 and ("ResourceExhaustedError" in self.stderr or "OOM when" in self.stderr)


def run_script(
    script: Script, backend: str, *, served: bool, limit_mb: int | None = None, forks: bool = False
) -> Outcome:
    """Run it as it stands, or under `fitroom run`, in a process of its own; one that is forked starts at once."""
    environment = limited(limit_mb) if limit_mb else os.environ | {"TF_ENABLE_ONEDNN_OPTS": "0"}
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    environment |= {"KERAS_BACKEND": backend, **quiet}
    if backend != "tensorflow" and not script.needs_tensorflow:
        environment = hide_tensorflow(environment)
    words = [*(["-m", "fitroom", "run"] if served else []), str(script.path)]
    if forks:
        also = backend != "tensorflow" and script.needs_tensorflow
        done = run_forked(*words, backend=backend, with_tensorflow=also, cwd=Path.cwd(), env=environment)
    else:
        done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=900)
    lines = done.stdout.splitlines()
    losses = json.loads(lines[-1]) if done.returncode == 0 and lines and lines[-1].startswith("{") else None
    stderr = done.stderr.replace(f"{FOLDER.parents[2]}{os.sep}", "")  # results name no place on this machine
    return Outcome(exit_code=done.returncode, losses=losses, stderr=stderr)


def largest_difference(first: Any, second: Any) -> float:
    """Between numbers at the same place of two structures, relative to them; infinite where the structures differ.

    >>> largest_difference({"loss": [1.0, 2.0]}, {"loss": [1.0, 2.5]})
    0.2
    """
    if isinstance(first, dict) and isinstance(second, dict):
        if first.keys() != second.keys():
            return math.inf
        return max((largest_difference(first[key], second[key]) for key in first), default=0.0)
    if isinstance(first, list) and isinstance(second, list):
        if len(first) != len(second):
            return math.inf
        return max((largest_difference(*pair) for pair in zip(first, second, strict=True)), default=0.0)
    if first == second:
        return 0.0
    difference = abs(first - second) / max(abs(first), abs(second))
    return math.inf if math.isnan(difference) else difference


def compare(script: Script, backend: str, *, forks: bool = False) -> dict[str, Any]:
    """Whether it prints the same losses plain and served; a traceback's end where it does not run."""
    plain, served = (run_script(script, backend, served=one, forks=forks) for one in (False, True))
    if plain.losses is None:
        return {"losses": "plain fails", "error": plain.stderr[-600:]}
    if served.losses is None:
        return {"losses": "served fails", "error": served.stderr[-600:]}
    if "without being served" in served.stderr:
        return {"losses": "not served", "error": served.stderr[-600:]}
    if backend in script.unordered:
        return {"losses": "order not fixed"}
    difference = largest_difference(plain.losses, served.losses)
    if difference > ROUNDING:
        return {"losses": "differ", "difference": difference, "plain": plain.losses, "served": served.losses}
    return {"losses": "equal" if difference == 0 else "rounding", "difference": difference}


def survival(script: Script) -> dict[str, Any]:
    """What the limit does to it on TensorFlow, plain and served."""
    plain, served = (run_script(script, "tensorflow", served=one, limit_mb=script.limit_mb) for one in (False, True))
    found: dict[str, Any] = {"limit_mb": script.limit_mb, "plain": "dies" if plain.ran_out else "lives"}
    lines = served.stderr.splitlines()
    if served.exit_code == 0:
        cut = [line for line in lines if "out of memory in" in line]
        return found | {"served": "survives", "said": cut[-1] if cut else "nothing"}
    why = [line for line in lines if script.uncut is not None and script.uncut in line]
    return found | ({"served": "says why", "said": why[-1]} if why else {"served": "dies", "said": lines[-8:]})
