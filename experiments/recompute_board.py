"""Recompute every number of a board from the raw records with independent code: `python experiments/recompute_board.py`.

For each line of board.csv the script takes the records of that task, protocol, method and version from their JSON, without any of
compbench's own modules, and computes the number of seeds, the mean, the sample standard deviation, the median, the worst value,
the mean ceiling and floor, and a learnt row's difference from its oracle.  It prints how many cells it compared, and each line
that differs; the exit status is 1 if one differs.  Ranks and intervals are not computed here: `interval_coverage.py` and
`best_set.py` simulate them.

Arguments: the folders RECORDS and SITE; default: those in leaderboards/.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

BOARDS = Path(__file__).parents[1] / "leaderboards"
DIGITS = 2e-5
"""Largest relative difference that counts as equal, because the CSV has six digits."""
FACTS = ("task", "task_version", "preset", "source", "fingerprint", "method", "method_version", "precision")
NUMBERS = ("num_seeds", "mean", "median", "std", "worst", "ceiling", "floor")
TERMS = ("inference_time_error", "estimation_error")
Key = tuple[str, ...]
Run = dict[str, Any]


def key_of(raw: Run) -> Key:
    """The fields of a CSV line that identify a run's row: task, versions, protocol, method."""
    spec = raw["spec"]
    return tuple(str(spec[name]) for name in FACTS)


def group_of(raw: Run) -> str:
    """The rest that the runs of a row share: the settings of method and task, and the budget.

    Each seed of a sealed row has its own pattern.
    """
    spec, own = raw["spec"], dict(raw["spec"].get("task_settings", {}))
    if raw.get("sealed"):
        del own["split_seed"]
    plugin = raw.get("plugin", {}).get("distribution", "")
    return json.dumps([spec["settings"], own, raw.get("sealed", False), spec["budget"], plugin], sort_keys=True)


def chosen(group: list[Run]) -> list[Run]:
    """One run per seed: the last attempt that has scores, on the device that most seeds used."""
    done = [raw for raw in group if raw["status"] == "ok"]
    seeds: dict[str, set[int]] = defaultdict(set)
    for raw in done:
        seeds[raw["spec"]["device_class"]].add(raw["spec"]["seed"])
    order = sorted(seeds, key=lambda device: (-len(seeds[device]), device))
    by: dict[int, Run] = {}
    for device in reversed(order):
        there = [raw for raw in done if raw["spec"]["device_class"] == device]
        for raw in sorted(there, key=lambda raw: (raw.get("started", ""), raw["attempt"])):
            by[raw["spec"]["seed"]] = raw
    return [by[seed] for seed in sorted(by)]


def cells(own: list[Run], score: str, version: str, others: set[int]) -> dict[str, float]:
    """The numbers of one score, for one version of its metric, over the seeds of a row."""
    every = [
        one
        for raw in own
        for one in raw.get("scores", ())
        if one["value"] is not None and not (one["metric"] == "kid" and id(raw) in others)
    ]
    found = [one for one in every if one["name"] == score.split("@")[0] and str(one.get("metric_version", 1)) == version]
    values = [one["value"] for one in found]
    if not values:
        return {}
    least = min if found[0]["direction"] == "higher" else max
    numbers = {"num_seeds": float(len(values)), "mean": statistics.fmean(values), "median": statistics.median(values)}
    numbers["worst"] = least(values)
    if len(values) > 1:
        numbers["std"] = statistics.stdev(values)
    for name in ("ceiling", "floor"):
        known = [one[name] for one in found if one.get(name) is not None]
        if known:
            numbers[name] = statistics.fmean(known)
    return numbers


def other_judges(every: list[Run]) -> set[int]:
    """ids of runs whose judge differs from that of most runs of their task, data and seed: kernel distances have another unit.

    A judge is identified by the noise floors of its Frechet distances, to a thousandth.
    """
    alike: dict[str, list[tuple[Run, dict[str, float]]]] = defaultdict(list)
    for raw in every:
        spec, own = raw["spec"], [one for one in raw.get("scores", ()) if one["metric"] == "fd_judge"]
        floors = {one["split"]: one["floor"] for one in own if one.get("floor") is not None}
        if floors:
            counts = sorted({(one["split"], one["n"]) for one in own})
            data = [spec["task"], spec["task_version"], spec.get("task_settings", {}), spec["fingerprint"], spec["seed"], counts]
            alike[json.dumps(data, sort_keys=True)].append((raw, floors))

    def agree(a: dict[str, float], b: dict[str, float]) -> bool:
        return all(math.isclose(a[split], b[split], rel_tol=1e-3) for split in a.keys() & b.keys())

    found = set()
    for several in alike.values():
        most = min(
            (own for _, own in several), key=lambda own: (-sum(agree(own, one) for _, one in several), sorted(own.items()))
        )
        found |= {id(raw) for raw, own in several if not agree(own, most)}
    return found


def error(one: dict[str, Any]) -> Any:
    """A distance, or what a score of which more is better lacks to real data's."""
    if one["value"] is None or one["direction"] == "lower":
        return one["value"]
    return None if one.get("ceiling") is None else one["ceiling"] - one["value"]


def parts(own: list[Run], oracle: list[Run], term: str) -> dict[str, float]:
    """A learnt row's primary score, split into that with exact scores and the part that learning adds, over the common seeds."""
    learnt, exact = (
        {raw["spec"]["seed"]: error(one) for raw in row for one in raw.get("scores", ()) if one.get("primary")}
        for row in (own, oracle)
    )
    seeds = sorted(learnt.keys() & exact.keys())
    if not seeds or None in {*learnt.values(), *exact.values()}:
        return {}
    if term == "inference_time_error":
        return {"num_seeds": len(seeds), "mean": statistics.fmean(exact[seed] for seed in seeds), "std": 0.0}
    differences = [learnt[seed] - exact[seed] for seed in seeds]
    found = {"num_seeds": float(len(seeds)), "mean": statistics.fmean(differences)}
    return found | ({"std": statistics.stdev(differences)} if len(seeds) > 1 else {})


def main(records: Path, site: Path) -> None:
    every = [json.loads(path.read_text()) for path in sorted(records.glob("*.json"))]
    others = other_judges(every)
    groups: dict[Key, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for raw in every:
        groups[key_of(raw)][group_of(raw)].append(raw)
    rows = {key: [chosen(own) for own in by.values()] for key, by in groups.items()}
    compared = wrong = 0
    with (site / "board.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            if line["kind"] == "paper" or not line["mean"]:
                continue
            key = tuple(line[name] for name in FACTS)
            shown = {name: float(line[name]) for name in NUMBERS if line[name]}
            term = next((term for term in TERMS if line["score"].endswith(term)), "")
            if term:
                oracles = [own for other, several in rows.items() if is_oracle(other, key) for own in several]
                found = [parts(own, oracle, term) for own in rows.get(key, []) for oracle in oracles]
            else:
                found = [cells(own, line["score"], line["metric_version"], others) for own in rows.get(key, [])]
            best = min((misses(shown, numbers) for numbers in found), key=len, default=list(shown))
            compared += len(shown)
            if best:
                wrong += 1
                print(f"{line['task']} {line['method']} {line['variant']} {line['score']}: {', '.join(best)}")
    print(f"{compared} cells of {site / 'board.csv'} computed again; {wrong} lines differ")
    sys.exit(1 if wrong else 0)


def is_oracle(other: Key, key: Key) -> bool:
    """Whether a row is the oracle of another row's method, on the same task and protocol; versions and precision may differ."""
    free = ("method", "method_version", "precision")
    same = all(own == one for own, one, name in zip(other, key, FACTS, strict=True) if name not in free)
    return same and other[FACTS.index("method")] == f"{key[FACTS.index('method')]}-oracle"


def misses(shown: dict[str, float], found: dict[str, float]) -> list[str]:
    """Names of the numbers that differ."""

    def same(name: str) -> bool:
        return name in found and math.isclose(shown[name], found[name], rel_tol=DIGITS, abs_tol=1e-9)

    return [name for name in shown if not same(name)]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else BOARDS / "records", Path(sys.argv[2]) if sys.argv[2:] else BOARDS / "site")
