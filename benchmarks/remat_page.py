"""Write the table of docs/remat.md from the results.

python benchmarks/remat_page.py [--check]
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from page_figures import write_figures

HERE = Path(__file__).parent
NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}


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
    write_figures("remat.md", "remat_page.py", f"{table()}\n")
