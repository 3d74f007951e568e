"""The options of `fitroom train`, as they are stored in `job.json` and compared when a run is resumed."""

import math
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fitroom.data.settings import check_shares
from fitroom.data.split import Fold
from fitroom.errors import InputError, UnknownNameError
from fitroom.files.field_types import check_fields
from fitroom.keras_model.loading.function import is_function
from fitroom.planning.request import ALLOWABLE, KEEPABLE, parse_knobs
from fitroom.recipe import PRECISIONS
from fitroom.units import parse_bytes

AUTO = "auto"
IMAGENET, NO_WEIGHTS, OWN_WEIGHTS = "imagenet", "none", "its own"

MAY_CHANGE = (
    *("budget", "gpu", "micro_batch", "keep", "allow", "prefer"),
    *("workers", "cache", "cache_limit", "run_dir", "devices"),
)
"""Options that may change when a run is resumed: they affect the result by rounding and batch statistics at most."""

_KINDS: dict[str, Any] = {
    **dict.fromkeys(("folder", "model", "precision", "optimizer", "prefer", "resize", "cache_limit", "run_dir"), str),
    **dict.fromkeys(("backend", "budget", "gpu", "weights", "class_weight", "cache", "fold", "devices"), (str, None)),
    **dict.fromkeys(("epochs", "batch_size", "seed"), int),
    **dict.fromkeys(("micro_batch", "unfreeze_after", "early_stopping", "workers"), (int, None)),
    **dict.fromkeys(("label_smoothing", "validation", "test"), float),
    **dict.fromkeys(("freeze", "augment", "strict", "unsafe"), bool),
    "image_size": (int, str, None),
    "learning_rate": (float, None),
    "jit": (bool, None),
    "keep": list,
    "allow": list,
}
"""The types of each option in JSON."""

_WORDS: dict[str, tuple[str | None, ...]] = {
    "resize": ("crop", "pad", "stretch"),
    "cache": (None, "ram", "disk"),
    "class_weight": (None, "balanced"),
    "prefer": ("whole-batches", "speed"),
}
_AT_LEAST_1 = ("epochs", "batch_size", "image_size", "micro_batch", "unfreeze_after", "early_stopping", "workers")


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of one training. None: fitroom chooses, and says what."""

    folder: str
    """A folder per class, `train/ val/ test/` above it, or a CSV file of path,label."""

    model: str = "xception"
    epochs: int = 10
    batch_size: int = 32
    image_size: int | Literal["auto"] | None = None
    """"auto": the model's own size, or a smaller one where nothing else fits."""

    backend: str | None = None
    precision: str = AUTO
    optimizer: str = "adam"
    learning_rate: float | None = None
    budget: str | None = None
    gpu: str | None = None
    micro_batch: int | None = None
    keep: tuple[str, ...] = ()
    """Knobs that the planner does not change. `keep`, `allow` and `prefer` are those of `fitroom.plan`."""

    allow: tuple[str, ...] = ()
    prefer: str = "whole-batches"
    jit: bool | None = None
    weights: str | None = None
    """"imagenet", "none" or a file; None: ImageNet for a model of keras.applications, else the model's own weights."""

    freeze: bool = False
    unfreeze_after: int | None = None
    """After how many epochs of training only the head all layers are trained."""

    label_smoothing: float = 0.0
    early_stopping: int | None = None
    """After how many epochs without improvement to stop."""

    class_weight: Literal["balanced"] | None = None
    augment: bool = True
    resize: Literal["crop", "pad", "stretch"] = "crop"
    validation: float = 0.2
    test: float = 0.0
    fold: str | None = None
    """Which of several folds is validation, "2/5"; None: a share of the images is."""

    seed: int = 0
    cache: Literal["ram", "disk"] | None = None
    cache_limit: str = "4GiB"
    strict: bool = False
    workers: int | None = None
    devices: str | None = None
    """Several devices, as `fitroom.devices` takes them; None for one."""

    unsafe: bool = False
    run_dir: str

    def __post_init__(self) -> None:
        if self.precision not in (AUTO, *PRECISIONS):
            raise UnknownNameError(
                "precision", self.precision, (AUTO, *PRECISIONS), more=f"known are: {AUTO}, {', '.join(PRECISIONS)}"
            )
        for name, known in _WORDS.items():
            if getattr(self, name) not in known:
                words = ", ".join(map(str, filter(None, known)))
                raise InputError(f"`{name}` must be one of {words}. Received: {getattr(self, name)!r}.")
        for name, known in (("keep", KEEPABLE), ("allow", ALLOWABLE)):
            knobs = parse_knobs(name, getattr(self, name), known)
            object.__setattr__(self, name, tuple(sorted(knob.replace("_", "-") for knob in knobs)))
        if self.fold is not None:
            Fold.parse(self.fold)
        check_shares(self.validation, self.test)
        parse_bytes(self.cache_limit)
        if self.learning_rate is not None and not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(
                f"--learning-rate must be a finite number above 0. Received: {self.learning_rate}.",
                hint="such as 0.001",
            )
        if self.unfreeze_after is not None and self.unfreeze_after >= self.epochs:
            raise InputError(
                f"--unfreeze-after must be less than --epochs. "
                f"Received: --unfreeze-after {self.unfreeze_after}, --epochs {self.epochs}.",
                hint="give more --epochs; or --freeze, which trains only the head to the end",
            )

    @property
    def freezes(self) -> bool:
        """Whether only the head is trained, at first or to the end."""
        return self.freeze or self.unfreeze_after is not None

    @property
    def own_precision(self) -> str | None:
        """The precision that was asked for; None where the planner may choose."""
        if self.precision != AUTO:
            return self.precision
        return "float32" if "precision" in self.keep else None

    @property
    def pixels(self) -> int | None:
        """The image size that was asked for; None for the model's own."""
        return self.image_size if isinstance(self.image_size, int) else None

    @property
    def may_resize(self) -> bool:
        """Whether the planner may make images smaller."""
        return self.image_size == AUTO or "image-size" in self.allow

    def to_dict(self) -> dict[str, Any]:
        """The options as plain values, for JSON."""
        return asdict(self)


def check_stored_options(options: Any) -> None:
    """Raise ValueError for options in a file that `to_dict` cannot have written."""
    check_fields(options, {"folder": str, "run_dir": str})
    if unknown := [name for name in options if name not in _KINDS]:
        raise ValueError(f"unknown option {unknown[0][:80]!r}")
    check_fields(options, {name: _KINDS[name] for name in options})
    for name in _AT_LEAST_1:
        value = options.get(name)
        if isinstance(value, int) and value < 1:
            raise ValueError(f"`{name}` must be at least 1; it is {value}")
    TrainOptions(**options)  # checks the values


def find_code(options: dict[str, Any]) -> list[tuple[str, str]]:
    """The user's code that a training runs: the flags that name it, and a description for people.

    >>> find_code({"model": "net.py:make_model", "unsafe": False})[0][0]
    '--model net.py:make_model'
    """
    found = []
    model = str(options.get("model", "")).strip()
    if is_function(model):
        place, _, name = model.rpartition(":")
        words = f"the function {name} of {Path(place).resolve()}" if place.endswith(".py") else f"the function {model}"
        found.append((f"--model {shlex.quote(model)}", words))
    if options.get("unsafe"):
        found.append(("--unsafe", f"code stored in the model {model}, such as a Lambda layer"))
    return found


def resume_command(folder: Path | str, options: dict[str, Any]) -> str:
    """The command that resumes a run. It names the user's code, which is never taken from a run folder alone."""
    flags = [flag for flag, _ in find_code(options)]
    return " ".join(["fitroom train --resume --run-dir", shlex.quote(str(folder)), *flags])


def difference(stored: dict[str, Any], now: dict[str, Any]) -> str | None:
    """How two trainings differ, as flags; None where one can resume the other.

    >>> difference({"batch_size": 64, "workers": 2}, {"batch_size": 32, "workers": 4})
    'it was started with --batch-size 64; now it is --batch-size 32'
    """
    names = [name for name in now if name not in MAY_CHANGE and stored.get(name, now[name]) != now[name]]
    if "backend" in names and now["backend"] is None:  # a run stays on the backend that it was started on
        names.remove("backend")
    if not names:
        return None
    before = ", ".join(flag(name, stored.get(name)) for name in names)
    return f"it was started with {before}; now it is {', '.join(flag(name, now[name]) for name in names)}"


def flag(name: str, value: Any) -> str:
    """An option as it is typed on the command line.

    >>> flag("batch_size", 64), flag("augment", False), flag("weights", None), flag("folder", "flowers")
    ('--batch-size 64', '--no-augment', 'no --weights', 'flowers')
    """
    if name == "folder":
        return str(value)
    typed = f"--{name.replace('_', '-')}"
    if value is None:
        return f"no {typed}"
    if name == "backend":  # KERAS_BACKEND may have set it
        return f"the {value} backend"
    if isinstance(value, bool):
        without = f"--no-{name.replace('_', '-')}" if name in ("augment", "jit") else f"no {typed}"
        return typed if value else without
    return f"{typed} {value}"
