"""Write how plans did on a card into docs/planning.md, from the results.

python benchmarks/pages/plan_page.py [--check]
"""

import json
import sys
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}
GIB = 2**30
BATCH_SIZE = 256

Line = dict[str, Any]


def figures() -> str:
    """The plans that were carried out, then those of them that were timed beside what else there is."""
    lines = [
        json.loads(line) for line in (Path(__file__).parents[1] / "results" / "plan.jsonl").read_text().splitlines()
    ]
    plans = last_of(lines, "plan", "backend", "model", "budget_bytes", "precision")
    parts = [carried_out(plans)]
    parts += [compared(plan, lines) for plan in plans if plan.get("seconds") and rivals(plan, lines)]
    parts += [in_order(last_of(lines, "recipe", "backend", "model", "precision", "micro_batch", "remat"))]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def last_of(lines: list[Line], what: str, *names: str) -> list[Line]:
    """The last line of each setting."""
    found = {tuple(line.get(name) for name in names): line for line in lines if line["what"] == what}
    return sorted(found.values(), key=lambda line: (line["backend"], line["model"] != "Xception", line["budget_bytes"]))


def carried_out(plans: list[Line]) -> list[str]:
    """Whether they kept to their budgets."""
    return [
        "| model | backend | budget | precision | micro-batch | needs at least | measured peak | out of memory "
        "| samples a second | predicted |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {line['model']} | {NAMES[line['backend']]} | {gib(line['budget_bytes'])} | {line['precision']} | "
            f"{line['micro_batch'] or BATCH_SIZE} | {gib(line['required_bytes'])} | {gib(line.get('peak_bytes'))} | "
            f"{trouble(line)} | {rate(line)} | {line['predicted']['samples_per_second']:,.0f} |"
            for line in plans
        ),
    ]


def rivals(plan: Line, lines: list[Line]) -> list[Line]:
    """What else was timed for the same model in the same memory, the fastest first."""
    same = [
        line for line in lines if all(line.get(name) == plan[name] for name in ("backend", "model", "budget_bytes"))
    ]
    others = [
        *last_of(same, "recipe", "precision", "micro_batch", "remat"),
        *last_of(same, "keras", "precision", "batch_size"),
    ]
    timed = [line for line in others if line.get("seconds") and not line.get("out_of_memory")]
    return sorted(timed, key=lambda line: line["seconds"])


def compared(plan: Line, lines: list[Line]) -> list[str]:
    """One plan beside recipes of a grid, and beside what people do without one."""
    others = rivals(plan, lines)
    grid = [line for line in others if line["what"] == "recipe" and line["precision"] in allowed(plan)]
    keras = [line for line in others if line["what"] == "keras"]
    alone = [line for line in keras if line["precision"] in allowed(plan)] or keras
    said = f"{plan['model']} on {NAMES[plan['backend']]} in {gib(plan['budget_bytes'])}, {plan['precision']}: "
    found = []
    if grid:
        best = grid[0]
        recipe = f"micro-batch {best['micro_batch'] or BATCH_SIZE}, {best['remat']} recomputed, {best['precision']}"
        found.append(
            f"{100 * best['seconds'] / plan['seconds']:.0f} % of the speed of the best of {len(grid)} recipes "
            f"({recipe})"
        )
    if alone:
        times = alone[0]["seconds"] / plan["seconds"]
        found.append(
            f"{times:.2f} times the speed of plain Keras, which runs with batches of {alone[0]['batch_size']} and its "
            f"own accumulation in {alone[0]['precision']}"
        )
    return [said + "; ".join(found) + "."]


def in_order(recipes: list[Line]) -> list[str]:
    """Whether the speed model puts recipes in the order in which they are, by those it was not fitted to yet."""
    asked = [line for line in recipes if line.get("seconds") and "predicted" in line]
    measured = [line["seconds"] for line in asked]
    predicted = [line["predicted"]["seconds_per_step"] for line in asked]
    errors = sorted(abs(told / found - 1) for told, found in zip(predicted, measured, strict=True))
    return [
        f"Speeds of the {len(asked)} recipes of the grid, measured, and predicted before the speed model was fitted to "
        f"them: rank correlation {spearmanr(measured, predicted).statistic:.2f}; the seconds are off by "
        f"{100 * errors[len(errors) // 2]:.0f} % at the median, by {100 * errors[-1]:.0f} % at most."
    ]


def allowed(plan: Line) -> tuple[str, ...]:
    """The precisions that the plan could choose from: its own, and where that is not float32 both."""
    return ("float32",) if plan["precision"] == "float32" else ("float32", plan["precision"])


def trouble(line: Line) -> str:
    """How often memory ran out, compiling included."""
    if "failed" in line:
        return "failed"
    return str(line["out_of_memory"] + line.get("first", {}).get("out_of_memory", 0))


def rate(line: Line) -> str:
    """Samples a second, where nobody else used the card."""
    return f"{BATCH_SIZE / line['seconds']:,.0f}" if line.get("seconds") else ""


def gib(size: int | None) -> str:
    """Bytes for reading."""
    return f"{size / GIB:.2f} GiB".replace(".00", "") if size else ""


if __name__ == "__main__":
    write_figures("planning.md", "pages/plan_page.py", figures())
