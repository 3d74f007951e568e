"""Write which models of the corpus can be estimated, and how right that is, into docs/world.md, from the results.

python benchmarks/pages/world_page.py [--check]
"""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures
from predict.calibration import rows as measured_rows
from predict.calibration import world_steps
from world.corpus import CONFIGURATIONS, FAMILIES, MODES
from world.estimates import RESULT, read_lines

TRAINED = RESULT.with_name("world_trained.jsonl")
NAMES = {
    "jax": "JAX",
    "torch": "PyTorch",
    "tensorflow-graph": "TensorFlow, graph",
    "tensorflow-jit": "TensorFlow, `jit_compile=True`",
    "tensorflow": "TensorFlow",
}


def figures() -> str:
    """What could be estimated, what was refused and why, and what trained to the same losses."""
    lines = read_lines(RESULT)
    rows = [
        *_measured_rows(),
        f"{len(CONFIGURATIONS)} configurations of {len(FAMILIES)} families:",
        "",
        "| | tried | estimated | refused | failed |",
        "|---|---:|---:|---:|---:|",
    ]
    for mode in MODES:
        found = Counter(_outcome(line) for line in lines if line["mode"] == mode)
        if found:
            numbers = [sum(found.values()), found["estimated"], found["refused"], found["crashed"]]
            rows.append(f"| {NAMES[mode]} | {' | '.join(map(str, numbers))} |")
    rows += ["", "| configuration | backend | why there is no estimate |", "|---|---|---|"]
    rows += [
        f"| {line['name']} | {NAMES[line['mode']]} | {_reason(line)} |"
        for line in lines
        if _outcome(line) != "estimated"
    ]
    trained = read_lines(TRAINED)
    if trained:
        rows += [
            "",
            "Trained on the CPU beside plain Keras, whole and in micro-batches:",
            "",
            "| | tried | losses agree | micro-batches refused | differ or fail | plain Keras itself fails |",
            "|---|---:|---:|---:|---:|---:|",
        ]
    for mode in ("jax", "torch", "tensorflow"):
        of_mode = [line for line in trained if line["mode"] == mode]
        if of_mode:
            plain = sum("plain Keras fails" in line.get("crashed", "") for line in of_mode)
            bad = sum("crashed" in line for line in of_mode) - plain
            refused = sum("micro_batches_refused" in line and "crashed" not in line for line in of_mode)
            agree = len(of_mode) - plain - bad - refused
            rows.append(f"| {NAMES[mode]} | {len(of_mode)} | {agree} | {refused} | {bad} | {plain} |")
    return "\n".join([*rows, ""])


def _measured_rows() -> list[str]:
    """Predicted against measured, for the half that no rule was fitted on; how many of the other half there are."""
    reported, everything = list(world_steps()), list(world_steps(half=None))
    if not everything:
        return [
            "**No figure here was measured on a card yet**: the table says which models can be estimated at all, for",
            "an H200, on a machine without a GPU.",
            "",
        ]
    said = (
        f"Measured on an H200: {len(everything)} steps, {len(reported)} of them of families on which nothing was\n"
        "fitted. Error of the predicted peak of those, whether a training ran under a limit of `required_bytes`, and\n"
        "how much more that is than the peak:"
    )
    rows = [said, "", *measured_rows(reported)] if reported else [f"{said} none yet."]
    return [*rows, ""]


def _outcome(line: dict) -> str:
    return next((kind for kind in ("refused", "crashed") if kind in line), "estimated")


def _reason(line: dict) -> str:
    said = line.get("refused") or line["crashed"]
    return said.partition("\nhint:")[0].replace("|", "/").replace("\n", " ").replace("<", "&lt;")[:220]


if __name__ == "__main__":
    write_figures("world.md", "pages/world_page.py", figures())
