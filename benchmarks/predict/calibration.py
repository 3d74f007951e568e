"""How wrong estimates are by kind of model and size, and how many of those that said what is needed were right.

    python benchmarks/predict/calibration.py             # print it, and write the table that estimates show
    python benchmarks/predict/calibration.py --check     # exit code 1 where that table is not what the results say
    python benchmarks/predict/calibration.py --kinds     # first find the kind of each configuration of the corpus
    python benchmarks/predict/calibration.py --from DIR  # with the world_*.jsonl of another folder; nothing is written

Only cases of the halves that no rule was fitted on count for the error that is shown: the held-out half of
harness/cases.py, and the reported half of world/corpus.py. What of the corpus was not measured yet is left out. A kind
or a size has figures of its own where there are at least `LEAST_CASES` of it.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

sys.path.insert(0, str(Path(__file__).parents[1]))
from fitroom.estimating.sureness import LEAST_CASES, SIZES, size_of
from fitroom.keras_model.model_kind import ModelKind
from pages.figures import COLUMNS, compared, percentile_95
from predict.accuracy import RESULTS
from predict.accuracy import read_lines as read_all_lines
from world.corpus import CONFIGURATIONS
from world.estimates import read_lines

TABLE = Path(__file__).parents[2] / "src" / "fitroom" / "estimating" / "errors.json"
KINDS = RESULTS / "world_kinds.json"
OTHER_COMPILERS = {"jax": "predicted_jax_0.10.2.jsonl", "tensorflow-jit": "predicted_tf_0.10.2.jsonl"}
OWN_KINDS = {"MLP": "other layers", "LSTM": "recurrent layers", "Transformer": "attention"}
"""Of harness/cases.py; all other models there are made of convolutions."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One step that was predicted, and measured on a card."""

    group: str
    """How it was predicted, as `sureness.group_of` names it."""

    kind: str | None
    """As `model_kind` names it; None where the model could not be built to find out."""

    predicted_bytes: int
    measured_bytes: int
    required_bytes: int
    ran: bool | None
    """Whether it ran under a limit of what was said to be required; None where that was not tried."""

    name: str = ""

    @property
    def error(self) -> float:
        """How far the prediction is off, as a part of what was measured; negative where it is too low."""
        return self.predicted_bytes / self.measured_bytes - 1

    @property
    def size(self) -> str:
        """The size, as an estimate sees it."""
        return size_of(self.predicted_bytes)


def main() -> None:
    """Print, and write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument("--from", dest="folder", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.kinds:
        find_kinds()
    found = [*own_steps(), *world_steps(arguments.folder)]
    text = json.dumps(table(found), indent=1) + "\n"
    if arguments.check:
        sys.exit(0 if TABLE.read_text() == text else f"{TABLE.name} is out of date: run {Path(__file__).name}")
    print("\n".join(rows(found)))
    if arguments.folder == RESULTS:
        TABLE.write_text(text)


def own_steps() -> Iterator[Measured]:
    """The held-out cases of harness/cases.py, also as compilers of other versions predict them."""
    # What ran is known for the estimates of the right compiler only.
    capped = {run["name"]: run["runs"] for run in read_all_lines(RESULTS / "capped.jsonl")}
    for file, suffix in (("predicted.jsonl", ""), *((name, ", other compiler") for name in OTHER_COMPILERS.values())):
        for each in compared(RESULTS / file):
            if each.case.half == "held-out":
                yield Measured(
                    group=each.column + suffix,
                    kind=OWN_KINDS.get(each.case.model, "convolutions"),
                    predicted_bytes=each.predicted["predicted_bytes"],
                    measured_bytes=each.measured["peak_bytes"],
                    required_bytes=each.predicted["required_bytes"],
                    ran=None if suffix else capped.get(each.case.name),
                    name=each.case.name,
                )


def world_steps(folder: Path = RESULTS, *, half: str | None = "reported") -> Iterator[Measured]:
    """The configurations of the corpus that were predicted and measured; by default of the reported half."""
    kinds = json.loads(KINDS.read_text()) if KINDS.exists() else {}
    # By today's split: a family that was looked into since has moved.
    halves = {each.name: each.half for each in CONFIGURATIONS}
    files = {name: folder / f"world_{name}.jsonl" for name in ("predicted", "measured", "capped")}
    if not files["predicted"].exists():
        files["predicted"] = RESULTS / files["predicted"].name
    predicted, measured, capped = (
        {(line["name"], line["mode"]): line for line in read_lines(file)} for file in files.values()
    )
    for key, line in measured.items():
        claim, run = predicted.get(key, {}), capped.get(key, {})
        if "peak_bytes" not in line or "peak_bytes" not in claim or half not in (None, halves.get(line["name"])):
            continue
        yield Measured(
            group=world_group(claim, line),
            kind=kinds.get(line["name"]),
            predicted_bytes=claim["peak_bytes"],
            measured_bytes=line["peak_bytes"],
            required_bytes=claim["required_bytes"],
            ran=_ran(run, claim["required_bytes"]) if run else None,
            name=line["name"],
        )


def _ran(run: dict[str, Any], required_bytes: int) -> bool | None:
    """Whether a run under a limit shows that what is said to be required today is enough; None: it shows neither."""
    if "peak_bytes" in run:
        return True if run["limit_bytes"] <= required_bytes else None
    if run["crashed"].startswith("longer than"):
        return None
    return False if run["limit_bytes"] >= required_bytes else None


def world_group(claim: dict[str, Any], measured: dict[str, Any]) -> str:
    """How a configuration was predicted: on JAX and in jitted TensorFlow with which compiler."""
    from fitroom.estimating.sureness import name_group

    backend, _, _ = claim["mode"].partition("-")
    versions = claim["versions"] | {"jaxlib": measured.get("versions", {}).get("jax", claim["versions"].get("jaxlib"))}
    return name_group(backend, claim["method"], versions)


def table(found: Iterable[Measured]) -> dict[str, Any]:
    """The errors by group, and within it by kind, by size and by both, as `fitroom.estimating.sureness` reads them."""
    note = " ".join((__doc__ or "").split("\n\n")[-1].split())
    groups: dict[str, dict[str, list[float]]] = {}
    for each in found:
        cells = groups.setdefault(each.group, {})
        of_kind = [each.kind, f"{each.kind}, {each.size}"] if each.kind else []
        for cell in ("all", each.size, *of_kind):
            cells.setdefault(cell, []).append(abs(each.error))
    return {"note": note, "groups": {group: _figures(cells) for group, cells in sorted(groups.items())}}


def _figures(cells: dict[str, list[float]]) -> dict[str, Any]:
    return {
        cell: {
            "cases": len(errors),
            "median": round(statistics.median(errors), 4),
            "percentile_95": round(percentile_95(sorted(errors)), 4),
        }
        for cell, errors in sorted(cells.items())
        if len(errors) >= LEAST_CASES
    }


HEAD = ("cases", "median error", "95th percentile", "ran at `required_bytes`", "`required_bytes` over the peak, median")


TITLES = COLUMNS | {
    "jax, without jit": "JAX, without jit",
    "jax, no compiler": "JAX, without the compiler",
    "jax, other compiler": "JAX, another compiler",
    "tensorflow-jit, other compiler": "TensorFlow, `jit_compile=True`, another compiler",
}


def rows(found: list[Measured], *, least: int = 1) -> Iterator[str]:
    """A table in Markdown: each group, within it each kind and each size of which there are `least` cases."""
    yield f"| | {' | '.join(HEAD)} |"
    yield "|---|---:|---:|---:|---:|---:|"
    for group in dict.fromkeys(each.group for each in found):
        of_group = [each for each in found if each.group == group]
        yield row(f"**{TITLES[group]}**", of_group)
        kinds = ((kind, [each for each in of_group if each.kind == kind]) for kind in get_args(ModelKind))
        sizes = ((size, [each for each in of_group if each.size == size]) for size in SIZES)
        for name, chosen in (*kinds, *sizes):
            if len(chosen) >= least:
                yield row(name, chosen)


CLAIMS_HEAD = ("said to be safe", "ran", "share")


def claim_rows(found: Iterable[Measured]) -> Iterator[str]:
    """A table in Markdown: of the estimates whose `required_bytes` were tried as a limit, how many ran under it."""
    tried = [each for each in found if each.ran is not None]
    yield f"| | {' | '.join(CLAIMS_HEAD)} |"
    yield "|---|---:|---:|---:|"
    for group in [*dict.fromkeys(each.group for each in tried), None]:
        of_group = [bool(each.ran) for each in tried if group in (None, each.group)]
        if of_group:
            share = 100 * sum(of_group) / len(of_group)
            yield f"| {TITLES[group] if group else '**all**'} | {len(of_group)} | {sum(of_group)} | {share:.1f} % |"


def row(title: str, found: list[Measured]) -> str:
    """One line of that table."""
    errors = sorted(abs(each.error) for each in found)
    tried = [each.ran for each in found if each.ran is not None]
    over = statistics.median(each.required_bytes / each.measured_bytes for each in found)
    cells = (
        str(len(errors)),
        f"{100 * statistics.median(errors):.2f} %",
        f"{100 * percentile_95(errors):.2f} %",
        f"{sum(tried)} of {len(tried)}" if tried else "not tried",
        f"{over:.2f}",
    )
    return f"| {title} | {' | '.join(cells)} |"


def find_kinds() -> None:
    """Build each configuration of the corpus and write the kind that an estimate of it would see."""
    import os

    os.environ |= {"KERAS_BACKEND": "torch", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import keras

    from fitroom.keras_model.model_kind import model_kind

    kinds = json.loads(KINDS.read_text()) if KINDS.exists() else {}
    for each in CONFIGURATIONS:
        keras.utils.clear_session()
        try:
            kinds[each.name] = model_kind(each.load())
        except Exception as error:
            print(f"{each.name}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    in_order = {each.name: kinds[each.name] for each in CONFIGURATIONS if each.name in kinds}
    KINDS.write_text(json.dumps(in_order, indent=1) + "\n")


if __name__ == "__main__":
    main()
