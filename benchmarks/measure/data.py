"""Pictures a second and memory of reading a folder, side by side with what people use today.

    python benchmarks/measure/data.py [--folder FLOWERS] [--rounds 5]    # and pictures of 2,000 pixels, made here
    python benchmarks/measure/data.py --page [--check]                   # the table of docs/data.md from the results

Each way lives in a process of its own. In every round each reads all pictures once, one way after the other, so that
what else the machine does falls on all of them; ratios are taken within a round. The files are in the system's cache,
and the first epoch of each does not count. Appends to results/data.jsonl.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))
from measure.data_ways import WAYS

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "data.jsonl"
PAGE = HERE.parents[1] / "docs" / "data.md"
BEGIN, END = "<!-- figures: written by benchmarks/measure/data.py -->", "<!-- /figures -->"
PACKAGES = ("pillow", "opencv-python-headless", "keras", "tensorflow-cpu", "torch", "numpy")


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="photos, a folder per class; default: small ones made here")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--photos", type=int, default=1000, help="so many of the folder's, evenly taken")
    parser.add_argument("--pictures", type=int, default=80, help="of 2,000 pixels")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.page:
        write_page(check=arguments.check)
        return
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["FITROOM_CACHE_DIR"] = f"{scratch}/cache"
        small = Path(scratch) / "photos"
        if arguments.folder is None:
            made(small, arguments.photos, (320, 240))
        else:
            sample(arguments.folder, small, arguments.photos)
        sets = {"photos": small, "2,000 pixels": made(Path(scratch) / "large", arguments.pictures, (2000, 1500))}
        for name, folder in sets.items():
            described = facts(name, folder) | {key: getattr(arguments, key) for key in ("image_size", "batch_size")}
            lines = [described | line for line in measure(folder, arguments)]
            with arguments.out.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)


def measure(folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Every way in every round, and what came out for each."""
    rounds: list[dict[str, dict[str, float]]] = []
    with ExitStack() as stack:
        children = {way: stack.enter_context(started(way, folder, arguments)) for way in WAYS}
        for number in range(arguments.rounds):
            rounds.append({})
            start = number % len(WAYS)
            for way in [*WAYS][start:] + [*WAYS][:start]:
                rounds[-1][way] = found = json.loads(answer(children[way], "go\n"))
                speed = found["pictures"] / found["seconds"]
                print(f"{folder.name} {way}: {speed:.0f} pictures/s, {found['data_bytes'] / 2**20:.0f} MiB", flush=True)
    return [summed_up(way, rounds) for way in WAYS]


@contextmanager
def started(way: str, folder: Path, arguments: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """A process that has read the folder once."""
    command = [sys.executable, str(HERE / "data_ways.py"), way, str(folder)]
    sizes = [str(arguments.image_size), str(arguments.batch_size)]
    child = subprocess.Popen([*command, *sizes], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        answer(child, "")
        yield child
    finally:
        child.kill()
        child.wait()


def answer(child: subprocess.Popen[str], question: str) -> str:
    """The next line that it says."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(question)
    child.stdin.flush()
    found = child.stdout.readline()
    if not found:
        raise SystemExit(f"it ended with {child.wait()}")
    return found


def summed_up(way: str, rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """The medians, and how much faster fitroom was in the same round."""
    found = [one[way] for one in rounds]
    speeds = [one["pictures"] / one["seconds"] for one in found]
    ratios = [one[way]["seconds"] / one["fitroom"]["seconds"] for one in rounds]
    return {
        "way": way,
        "pictures_per_second": [round(speed) for speed in speeds],
        "processor_microseconds": round(median(1e6 * one["processor_seconds"] / one["pictures"] for one in found)),
        "fitroom_is_faster_by": [round(ratio, 2) for ratio in ratios],
        "data_bytes": int(median(one["data_bytes"] for one in found)),
        "peak_bytes": int(median(one["peak_bytes"] for one in found)),
    }


def facts(name: str, folder: Path) -> dict[str, Any]:
    """What was measured where."""
    files = list(folder.rglob("*.jpg"))
    for path in files:
        path.read_bytes()
    with_version = [(package, _version(package)) for package in PACKAGES]
    return {
        "set": name,
        "num_pictures": len(files),
        "file_bytes": sum(path.stat().st_size for path in files),
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "versions": {package: version for package, version in with_version if version},
        "date": time.strftime("%Y-%m-%d"),
    }


def sample(folder: Path, into: Path, number: int) -> None:
    """Links to some of the photos."""
    files = sorted(path for path in folder.glob("*/*.jpg"))
    for path in files[:: -(-len(files) // number)]:
        link = into / path.parent.name / path.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path.resolve())


def made(folder: Path, number: int, size: tuple[int, int]) -> Path:
    """JPEG files with forms and grain, as photos have them."""
    random = np.random.default_rng(0)
    for count in range(number):
        forms = Image.fromarray(random.integers(0, 255, (size[1] // 40, size[0] // 40, 3), dtype=np.uint8))
        grain = random.normal(0, 5, (size[1], size[0], 1))
        pixels = np.asarray(forms.resize(size, Image.Resampling.BICUBIC)) + grain
        file = folder / "ab"[count % 2] / f"{count}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, quality=88)
    return folder


def write_page(*, check: bool) -> None:
    """The results as tables."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    written = f"{before}{BEGIN}\n{tables()}{END}{rest.split(END)[1]}"
    if check:
        sys.exit(
            0 if written == text else "docs/data.md is not what the results say: run benchmarks/measure/data.py --page"
        )
    PAGE.write_text(written)


def tables() -> str:
    """One for each set, over the rounds of all runs on record."""
    found = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    parts = []
    for name in dict.fromkeys(line["set"] for line in found):
        lines = [pooled([line for line in found if (line["set"], line["way"]) == (name, way)]) for way in WAYS]
        first = lines[0]
        mean = first["file_bytes"] / first["num_pictures"] / 1000
        parts.append(
            f"{first['num_pictures']:,} JPEG files ({name}, {mean:,.0f} kB each on average) to {first['image_size']} "
            f"pixels, batches of {first['batch_size']}, {first['cores']} cores under a load of {first['load']}, "
            f"{first['date']}; medians of {len(first['pictures_per_second'])} rounds, the ratio with its range:\n\n"
            "| way | pictures/s | fitroom is faster by | processor time a picture | memory for the data |\n"
            "|---|---:|---:|---:|---:|\n" + "".join(map(_row, lines))
        )
    return "\n".join(parts)


def pooled(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Several runs as one."""
    each_round = {
        name: [value for line in lines for value in line[name]]
        for name in ("pictures_per_second", "fitroom_is_faster_by")
    }
    each_run = {
        name: median(line[name] for line in lines) for name in ("processor_microseconds", "data_bytes", "peak_bytes")
    }
    loads = " and ".join(str(line["load"]) for line in lines)
    return lines[-1] | each_round | each_run | {"load": loads}


def _row(line: dict[str, Any]) -> str:
    ratios = line["fitroom_is_faster_by"]
    ratio = (
        "" if line["way"].startswith("fitroom") else f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    return (
        f"| {line['way']} | {median(line['pictures_per_second']):,.0f} | {ratio} | "
        f"{line['processor_microseconds']:,.0f} µs | {line['data_bytes'] / 2**20:,.0f} MiB |\n"
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
