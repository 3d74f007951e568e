"""What `fitroom train` was asked for, as it is kept in `job.json` and compared when a run goes on."""

import math
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from fitroom.errors import InputError, UnknownNameError
from fitroom.files.field_types import check_fields
from fitroom.keras_model.loading.function import is_function
from fitroom.planning.request import ALLOWABLE, KEEPABLE, parse_knobs
from fitroom.recipe import PRECISIONS

AUTO = "auto"
IMAGENET, NO_WEIGHTS, OWN_WEIGHTS = "imagenet", "none", "its own"

MAY_CHANGE = (
    *("budget", "gpu", "micro_batch", "keep", "allow", "prefer"),
    *("workers", "cache", "cache_limit", "run_dir"),
)
"""What may be another when a run goes on: none of it changes what is learnt but by rounding and batch statistics."""

_KINDS: dict[str, Any] = {
    **dict.fromkeys(("folder", "model", "precision", "optimizer", "prefer", "resize", "cache_limit", "run_dir"), str),
    **dict.fromkeys(("backend", "budget", "gpu", "weights", "class_weight", "cache"), (str, None)),
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
"""What JSON holds of each option."""

_WORDS: dict[str, tuple[str | None, ...]] = {
    "resize": ("crop", "pad", "stretch"),
    "cache": (None, "ram", "disk"),
    "class_weight": (None, "balanced"),
    "prefer": ("whole-batches", "speed"),
}
_AT_LEAST_1 = ("epochs", "batch_size", "image_size", "micro_batch", "unfreeze_after", "early_stopping", "workers")


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """A training of a classifier on a folder of pictures. None means: as fitroom chooses, and says."""

    folder: str
    """A folder per class, `train/ val/ test/` above it, or a CSV file of path,label."""

    model: str = "xception"
    epochs: int = 10
    batch_size: int = 32
    image_size: int | Literal["auto"] | None = None
    """"auto": the model's own, and smaller ones where nothing else fits."""

    backend: str | None = None
    precision: str = AUTO
    optimizer: str = "adam"
    learning_rate: float | None = None
    budget: str | None = None
    gpu: str | None = None
    micro_batch: int | None = None
    keep: tuple[str, ...] = ()
    """Knobs that the planner leaves alone; likewise `allow` and `prefer` are those of `fitroom.plan`."""

    allow: tuple[str, ...] = ()
    prefer: str = "whole-batches"
    jit: bool | None = None
    weights: str | None = None
    """"imagenet", "none" or a file; None: ImageNet's for a ready-made model, its own for any other."""

    freeze: bool = False
    unfreeze_after: int | None = None
    """After how many epochs of the head alone the rest is trained too."""

    label_smoothing: float = 0.0
    early_stopping: int | None = None
    """After how many epochs without a better one to stop."""

    class_weight: Literal["balanced"] | None = None
    augment: bool = True
    resize: Literal["crop", "pad", "stretch"] = "crop"
    validation: float = 0.2
    test: float = 0.0
    seed: int = 0
    cache: Literal["ram", "disk"] | None = None
    cache_limit: str = "4GiB"
    strict: bool = False
    workers: int | None = None
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
        if self.learning_rate is not None and not math.isfinite(self.learning_rate):
            raise InputError(
                f"--learning-rate must be a finite number. Received: {self.learning_rate}.", hint="such as 0.001"
            )
        if self.unfreeze_after is not None and self.unfreeze_after >= self.epochs:
            raise InputError(
                f"--unfreeze-after must come before the end. "
                f"Received: --unfreeze-after {self.unfreeze_after}, --epochs {self.epochs}.",
                hint="more --epochs; or --freeze alone, which trains the head to the end",
            )

    @property
    def freezes(self) -> bool:
        """Whether the head is trained alone, at first or to the end."""
        return self.freeze or self.unfreeze_after is not None

    @property
    def own_precision(self) -> str | None:
        """The one that was asked for; None where the planner may choose."""
        if self.precision != AUTO:
            return self.precision
        return "float32" if "precision" in self.keep else None

    @property
    def pixels(self) -> int | None:
        """Height and width that were asked for; None for the model's own."""
        return self.image_size if isinstance(self.image_size, int) else None

    @property
    def may_resize(self) -> bool:
        """Whether pictures may be smaller than they were to be."""
        return self.image_size == AUTO or "image-size" in self.allow

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def check_kept(options: Any) -> None:
    """Raise ValueError where what a file says of a training cannot have been written by `to_dict`."""
    check_fields(options, {"folder": str, "run_dir": str})
    if unknown := [name for name in options if name not in _KINDS]:
        raise ValueError(f"the option {unknown[0][:80]!r} is not known")
    check_fields(options, {name: _KINDS[name] for name in options})
    for name in _AT_LEAST_1:
        value = options.get(name)
        if isinstance(value, int) and value < 1:
            raise ValueError(f"`{name}` must be at least 1; it is {value}")
    TrainOptions(**options)  # which knows the words of each


def code_of(options: dict[str, Any]) -> list[tuple[str, str]]:
    """What a training runs as code beside fitroom's and Keras's own: the flags that name it, and words for people.

    >>> code_of({"model": "net.py:make_model", "unsafe": False})[0][0]
    '--model net.py:make_model'
    """
    found = []
    model = str(options.get("model", "")).strip()
    if is_function(model):
        place, _, name = model.rpartition(":")
        words = f"the function {name} of {Path(place).resolve()}" if place.endswith(".py") else f"the function {model}"
        found.append((f"--model {shlex.quote(model)}", words))
    if options.get("unsafe"):
        found.append(("--unsafe", f"the code within the model {model}, as a Lambda layer has it"))
    return found


def resume_command(folder: Path | str, options: dict[str, Any]) -> str:
    """What is typed to resume a run: with what it runs as code, which no run folder may ask for by itself."""
    flags = [flag for flag, _ in code_of(options)]
    return " ".join(["fitroom train --resume --run-dir", shlex.quote(str(folder)), *flags])


def difference(kept: dict[str, Any], now: dict[str, Any]) -> str | None:
    """What makes two trainings different, as flags; None where one can go on with the other.

    >>> difference({"batch_size": 64, "workers": 2}, {"batch_size": 32, "workers": 4})
    'it was begun with --batch-size 64; now it is --batch-size 32'
    """
    names = [name for name in now if name not in MAY_CHANGE and kept.get(name, now[name]) != now[name]]
    if "backend" in names and now["backend"] is None:  # a run stays on the one that it was begun on
        names.remove("backend")
    if not names:
        return None
    before = ", ".join(flag(name, kept.get(name)) for name in names)
    return f"it was begun with {before}; now it is {', '.join(flag(name, now[name]) for name in names)}"


def flag(name: str, value: Any) -> str:
    """An option as it is typed.

    >>> flag("batch_size", 64), flag("augment", False), flag("weights", None), flag("folder", "flowers")
    ('--batch-size 64', '--no-augment', 'no --weights', 'flowers')
    """
    if name == "folder":
        return str(value)
    typed = f"--{name.replace('_', '-')}"
    if value is None:
        return f"no {typed}"
    if name == "backend":  # KERAS_BACKEND may have said it
        return f"the {value} backend"
    if isinstance(value, bool):
        without = f"--no-{name.replace('_', '-')}" if name in ("augment", "jit") else f"no {typed}"
        return typed if value else without
    return f"{typed} {value}"
