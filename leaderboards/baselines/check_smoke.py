"""Compare a smoke record with the stored baseline on what does not depend on the machine's speed.

    python leaderboards/baselines/check_smoke.py RECORD.json leaderboards/baselines/smoke.json [--write]

Exact: parameters, evaluations, FLOPs, names and versions of scores, number of samples.  Scores of so short a run are noise,
so they only have to be there and finite; the ceiling says that the judges still learn.
"""

import json
import sys
from pathlib import Path


def facts(record: dict) -> dict:
    profile = record["profile"]
    return {
        "status": record["status"],
        "parameters": profile["parameters"],
        "evaluations_per_sample": profile["evaluations_per_sample"],
        "flops_per_train_step": profile["flops_per_train_step"],
        "flops_per_sample": profile["flops_per_sample"],
        "budget": record["spec"]["budget"],
        "scores": {
            score["name"]: [score["metric_version"], score["n"], score["direction"], score["primary"]]
            for score in record["scores"]
        },
    }


def main() -> int:
    record, baseline = Path(sys.argv[1]), Path(sys.argv[2])
    found = facts(json.loads(record.read_text()))
    if "--write" in sys.argv:
        baseline.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        return 0
    expected = json.loads(baseline.read_text())
    differing = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
    for key in differing:
        print(f"smoke check: {key} is {found.get(key)}, the baseline says {expected.get(key)}")
    if not differing:
        print(f"smoke check: {len(found)} exact figures as in the baseline")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
