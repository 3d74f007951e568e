"""Predict, without a GPU, every case that was measured on one, and say how far off each prediction is.

    python benchmarks/compare_jax.py            # reads results/jax_h200_measured.jsonl

The prediction is as good as the compiler is near to the one that the card ran. With the same version the result is
results/jax_h200.json; with another it is results/jax_h200_xla_VERSION.json. Predictions already in the result are not
made again unless `--again` is given.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
sys.path.insert(0, str(Path(__file__).parent))
from cases import Case, build

RESULTS = Path(__file__).parent / "results"
MEASURED = RESULTS / "jax_h200_measured.jsonl"


def main() -> None:
    """Compare all cases and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="predict anew what was predicted before")
    again = parser.parse_args().again
    measured = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    result = RESULTS / result_name(measured[0]["versions"]["jax"])
    known = {} if again or not result.exists() else {c["name"]: c for c in json.loads(result.read_text())["cases"]}
    cases = [known.get(m["name"]) or compare(m) for m in measured if "peak_bytes" in m]
    errors = [abs(case["error"]) for case in cases]
    low = [case["error"] for case in cases if case["error"] < 0]
    summary = {
        "cases": len(cases),
        "median_error": statistics.median(errors),
        "largest_error": max(errors),
        "too_low": len(low),
        "lowest_error": min(low, default=0),
    }
    result.write_text(json.dumps({"summary": summary, "cases": cases}, indent=1) + "\n")
    print(json.dumps(summary))


def result_name(measured_version: str) -> str:
    """The file for predictions by the installed compiler."""
    from fitroom.backends.jax.compiled.compiler import compiler_version

    version = (compiler_version() or "").split()[-1]
    return "jax_h200.json" if version == measured_version else f"jax_h200_xla_{version}.json"


def compare(measured: dict) -> dict:
    """One case, measured and predicted. What `fit` keeps on the card beside the step is in `required_bytes`."""
    import keras

    import fitroom

    case = Case(**{field: measured[field] for field in Case.__dataclass_fields__})
    keras.backend.clear_session()
    found = fitroom.estimate(build(case), case.batch_size, gpu="H200", limit=measured["stats"]["bytes_limit"])
    batch_bytes = found.by_kind["input"]  # one batch ahead, at the least
    predicted_bytes = found.peak_bytes + (batch_bytes if case.feed == "fit" else 0)
    error = predicted_bytes / measured["peak_bytes"] - 1
    print(f"{case.name:55} {measured['peak_bytes']:>15,} {predicted_bytes:>15,} {100 * error:+.3f} %", flush=True)
    return {
        "name": case.name,
        **case.to_dict(),
        "measured_bytes": measured["peak_bytes"],
        "predicted_bytes": predicted_bytes,
        "required_bytes": found.required_bytes,
        "error": error,
        "measured_with": {**measured["versions"], "gpu": measured["gpu"], "date": measured["date"]},
        "predicted_with": {**found.versions, "date": time.strftime("%Y-%m-%d")},
    }


if __name__ == "__main__":
    main()
