"""How many times as long as the ideal each kind of work takes, from steps that were timed on a card.

    python benchmarks/speed_factors.py

Reads the lines with seconds of results/speed.jsonl and results/remat.jsonl, writes the factors to
src/fitroom/planning/roofline/factors.json, and how good they are to results/speed_factors.json.

The seconds of a step are a sum of what it is made of, each times a factor. The factors are those that are off by the
least on the whole, relative to what was measured, none below zero; where measurements are few they stay near one factor
for all. How good they are is told by leaving out all lines of one model, fitting the rest, and predicting those.
"""

import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.stats import spearmanr

from fitroom.planning.roofline.factors import CLASSES, FEATURES

HERE = Path(__file__).parent
RESULTS = HERE / "results"
FACTORS = HERE.parent / "src" / "fitroom" / "planning" / "roofline" / "factors.json"
SIZES = {"Xception": 299, "InceptionV3": 299}
"""Pictures of the others are of 224 pixels."""
LAUNCH_SECONDS, STEP_SECONDS, GENTLE_PULL = 5e-6, 1e-3, 0.01
"""What a launch and a step take besides, where nothing says otherwise."""
PULL = 0.1
"""How much a factor twice that of all work counts, or twice that of the other precisions: as one measurement that is
off by a tenth."""
STRONG_PULL = 1.0
"""Of a matrix product towards a convolution: they run on the same units, and no model here has many of the first."""
WEAK_PULL = 0.003
"""Of wide depthwise convolutions towards the rest: they are far from it."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One step that was timed."""

    mode: str
    model: str
    precision: str
    batch_size: int
    seconds: float
    ideal: Any
    """What the step is made of."""

    @property
    def row(self) -> Any:
        """The same with a place for each class of precision."""
        row = np.zeros((len(CLASSES), len(self.ideal)))
        row[int(self.precision != "float32")] = self.ideal
        return row.ravel()


def main() -> None:
    """Fit, tell, write."""
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    lines = read([Path(file) for file in sys.argv[1:]] or [RESULTS / "speed.jsonl", RESULTS / "remat.jsonl"])
    modes: dict[str, Any] = {}
    quality: dict[str, Any] = {}
    for mode in sorted({line.mode for line in lines}):
        of_mode = [line for line in lines if line.mode == mode]
        found = fitted(of_mode)
        modes[mode] = {
            name: {feature: float(f"{value:.3g}") for feature, value in zip(FEATURES, values, strict=True)}
            for name, values in zip(CLASSES, found, strict=True)
        }
        quality[mode] = told(of_mode, found)
        print(mode, json.dumps(quality[mode], indent=1))
    note = " ".join(__doc__.split("\n\n")[-1].split())
    FACTORS.write_text(json.dumps({"note": note, "modes": modes, "measured": quality}, indent=1) + "\n")
    (RESULTS / "speed_factors.json").write_text(json.dumps(quality, indent=1) + "\n")


def read(files: Sequence[Path]) -> list[Line]:
    """All lines that were timed, with what their steps are made of."""
    from fitroom.backends.keras_remat import resident_bytes
    from fitroom.estimating.cards import find_card
    from fitroom.models.source import ModelSource, load_model
    from fitroom.planning.roofline.factors import mode_of
    from fitroom.planning.roofline.step_time import StepTime
    from fitroom.recipe import Recipe
    from fitroom.remat.choice import Choice
    from fitroom.remat.value import Remat

    by_model = defaultdict(list)
    for file in files:
        for text in file.read_text().splitlines() if file.exists() else ():
            data = json.loads(text)
            if data["what"] == "measure" and data.get("seconds") and not data.get("out_of_memory"):
                by_model[data["model"], data["precision"]].append(data)
    lines = []
    for (name, precision), found in by_model.items():
        size = SIZES.get(name, 224)
        model = load_model(ModelSource(text=name, image_size=size, precision=precision))
        model.compile("adam", "sparse_categorical_crossentropy")
        choice = Choice.of_model(model)
        for data in found:
            step_time = StepTime.of_model(model, backend=data["backend"], card=find_card(data["gpu"]))
            batch_size, micro_batch = data["batch_size"], data["micro_batch"] or data["batch_size"]
            at_once = Recipe(micro_batch=micro_batch).samples_at_once(batch_size)
            remat = data["remat"] if data["remat"] in ("none", "blocks") else Remat(budget=data["remat"])
            cover = choice.cover(remat, at_once, resident_bytes(model, at_once))
            assert step_time is not None
            ideal = step_time.ideal(
                batch_size=batch_size, micro_batch=micro_batch, precision=precision, segments=cover.segments
            )
            lines.append(
                Line(
                    mode=mode_of(data["backend"], bool(data["jit"])),
                    model=name,
                    precision=precision,
                    batch_size=batch_size,
                    seconds=data["seconds"],
                    ideal=ideal,
                )
            )
    return lines


def fitted(lines: Sequence[Line]) -> Any:
    """The factors, one row a class of precision."""
    rows = [line.row / line.seconds for line in lines]
    wanted = [1.0] * len(lines)
    shared = as_if_alike(lines)
    places = np.eye(len(CLASSES) * len(FEATURES)).reshape(len(CLASSES), len(FEATURES), -1)
    for place, feature in enumerate(FEATURES):
        weak = WEAK_PULL if feature == "wide depthwise" else PULL
        for own in places:
            if feature == "matrix":
                rows.append(STRONG_PULL * (own[place] - own[FEATURES.index("convolution")]) / shared[place])
                wanted.append(0)
            else:
                rows.append(weak * own[place] / shared[place])
                wanted.append(weak)
        rows.append(weak * (places[0][place] - places[1][place]) / shared[place])
        wanted.append(0)
    return nnls(np.array(rows), np.array(wanted))[0].reshape(len(CLASSES), len(FEATURES))


def as_if_alike(lines: Sequence[Line]) -> Any:
    """The factors if there were one for all work, one for launches and one for steps."""
    rows = [[line.ideal[:-2].sum(), *line.ideal[-2:]] / np.array(line.seconds) for line in lines]
    usual = [[0, GENTLE_PULL / LAUNCH_SECONDS, 0], [0, 0, GENTLE_PULL / STEP_SECONDS]]
    work, launch, step = nnls(np.array([*rows, *usual]), np.array([1.0] * len(lines) + [GENTLE_PULL] * 2))[0]
    return np.array([work] * (len(FEATURES) - 2) + [launch, step])


def told(lines: Sequence[Line], factors: Any) -> dict[str, Any]:
    """How good the factors are: of all lines, and of those of models that were left out."""
    left_out: dict[int, float] = {}
    models = sorted({line.model for line in lines})
    for model in models:
        rest = [line for line in lines if line.model != model]
        if rest:
            others = fitted(rest).ravel()
            left_out |= {id(line): float(line.row @ others) for line in lines if line.model == model}
    inside = {id(line): float(line.row @ factors.ravel()) for line in lines}
    return {
        "lines": len(lines),
        "models": models,
        "fitted": agreement(lines, inside),
        "left_out": agreement(lines, left_out) if left_out else None,
        "by_model": {
            model: agreement([line for line in lines if line.model == model], left_out or inside) for model in models
        },
    }


def agreement(lines: Sequence[Line], predicted: dict[int, float]) -> dict[str, Any]:
    """Rank correlation of samples a second, and how far the seconds are off."""
    measured = [line.batch_size / line.seconds for line in lines]
    told = [line.batch_size / predicted[id(line)] for line in lines]
    errors = [abs(predicted[id(line)] / line.seconds - 1) for line in lines]
    return {
        "lines": len(lines),
        "rank_correlation": round(float(spearmanr(measured, told).statistic), 3) if len(lines) > 2 else None,
        "median_relative_error": round(statistics.median(errors), 3),
        "worst_relative_error": round(max(errors), 3),
    }


if __name__ == "__main__":
    main()
