"""Train under a cap of the predicted `required_bytes` on a real card with JAX: does it run?

    python benchmarks/cap_jax.py --out FOLDER [--factors 1.0,1.05] [--workers 4]

Reads results/jax_h200.json; one process a run, `model.fit` on NumPy arrays, autotuning included.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from cases import Case

RESULTS = Path(__file__).parent / "results" / "jax_h200.json"


def main() -> None:
    """Run every case under every factor of its `required_bytes`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose name holds one of these words, with commas")
    parser.add_argument("--factors", default="1.0")
    parser.add_argument("--workers", type=int, default=4)
    arguments = parser.parse_args()
    cases = json.loads(RESULTS.read_text())["cases"]
    words = arguments.only.split(",")
    runs = [
        (case, float(factor))
        for case in cases
        for factor in arguments.factors.split(",")
        if any(word in case["name"] for word in words)
    ]
    with ThreadPoolExecutor(arguments.workers) as pool, (arguments.out / "jax_caps.jsonl").open("a") as file:
        for result in pool.map(lambda run: capped(*run), runs):
            file.write(json.dumps(result) + "\n")
            file.flush()
            print(result["name"], result["factor"], "runs" if result["runs"] else result["error"][-200:], flush=True)


def capped(found: dict, factor: float) -> dict:
    """One run under a cap."""
    total_bytes = visible_bytes()
    limit_bytes = int(found["required_bytes"] * factor)
    case = Case(**{field: found[field] for field in Case.__dataclass_fields__} | {"feed": "fit"})
    environment = os.environ | {
        "KERAS_BACKEND": "jax",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_CLIENT_MEM_FRACTION": f"{limit_bytes / total_bytes:.9f}",
    }
    script = Path(__file__).with_name("measure_jax.py")
    command = [sys.executable, str(script), "--out", ".", "--case", json.dumps(case.to_dict())]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in finished.stdout.splitlines() if line.startswith("RESULT ")]
    measured = json.loads(lines[0][7:]) if lines else {}
    return {
        "name": found["name"],
        "factor": factor,
        "limit_bytes": limit_bytes,
        "runs": bool(lines),
        "allocator_limit_bytes": measured.get("stats", {}).get("bytes_limit"),
        "peak_bytes": measured.get("peak_bytes"),
        "error": "" if lines else finished.stderr[-1500:],
    }


def visible_bytes() -> int:
    """What the allocator's fraction is a fraction of: the card less what the driver reserves."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return memory.total - memory.reserved


if __name__ == "__main__":
    main()
