"""The pictures of README and docs, from real estimates and drawings.

python docs/pictures.py            # writes docs/images/; report.png is of the last `make demo`, by Chromium
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}

from io import StringIO

from drawn_flowers import draw_flowers
from PIL import Image, ImageOps
from rich.console import Console

import fitroom
from fitroom.keras_model.loading.source import ModelSource, load_model
from fitroom.report.save import save_estimate, save_plan

IMAGES = Path(__file__).parent / "images"
ESTIMATE = "fitroom estimate xception --image-size 299 --batch-size 64 --backend jax --gpu H200"
PLAN = 'fitroom plan xception --image-size 299 --batch-size 256 --backend jax --gpu "RTX 3060" --precision auto'


def main() -> None:
    """Terminals with a command and its output, and drawings of the same."""
    IMAGES.mkdir(exist_ok=True)
    model = load_model(ModelSource(text="xception", image_size=299))
    estimate = fitroom.estimate(model, 64, gpu="H200")
    terminal("estimate", ESTIMATE, estimate, width=92)
    save_estimate(estimate, IMAGES / "memory.svg")
    plan = fitroom.plan(model, 256, gpu="RTX 3060", precision="auto", input_dtype="uint8")
    terminal("plan", PLAN, plan, width=104)
    save_plan(plan, IMAGES / "frontier.svg")
    flowers(kinds=5, each=8, size=96).save(IMAGES / "flowers.jpg", quality=80)
    report(Path("runs/demo/run/report.html"))


def terminal(name: str, command: str, shown: object, *, width: int) -> None:
    """What is printed for a command, as a picture."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
    console.print(f"$ {command}\n", style="bold")
    console.print(shown)
    (IMAGES / f"{name}.svg").write_text(console.export_svg(title="fitroom", unique_id=name))


def report(page: Path) -> None:
    """The top of a report as a browser shows it."""
    look = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,720", "--virtual-time-budget=5000"]
    picture = f"--screenshot={IMAGES / 'report.png'}"
    subprocess.run(["chromium", *look, picture, page.resolve().as_uri()], check=True, stderr=subprocess.DEVNULL)


def flowers(kinds: int, each: int, size: int) -> Image.Image:
    """The first drawn flowers, a row for each kind."""
    sheet = Image.new("RGB", (each * size, kinds * size))
    with tempfile.TemporaryDirectory() as folder:
        files = sorted(draw_flowers(Path(folder), kinds * each, size).rglob("*.jpg"))
        for number, file in enumerate(files):
            square = ImageOps.fit(Image.open(file), (size, size))
            sheet.paste(square, (number % each * size, number // each * size))
    return sheet


if __name__ == "__main__":
    main()
