"""Choose how dcfm-a divides a silo's steps between its stages and ramps the peers' penalty, by seen scores only.

    python experiments/dcfm_stages.py [--task blobs-noniid,cmnist-noniid] [--seeds 1] [--home FOLDER]

Peers that have hardly learnt make each other worse: the penalty of equation 11 draws an expert towards its peers' outputs.
The paper states neither the stages' lengths nor lambda.  For each share of the second stage and each ramp of lambda, this script
fits dcfm-a with few steps per silo, where the choice matters, and prints the score on *seen* combinations; held-out scores are
not read.  The rule: among all settings whose seen score is within `TOLERANCE` of the best on every task, take the one with the
longest first stage, because peers are frozen when they are sent, so that the first stage determines what they know.  Of two such
settings, take the one with a ramp: its last step has the whole lambda too, and the expert follows its own data first.

Result with 100 steps per silo on blobs-noniid (three seeds): for second_share 0.25, SW2 is 0.146 without a ramp and 0.142 with
one; for 0.5, it is 0.181 without a ramp.  The shares of samples in their mode are 0.938, 0.930 and 0.906 (two seeds, ddm 0.912).
Hence the defaults are 0.25 and a ramp over each whole stage.  With 500 steps on cmnist-noniid nothing differed (0.113 to 0.120):
such weak experts show no difference between the settings.

Finished runs are read from the home folder, so that an interrupted search can continue.  The search takes about 8 CPU minutes.
"""

from __future__ import annotations

import argparse
import itertools

from compbench.api.schemas import RunRequest
from compbench.runner.one_run import run
from compbench.sweep.parse import parse_overrides
from compbench.system.home import Home

TASKS = {
    "blobs-noniid": ("seen_sw2", {"budget.train_steps": 100}),
    "cmnist-noniid": ("seen_accuracy", {"budget.train_steps": 1500, "budget.width": 16, "task.silos": 2}),
}
"""For each task, a score, and a budget at which experts are undertrained."""
SHARES, RAMPS = (0.25, 0.5), (0.0, 1.0)
TOLERANCE = 0.03
"""About a standard error of the accuracy of 300 answers, half of them right; in SW2, a tenth of a mode's standard deviation."""


def seen_score(method: str, task: str, settings: dict[str, object], *, seeds: range, home: str) -> float:
    """Mean seen score over seeds, of runs at the task's small budget; distances are negated, so that higher is better."""
    name, overrides = TASKS[task]
    values = []
    for seed in seeds:
        request = RunRequest(
            task=task,
            method=method,
            seed=seed,
            device="cpu",
            threads=1,
            source="embedded",
            home=home,
            overrides={**overrides, **settings},
        )
        record = run(request, in_process=True).record
        assert record is not None
        (score,) = [score for score in record.scores if score.name == name]
        assert score.value is not None
        values.append(score.value if score.direction == "higher" else -score.value)
    return sum(values) / len(values)


def chosen(found: dict[tuple[float, float], list[float]]) -> tuple[float, float]:
    """The (share, ramp) that the rule chooses from {(share, ramp): seen scores, one per task}."""
    best = [max(column) for column in zip(*found.values(), strict=True)]
    fair = [key for key, scores in found.items() if all(a >= b - TOLERANCE for a, b in zip(scores, best, strict=True))]
    if not fair:
        return max(found, key=lambda key: sum(found[key]))
    return min(fair, key=lambda key: (key[0], -key[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default=",".join(TASKS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--home", default=str(Home.of_user().root))
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="in addition to each task's own: task.silos=3 ..."
    )
    asked = parser.parse_args()
    changed = parse_overrides(asked.set)
    TASKS.update({task: (score, {**overrides, **changed}) for task, (score, overrides) in TASKS.items()})
    tasks, seeds = asked.task.split(","), range(asked.seeds)
    print("second_share ramp  " + "  ".join(f"{task} {TASKS[task][0]}" for task in tasks))
    found: dict[tuple[float, float], list[float]] = {}
    for share, ramp in itertools.product(SHARES, RAMPS):
        settings = {"second_share": share, "ramp": ramp}
        found[share, ramp] = [seen_score("dcfm-a", task, settings, seeds=seeds, home=asked.home) for task in tasks]
        cells = "  ".join(f"{score:.3f}" for score in found[share, ramp])
        print(f"{share:12g} {ramp:4g}  {cells}", flush=True)
    for name, settings in {"ddm": {}, "ddm+L": {"local_ci": True}}.items():
        cells = [seen_score("ddm", task, settings, seeds=seeds, home=asked.home) for task in tasks]
        print(f"{name:>17s}  {'  '.join(f'{score:.3f}' for score in cells)}", flush=True)
    print("chosen: second_share = {:g}, ramp = {:g}".format(*chosen(found)))


if __name__ == "__main__":
    main()
