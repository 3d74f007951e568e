"""Predict one case in this process, on a machine without a GPU.

    python benchmarks/predict/predicting.py CASE_AS_JSON [--gpu H200] [--limit BYTES|smallest]

The last line of stdout is the result.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.cases import Case


def main() -> None:
    """Predict the case and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--limit", help="the allocator's, in bytes, or smallest")
    arguments = parser.parse_args()
    case = Case(**json.loads(arguments.case))
    os.environ |= {"KERAS_BACKEND": case.backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import fitroom
    from harness.case_models import STEPS, build, samples

    limit = int(arguments.limit) if (arguments.limit or "").isdigit() else arguments.limit
    recipe = fitroom.Recipe(jit=case.jit if case.backend == "tensorflow" else None)
    found = fitroom.estimate(build(case), case.batch_size, recipe=recipe, gpu=arguments.gpu, limit=limit)
    beside_bytes = 0  # what `fit` has on the card that is no part of the step
    if case.feed == "fit" and case.backend == "jax":
        beside_bytes = found.by_kind["input"]  # the next batch
    if case.feed == "fit" and case.backend == "tensorflow":
        beside_bytes = sum(array.nbytes for array in samples(case, STEPS * case.batch_size))  # all that it is given
    result = {
        "name": case.name,
        **case.to_dict(),
        "predicted_bytes": found.peak_bytes + beside_bytes,
        "required_bytes": found.required_bytes,
        "share_with_layer": round(1 - found.timeline.by_layer().get("(no layer)", 0) / found.peak_bytes, 4),
        "method": found.method,
        "seconds": round(found.seconds, 1),
        "versions": dict(found.versions),
        "date": time.strftime("%Y-%m-%d"),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
