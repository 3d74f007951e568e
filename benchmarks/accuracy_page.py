"""Write docs/accuracy.md, and the figures in README.md, from the committed results.

python benchmarks/accuracy_page.py            # --check: only say whether they are up to date
"""

import argparse
import json
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
_BLOCK = re.compile(r"(<!-- accuracy[^>]*-->\n).*?(<!-- /accuracy -->)", re.DOTALL)
_PICTURED = "Xception-299px-b64-float32-adam-resident"

_PAGE = """# How right the estimates are

Made by `python benchmarks/accuracy_page.py` from the files in `benchmarks/results/`.

## JAX, compiled for the card

Measured on one {gpu} (driver {driver}) with JAX {measured_jax} and Keras {keras} on {date}: the allocator's peak in
steady training, in a process that takes its executable from the compilation cache, so that autotuning does not count.
Predicted on a machine without a GPU with `{compiler}`, the version that the card ran.
`resident`: one batch stays on the card. `fit`: `model.fit` on NumPy arrays, one batch copied ahead counted.

**{cases} cases: median error {median}, largest {largest}; too low in {too_low}, at most by {lowest}.**

| case | measured, bytes | predicted, bytes | error |
|---|---:|---:|---:|
{rows}

What is left is the scratch memory of cuDNN's convolutions, which XLA chooses by timing them on the card: without a card
it is taken for none. It shows where the peak lies at the first convolution's backward pass (ResNet50, DenseNet121).

A compiler of another version may lay out another program. The same cases predicted with it:

| compiler | median error | largest | too low |
|---|---:|---:|---:|
{other_compilers}

### Capped at what was predicted

`model.fit` in a process whose allocator is limited to the peak, as the 0.10.2 compiler predicted it, and one batch;
autotuning included. Today's `required_bytes` is one batch more.

| case | limit, bytes | runs |
|---|---:|---|
{caps}
{traced}"""

_TRACED = """
## JAX, from the jaxpr alone

What `fitroom estimate` says without the compiler (`method: traced`), against the compiled estimate for an H200.
Tuned on one half of the cases, reported on the other.

**{cases} held-out cases: median error {median}, 95th percentile {p95}; too low in {too_low} of them.**

{note}
"""

_APPLICATIONS = """
## Every model of keras.applications

On JAX, compiled for an H200 at the picture size each was made for, batch {batch_size}, float32
(`benchmarks/applications.py`):
{num_models} models, {refused}. At least {share} of the peak has a layer.
"""


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    wanted = {PAGE: make_page(), README: make_readme(README.read_text())}
    if parser.parse_args().check:
        stale = [path.name for path, text in wanted.items() if path.read_text() != text]
        sys.exit(f"{', '.join(stale)} out of date: run python benchmarks/accuracy_page.py" if stale else 0)
    for path, text in wanted.items():
        path.write_text(text)


def make_readme(text: str) -> str:
    """README with its figures filled in."""
    result = json.loads((RESULTS / "jax_h200.json").read_text())
    case = next(case for case in result["cases"] if case["name"] == _PICTURED)
    summary = result["summary"]
    figures = (
        f"On a real {case['measured_with']['gpu']} that step took {case['measured_bytes']:,} bytes; predicted were "
        f"{case['predicted_bytes']:,}. Over {summary['cases']} cases on that card the\nmedian error is "
        f"{percent(summary['median_error'])}, the largest {percent(summary['largest_error'])}: "
        "[every case](docs/accuracy.md).\n"
    )
    return _BLOCK.sub(lambda match: match[1] + figures + match[2], text)


def make_page() -> str:
    """The page as text."""
    result = json.loads((RESULTS / "jax_h200.json").read_text())
    cases, summary = result["cases"], result["summary"]
    caps = [json.loads(line) for line in (RESULTS / "jax_h200_caps.jsonl").read_text().splitlines()]
    measured_with = cases[0]["measured_with"]
    return _PAGE.format(
        gpu=measured_with["gpu"],
        driver=measured_with["driver"],
        measured_jax=measured_with["jax"],
        keras=measured_with["keras"],
        date=measured_with["date"],
        compiler=cases[0]["predicted_with"]["compiler"],
        cases=summary["cases"],
        median=percent(summary["median_error"]),
        largest=percent(summary["largest_error"]),
        too_low=summary["too_low"],
        lowest=percent(-summary["lowest_error"]),
        rows="\n".join(
            f"| {c['name']} | {c['measured_bytes']:,} | {c['predicted_bytes']:,} | {100 * c['error']:+.3f} % |"
            for c in cases
        ),
        caps="\n".join(f"| {c['name']} | {c['limit_bytes']:,} | {'yes' if c['runs'] else 'no'} |" for c in caps),
        other_compilers="\n".join(map(compiler_row, sorted(RESULTS.glob("jax_h200_xla_*.json")))),
        traced=traced_section() + applications_section(),
    )


def compiler_row(path: Path) -> str:
    """How another version of the compiler does."""
    result = json.loads(path.read_text())
    summary, compiler = result["summary"], result["cases"][0]["predicted_with"]["compiler"]
    errors = f"{percent(summary['median_error'])} | {percent(summary['largest_error'])}"
    return f"| {compiler} | {errors} | {summary['too_low']} of {summary['cases']} |"


def traced_section() -> str:
    """The part about estimates from the jaxpr."""
    result = json.loads((RESULTS / "jax_traced.json").read_text())
    summary = result["summary"]["held-out"]
    return _TRACED.format(
        note=textwrap.fill(result["note"], 120),
        cases=summary["num_cases"],
        median=percent(summary["median_error"]),
        p95=percent(summary["percentile_95_error"]),
        too_low=percent(summary["too_low_share"]),
    )


def applications_section() -> str:
    """The part about ready-made models."""
    models = json.loads((RESULTS / "jax_applications.json").read_text())["models"]
    refused = [f"{name} ({found['refused']})" for name, found in models.items() if "refused" in found]
    shares = [found["share_with_layer"] for found in models.values() if "refused" not in found]
    return _APPLICATIONS.format(
        batch_size=8,
        num_models=len(models),
        refused=f"refused: {', '.join(refused)}" if refused else "none refused",
        share=percent(min(shares)),
    )


def percent(value: float) -> str:
    """For reading.

    >>> percent(0.00041)
    '0.04 %'
    """
    return f"{100 * value:.2f} %"


if __name__ == "__main__":
    main()
