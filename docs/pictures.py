"""The pictures of README and docs, from real estimates.

python docs/pictures.py            # writes docs/images/
"""

import os
from pathlib import Path

os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}

from io import StringIO

from rich.console import Console

import fitroom
from fitroom.models.source import ModelSource, load_model
from fitroom.report.plot import save_plot

IMAGES = Path(__file__).parent / "images"
COMMAND = "fitroom estimate xception --image-size 299 --batch-size 64 --backend jax --gpu H200"


def main() -> None:
    """A terminal with the command and its output, and the drawing of the same step."""
    IMAGES.mkdir(exist_ok=True)
    estimate = fitroom.estimate(load_model(ModelSource(text="xception", image_size=299)), 64, gpu="H200")
    console = Console(record=True, width=92, file=StringIO(), force_terminal=True)
    console.print(f"$ {COMMAND}\n", style="bold")
    console.print(estimate)
    (IMAGES / "estimate.svg").write_text(console.export_svg(title="fitroom", unique_id="estimate"))
    save_plot(estimate, IMAGES / "memory.svg")


if __name__ == "__main__":
    main()
