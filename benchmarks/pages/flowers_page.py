"""Write what `fitroom train` learns into docs/howto/folder_of_pictures.md, from the results.

python benchmarks/pages/flowers_page.py [--check]
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from pages.page_figures import write_figures

NAMES = {"jax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow"}
GIB = 2**30


def figures() -> str:
    """The last training on the flowers, beside plain Keras's."""
    lines = (Path(__file__).parents[1] / "results" / "flowers.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    ours, plain = last["fitroom"], last["keras"]
    return "\n".join(
        [
            f"{last['model'].capitalize()} from random weights, {last['image_size']} pixels, {last['epochs']} epochs, "
            f"{NAMES[last['backend']]} on {ours['device']}, {last['date']}:",
            "",
            "| | right of the held-back photographs | precision | most memory in use |",
            "|---|---:|---|---:|",
            f"| `fitroom train --budget {ours['budget']['bytes'] / GIB:.0f}GiB`, the rest by default | "
            f"{100 * ours['accuracy']:.1f} % | {ours['recipe']['precision']} | {ours['peak_bytes'] / GIB:.2f} GiB |",
            f"| plain Keras as in tutorials: Adam, batches of 32 | {100 * plain['accuracy']:.1f} % "
            f"(best epoch {100 * plain['best_accuracy']:.1f} %) | float32 | no limit |",
            "",
        ]
    )


if __name__ == "__main__":
    write_figures("howto/folder_of_pictures.md", "pages/flowers_page.py", figures())
