"""How many times as long as the ideal each kind of work takes, from steps that were timed on a card.

    python benchmarks/predict/speed_factors.py

Reads the steps that were timed from results/{speed,speed_first,remat,fit,plan,kernels}.jsonl, writes the factors to
src/fitroom/planning/roofline/factors.json, and how good they are to results/speed_factors.json.

The seconds of a step are a sum of what it is made of, each times a factor. The factors are those that are off by the
least on the whole, relative to what was measured, none below zero; where measurements are few they stay near one factor
for all. How good they are is told by leaving out all lines of one model, fitting the rest, and predicting those. That
flatters a little: the kinds of work, that operations and bytes are added, and how near factors stay were chosen with
these figures in view, and wide depthwise convolutions became a kind because of the one model here that has them. In a
precision without lines of its own a mode has the factors of the other.
"""

import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parents[1]))
from fitroom.planning.roofline.step_time import CLASSES, FEATURES, OVERLAPPING
from measure.plan import BATCH_SIZE, remat_of

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
FACTORS = HERE.parents[1] / "src" / "fitroom" / "planning" / "roofline" / "factors.json"
FILES = ("speed.jsonl", "speed_first.jsonl", "remat.jsonl", "fit.jsonl", "plan.jsonl", "kernels.jsonl")
SIZES = {"Xception": 299, "InceptionV3": 299}
"""Pictures of the others are of 224 pixels."""
LIKE = {"tensorflow-jit": "jax"}
"""The same compiler makes their programs."""
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
    device_seconds: float | None
    """The part of them that kernels took on the card, where that was measured."""

    ideal: Any
    """What the step is made of."""

    @property
    def is_half(self) -> bool:
        """Whether its class of precision is the second."""
        return self.precision != "float32"

    @property
    def row(self) -> Any:
        """The same with a place for each class of precision."""
        row = np.zeros((len(CLASSES), len(self.ideal)))
        row[int(self.is_half)] = self.ideal
        return row.ravel()


def main() -> None:
    """Fit, tell, write."""
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    lines = [line for group in grouped_by_model().values() for line in read(group)]
    modes: dict[str, Any] = {}
    quality: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for mode in sorted({line.mode for line in lines}):
        of_mode = [line for line in lines if line.mode == mode]
        like = found.get(LIKE.get(mode, ""))
        found[mode] = fitted_apart(of_mode) if mode in OVERLAPPING else fitted(of_mode, like)
        modes[mode] = {
            name: {feature: float(f"{value:.3g}") for feature, value in zip(FEATURES, values, strict=True)}
            for name, values in zip(CLASSES, found[mode], strict=True)
        }
        quality[mode] = told(of_mode, found[mode], like, fit=fitted_apart if mode in OVERLAPPING else fitted)
        print(mode, json.dumps(quality[mode], indent=1))
    note = " ".join(__doc__.split("\n\n")[-1].split())
    FACTORS.write_text(json.dumps({"note": note, "modes": modes, "measured": quality}, indent=1) + "\n")
    (RESULTS / "speed_factors.json").write_text(json.dumps(quality, indent=1) + "\n")


def grouped_by_model() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What was timed, by model and precision."""
    groups = defaultdict(list)
    for name in FILES:
        for text in (RESULTS / name).read_text().splitlines():
            for data in timed(json.loads(text)):
                groups[data["model"], data["precision"]].append(data)
    return groups


def timed(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps of one line of results, unless its note tells what disturbed them."""
    if data.get("disturbed"):
        return
    if data["what"] == "measure" and data.get("seconds") and not data.get("out_of_memory"):
        yield data
    if data["what"] in ("recipe", "plan") and data.get("seconds") and "remat" in data and not data["out_of_memory"]:
        yield {"jit": None} | data | {"batch_size": BATCH_SIZE}
    if data["what"] == "speed" and data.get("gpu"):  # of benchmarks/measure/fit.py
        common = data | {"model": data["model"].split()[0], "remat": "none"}
        if "plain" in data:
            yield common | {"seconds": data["plain"]["seconds"]["fitroom"], "micro_batch": None}
        if "accumulate" in data:
            seconds = data["accumulate"]["seconds"]["fitroom"]
            yield common | {"seconds": seconds, "batch_size": data["parts"] * data["micro_batch"]}


def read(group: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """Steps of one model in one precision, with what they are made of."""
    import keras

    from fitroom.cards.catalogue import find_card
    from fitroom.keras_model.loading.source import ModelSource, load_model
    from fitroom.keras_model.recompute import resident_bytes
    from fitroom.planning.roofline.step_time import StepTime, mode_of
    from fitroom.recipe import Recipe, Remat
    from fitroom.remat.chooser import SegmentChooser

    name, precision = group[0]["model"], group[0]["precision"]
    keras.utils.clear_session()  # layers are named anew, as in a process of their own
    model = load_model(ModelSource(text=name, image_size=SIZES.get(name, 224), precision=precision))
    model.compile("adam", "sparse_categorical_crossentropy")
    choice = SegmentChooser.of_model(model)
    for data in group:
        step_time = StepTime.of_model(model, backend=data["backend"], card=find_card(data["gpu"]))
        assert step_time is not None
        batch_size, micro_batch = data["batch_size"], data["micro_batch"] or data["batch_size"]
        at_once = Recipe(micro_batch=micro_batch).samples_at_once(batch_size)
        remat = remat_of(data["remat"])
        if isinstance(remat, str) and remat not in ("none", "blocks"):
            remat = Remat(budget=remat)
        segmentation = choice.choose(remat, at_once, resident_bytes(model, at_once))
        step = {"batch_size": batch_size, "micro_batch": micro_batch, "precision": precision}
        yield Line(
            mode=mode_of(data["backend"], bool(data["jit"]), data.get("kernels")),
            model=name,
            precision=precision,
            batch_size=batch_size,
            seconds=data["seconds"],
            device_seconds=data.get("device_seconds"),
            ideal=step_time.ideal(**step, segments=segmentation.segments),
        )


def fitted(lines: Sequence[Line], like: Any = None) -> Any:
    """The factors, one row a class of precision; near those of another mode that is `like` this one, if there is."""
    usual = as_if_alike(lines) if like is None else as_all_of(lines, like)
    rows = [line.row / line.seconds for line in lines]
    wanted = [1.0] * len(lines)
    # For each class and feature a row that gives its factor, as so many times the usual.
    places = np.diag(1 / usual.ravel()).reshape(len(CLASSES), len(FEATURES), -1)
    for place, feature in enumerate(FEATURES):
        pull = WEAK_PULL if feature == "wide depthwise" else PULL
        for own in places:
            if feature == "matrix":
                rows.append(STRONG_PULL * (own[place] - own[FEATURES.index("convolution")]))
                wanted.append(0)
            else:
                rows.append(pull * own[place])
                wanted.append(pull)
        rows.append(pull * (places[0][place] - places[1][place]))
        wanted.append(0)
    return nnls(np.array(rows), np.array(wanted))[0].reshape(len(CLASSES), len(FEATURES))


def fitted_apart(lines: Sequence[Line], like: Any = None) -> Any:
    """The factors of a mode in which host and card work side by side: the card's by its own seconds, then the host's.

    The host's are fitted on the steps that took longer than their kernels, which waited for the host.
    """
    on_card = [
        replace(line, seconds=line.device_seconds, ideal=np.append(line.ideal[:-2], [0, 0]))
        for line in lines
        if line.device_seconds
    ]
    factors = fitted(on_card)
    factors[:, :-2] = np.maximum(factors[:, :-2], 1)  # no kernel is faster than the ideal; few models tell them apart
    waiting = [line for line in lines if line.device_seconds and line.seconds > 1.2 * line.device_seconds] or lines
    rows = [line.ideal[-2:] / line.seconds for line in waiting]
    factors[:, -2:] = nnls(np.array(rows), np.ones(len(rows)))[0]
    return factors


def seconds_by(line: Line, factors: Any) -> float:
    """The seconds that factors predict for a step."""
    terms = line.ideal * factors[int(line.is_half)]
    return float(max(terms[:-2].sum(), terms[-2:].sum()) if line.mode in OVERLAPPING else terms.sum())


def as_if_alike(lines: Sequence[Line]) -> Any:
    """The factors if there were one for all work, one for launches and one for steps."""
    rows = [[line.ideal[:-2].sum(), *line.ideal[-2:]] / np.array(line.seconds) for line in lines]
    usual = [[0, GENTLE_PULL / LAUNCH_SECONDS, 0], [0, 0, GENTLE_PULL / STEP_SECONDS]]
    work, launch, step = nnls(np.array([*rows, *usual]), np.array([1.0] * len(lines) + [GENTLE_PULL] * 2))[0]
    return np.array([[work] * (len(FEATURES) - 2) + [launch, step]] * len(CLASSES))


def as_all_of(lines: Sequence[Line], like: Any) -> Any:
    """The factors of another mode, all of them so many times as large as these lines say on the whole."""
    times = statistics.median(line.seconds / (line.row @ like.ravel()) for line in lines)
    return times * np.maximum(like, like.max() * 1e-9)


def told(lines: Sequence[Line], factors: Any, like: Any, *, fit: Any) -> dict[str, Any]:
    """How good the factors are: of all lines, and of those of models that were left out."""
    left_out: dict[int, float] = {}
    models = sorted({line.model for line in lines})
    for model in models:
        rest = [line for line in lines if line.model != model]
        if rest:
            others = fit(rest, like)
            left_out |= {id(line): seconds_by(line, others) for line in lines if line.model == model}
    inside = {id(line): seconds_by(line, factors) for line in lines}
    return {
        "lines": {name: sum(line.is_half == bool(at) for line in lines) for at, name in enumerate(CLASSES)},
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
