"""From crash to trained, on any machine: no GPU is needed.

    python examples/demo.py [FOLDER] [--quick]

TensorFlow's allocator for the CPU can be given a limit, and is then that of a small graphics card: the same code, the
same errors. Plain Keras dies in it, fitroom trains in it. What is made lies in FOLDER.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

EXAMPLES = Path(os.path.relpath(Path(__file__).parent))
MODEL = f"{EXAMPLES}/flower_cnn.py:make_model"
BATCH_SIZE = 64
LIMIT_MIB = 160
LIMITED = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(LIMIT_MIB),
    "TF_NUM_INTEROP_THREADS": "1",  # one operation at a time, as on a card
    "TF_ENABLE_ONEDNN_OPTS": "0",  # its kernels do not survive a failed allocation
    "TF_CPP_MIN_LOG_LEVEL": "3",
}

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Six steps, each a command that can be given by hand."""
    options = _options()
    count, epochs = (200, 10) if options.quick else (600, 12)
    pictures, run = options.folder / "flowers", options.folder / "run"
    for of_an_earlier_time in (pictures, run):
        shutil.rmtree(of_an_earlier_time, ignore_errors=True)
    began = time.monotonic()

    say(f"1. {count} drawn flowers of five kinds, a folder for each kind")
    call("python", EXAMPLES / "drawn_flowers.py", pictures, "--count", count)

    say(f"2. Plain Keras on a device with {LIMIT_MIB} MiB: batches of {BATCH_SIZE} pictures do not fit")
    console.print("(TensorFlow waits ten seconds for memory to come back before it says so.)", style="dim")
    console.print("export " + " ".join(f"{name}={value}" for name, value in LIMITED.items()), style="dim")
    os.environ |= LIMITED
    call_in_vain("python", EXAMPLES / "plain_keras.py", pictures)

    say("3. What would have fitted? fitroom knows without training")
    sizes = ",".join(str(BATCH_SIZE // parts) for parts in (8, 4, 2, 1))
    call("fitroom", "estimate", MODEL, "--batch-size", sizes, "--no-jit", "--limit", f"{LIMIT_MIB}MiB")

    say(f"4. fitroom plans, says what it changes, and trains: in the same {LIMIT_MIB} MiB, batches of {BATCH_SIZE}")
    how = ("--image-size", 64, "--batch-size", BATCH_SIZE, "--learning-rate", 0.003)
    call("fitroom", "train", pictures, "--model", MODEL, *how, "--epochs", epochs, "--run-dir", run)

    say("5. What is in an image?")
    call("fitroom", "predict", run, pictures / "tulip" / "0000.jpg", pictures / "rose" / "0000.jpg", "--top", 2)

    if not options.quick:
        say("6. And a model of full size, on a card that is not here?")
        call("fitroom", "estimate", "xception", "--batch-size", 32, "--backend", "all", "--gpu", "RTX 3060")

    say(f"{time.monotonic() - began:.0f} seconds. Now look at the report: {run / 'report.html'}")


def say(title: str) -> None:
    """A heading."""
    console.print(f"\n{title}", style="bold")


def call(*command: object) -> None:
    """Show a command, and run it."""
    if status := subprocess.run(_shown(command)).returncode:
        sys.exit(f"This was to work, and ended with exit code {status}.")


def call_in_vain(*command: object) -> None:
    """Run a command that is to die of memory, and show the last words of its traceback."""
    died = subprocess.run(_shown(command), capture_output=True, text=True, errors="replace")
    words = [line for line in died.stderr.splitlines() if "ResourceExhaustedError:" in line or line.startswith("OOM")]
    if died.returncode == 0 or len(words) < 2:
        sys.exit(f"This was to die of memory, and did not:\n{died.stdout}\n{died.stderr}")
    console.print("\n".join(words), style="red")


def _shown(command: tuple[object, ...]) -> list[str]:
    words = list(map(str, command))
    console.print(f"$ {shlex.join(words)}", style="cyan")
    programs = {"python": [sys.executable], "fitroom": [sys.executable, "-m", "fitroom"]}
    return [*programs[words[0]], *words[1:]]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="From crash to trained, on any machine.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/demo"), help="(default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer pictures, and no sixth step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
