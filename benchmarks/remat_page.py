"""Write the table of docs/remat.md from the results.

python benchmarks/remat_page.py [--check]
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "remat.md"
BEGIN, END = "<!-- figures: written by benchmarks/remat_page.py -->", "<!-- /figures -->"
NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}


def main() -> None:
    """Write the page, or compare it."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    written = f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"
    if "--check" in sys.argv:
        sys.exit(0 if written == text else "docs/remat.md is not what the results say: run benchmarks/remat_page.py")
    PAGE.write_text(written)


def table() -> str:
    """The last prediction for each backend, precision and choice."""
    lines = [json.loads(line) for line in (HERE / "results" / "remat.jsonl").read_text().splitlines()]
    rows = {(backend(line), line["precision"], line["remat"]): line for line in lines if line["what"] == "predict"}
    return "\n".join(
        [
            "| backend | precision | remat | peak, GiB | of none | activations, of none |",
            "|---|---|---|---:|---:|---:|",
            *(
                f"| {name} | {precision} | {remat} | {line['peak_bytes'] / 2**30:.2f} | "
                f"{line['peak_bytes_ratio']:.2f} | {line['activation_bytes_ratio']:.2f} |"
                for (name, precision, remat), line in sorted(rows.items(), key=lambda row: row[0][:2])
            ),
        ]
    )


def backend(line: dict[str, Any]) -> str:
    """With the mode of TensorFlow."""
    mode = {None: "", True: ", jitted", False: ", graph"}[line["jit"]]
    return f"{NAMES[line['backend']]}{mode}"


if __name__ == "__main__":
    main()
