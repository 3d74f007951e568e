"""How far estimates of a model were from what its steps took on a card, kept for later estimates and plans there.

One small file for each model and way of training, in the cache folder: pairs of a predicted and a measured peak. A
later estimate of the same model is multiplied by what the nearest pair says. The key holds all that an estimate
depends on but sizes: the layers and variables of the model, card, backend, precision, method, versions, and those knobs
of the recipe that change what kind of step it is. So another version of anything starts without corrections.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fitroom.environment import corrections_folder
from fitroom.files.durable import read_json, write_json
from fitroom.memory.cache import digest
from fitroom.memory.estimate import Estimate
from fitroom.recipe import Recipe
from fitroom.version import __version__

_FARTHEST = 4.0
"""An estimate is corrected by a step whose predicted peak is at most so many times larger or smaller: within one kind
of step an error is a share of the peak, as long as the same arrays are the large ones."""

_LARGEST_SHARE = 0.5
"""A measured peak that is further off is taken for a mistake: something else was on the card."""

_SAME_SIZE = 0.02
_MOST_STEPS, _MOST_FILES, _LARGEST_BYTES = 8, 500, 64 * 1024
_SUFFIX = ".json"


@dataclass(frozen=True, kw_only=True)
class MeasuredStep:
    """One step whose peak was predicted and measured."""

    predicted_bytes: int
    measured_bytes: int

    @property
    def share(self) -> float:
        """How much more than predicted it took, as a share; negative for less.

        >>> MeasuredStep(predicted_bytes=1000, measured_bytes=1012).share
        0.012
        """
        return round(self.measured_bytes / self.predicted_bytes - 1, 6)

    def distance(self, predicted_bytes: int) -> float:
        """How many times larger or smaller another predicted peak is."""
        return max(predicted_bytes / self.predicted_bytes, self.predicted_bytes / max(predicted_bytes, 1))


def correction_key(estimate: Estimate, place: str) -> str:
    """Return the name under which measured steps like the one of an estimate are kept.

    `place` says where they are measured: the name of the card, or of an allocator of the host that counts.
    """
    recipe = estimate.recipe
    facts = (
        *(str(estimate.layers_digest), place, estimate.backend, estimate.precision, estimate.predicted_by),
        *(str(estimate.training), _kernels_of(recipe), str(recipe.recomputes)),
        *(str(recipe.keras_accumulation), str(recipe.input_dtype), (recipe.optimizer or "").lower()),
        *(f"{name} {version}" for name, version in sorted(estimate.versions.items())),
        f"fitroom {__version__}",
    )
    return digest("correction", *facts)[:32]


def _kernels_of(recipe: Recipe) -> str:
    dropout = ", fused attention dropout" if recipe.attention_dropout == "fused" else ""
    return (recipe.kernels or "keras") + dropout


def load_steps(key: str) -> tuple[list[MeasuredStep], str | None]:
    """Return the measured steps of a key, and a sentence where their file is there and cannot be read."""
    folder = corrections_folder()
    if folder is None:
        return [], None
    path = folder / (key + _SUFFIX)
    try:
        data = read_json(path, largest_bytes=_LARGEST_BYTES)
        return [_read_step(each) for each in data["steps"]], None
    except FileNotFoundError:
        return [], None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        said = str(error) or type(error).__name__
        return [], f"The file of measured steps {path} cannot be read and was ignored ({said}); it can be deleted."


def store_step(key: str, step: MeasuredStep, *, model: str) -> bool:
    """Keep a measured step in place of one of the same size. Returns whether it is kept; a full disk is no error."""
    folder = corrections_folder()
    if folder is None or step.measured_bytes <= 0 or abs(step.share) > _LARGEST_SHARE:
        return False
    known, _ = load_steps(key)
    others = [each for each in known if each.distance(step.predicted_bytes) > 1 + _SAME_SIZE]
    steps = [*others[-(_MOST_STEPS - 1) :], step]
    if steps == known:
        return True
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _make_room(folder)
        write_json(folder / (key + _SUFFIX), {"model": model, "steps": [vars(each) for each in steps]})
    except OSError:
        return False
    return True


def correct(estimate: Estimate, key: str) -> Estimate:
    """Return an estimate multiplied by what the nearest measured step of its key says, with a note; else as it is.

    What is required gets smaller by a step of the same size alone: that one of another size took less than predicted is
    no proof that this one does.
    """
    steps, damage = load_steps(key)
    if damage:
        estimate = replace(estimate, notes=(*estimate.notes, damage))
    nearest = min(steps, key=lambda each: each.distance(estimate.peak_bytes), default=None)
    if nearest is None or nearest.distance(estimate.peak_bytes) > _FARTHEST:
        return estimate
    peak_bytes = round(estimate.peak_bytes * (1 + nearest.share))
    added_bytes = peak_bytes - estimate.peak_bytes
    if nearest.distance(estimate.peak_bytes) > 1 + _SAME_SIZE:
        added_bytes = max(0, added_bytes)
    return replace(
        estimate,
        peak_bytes=peak_bytes,
        required_bytes=max(estimate.required_bytes + added_bytes, peak_bytes),
        device_bytes=max(estimate.device_bytes + added_bytes, peak_bytes),
        timeline=estimate.timeline.with_peak(peak_bytes),
        uncorrected_bytes=estimate.peak_bytes,
        notes=(*estimate.notes, f"Corrected by a measured step: {100 * nearest.share:+.1f} %."),
    )


def corrections_stamp() -> str:
    """A digest of all that is kept: an answer that was cached before another step was measured is out of date."""
    folder = corrections_folder()
    found = hashlib.sha256()
    for path in _files(folder) if folder else ():
        found.update(f"{path.name} {path.stat().st_mtime_ns}\n".encode())
    return found.hexdigest()


def _read_step(data: Any) -> MeasuredStep:
    predicted_bytes, measured_bytes = data["predicted_bytes"], data["measured_bytes"]
    if not all(isinstance(size, int) and size > 0 for size in (predicted_bytes, measured_bytes)):
        raise ValueError("sizes must be positive whole numbers")
    step = MeasuredStep(predicted_bytes=predicted_bytes, measured_bytes=measured_bytes)
    if abs(step.share) > _LARGEST_SHARE:
        raise ValueError(f"a step {step.share:+.0%} from its prediction")
    return step


def _make_room(folder: Path) -> None:
    """Remove the oldest files where there are too many."""
    found = _files(folder)
    oldest = sorted(found, key=lambda path: path.stat().st_mtime_ns)
    for path in oldest[: max(0, len(found) - _MOST_FILES + 1)]:
        path.unlink(missing_ok=True)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX)
    except OSError:
        return []
