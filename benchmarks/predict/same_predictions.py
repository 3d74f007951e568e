"""Whether a change of the code leaves every prediction as it was.

    python benchmarks/predict/same_predictions.py make before.jsonl --workers 2     # on the commit before
    python benchmarks/predict/same_predictions.py make after.jsonl --workers 2      # on the commit after, same machine
    python benchmarks/predict/same_predictions.py compare before.jsonl after.jsonl

Each case of cases.py is predicted in a process of its own with caches off. `compare` looks at all but the seconds and
the date; its exit code is 1 where anything else differs.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from harness.cases import CASES, Case
from predict.accuracy import read_lines, run_child

HERE = Path(__file__).parent
LEFT_OUT = ("seconds", "date")


def main() -> None:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make")
    making.add_argument("file", type=Path)
    making.add_argument("--workers", type=int, default=2)
    making.add_argument("--only", default="", help="cases whose name holds this")
    making.set_defaults(run=make)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.set_defaults(run=compare)
    arguments = parser.parse_args()
    arguments.run(arguments)


def make(arguments: argparse.Namespace) -> None:
    """Predict every case and write the results in the order of the cases."""
    cases = [case for case in CASES if arguments.only in case.name]
    with ThreadPoolExecutor(arguments.workers) as threads:
        found = list(threads.map(predict, cases))
    arguments.file.write_text("".join(json.dumps(one) + "\n" for one in found))


def predict(case: Case) -> dict[str, Any]:
    """One case, in a process of its own. A case that cannot be predicted has its error for a result."""
    command = [sys.executable, str(HERE / "predicting.py"), json.dumps(case.to_dict())]
    found = run_child(command, os.environ | {"FITROOM_NO_CACHE": "1"}) | {"name": case.name}
    print(case.name, found.get("predicted_bytes", found.get("error", "")[-200:]), flush=True)
    return found


def compare(arguments: argparse.Namespace) -> None:
    """Print what differs between two files, and how many cases are the same."""
    before, after = ({one["name"]: one for one in read_lines(file)} for file in (arguments.before, arguments.after))
    different = 0
    for name in before | after:
        one, other = before.get(name), after.get(name)
        if one is None or other is None:
            print(f"{name}: only in {arguments.after if one is None else arguments.before}")
            different += 1
            continue
        fields = [field for field in one | other if field not in LEFT_OUT and one.get(field) != other.get(field)]
        for field in fields:
            print(f"{name}: {field} was {str(one.get(field))[:200]}, is {str(other.get(field))[:200]}")
        different += bool(fields)
    print(f"{len(before | after) - different} of {len(before | after)} cases are the same")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
