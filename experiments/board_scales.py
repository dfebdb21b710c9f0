"""Measure the scales of the board's shares: `python experiments/board_scales.py` writes `compbench/board/scales.json`.

A scale has, for each core task, the primary score of the best constant answer (`zero`) and of real data (`real`):

    accuracies    zero: a picture of one held-out cell, whatever the request, is right for 1 / (number of held-out cells);
                  real: the ceiling, from the records
    distances     zero: the distance of the seen data to the target; real: the floor, from the records, or else the distance of
                  two samples of the target; these are means over many pairs of samples of one size, independent of any run
    utility       zero: one label set, whatever the request; real: the ceiling, from the records
    class shares  zero: the distance of the sources' mean shares from the target's; real: the floor, from the records
    planning      zero: a plan that does nothing
    validity      zero: answers drawn without constraints; real: every answer is valid

Only tasks that are not stored yet are measured, unless `--all` is given; `--check` measures with few draws and compares.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy
import torch

from compbench.api.interfaces import SamplePair
from compbench.board.families import installed_families
from compbench.board.scale import FILE
from compbench.data.gaussians import Mixture, base_composition, product_of_gaussians
from compbench.registry.registry import Registry

NUM_POINTS, NUM_DRAWS = 5000, 100
ONE_PICTURE = {
    *("shapes3d-light", "shapes3d-medium", "shapes3d-heavy", "mpi3d-medium"),
    *("emoji-light", "emoji-medium", "emoji-heavy", "emoji-person"),
}
"""Image tasks whose conditions fix the whole picture, in addition to the tasks that provide their true picture."""
Draw = Callable[[torch.Generator], torch.Tensor]
"""A function: generator -> points (NUM_POINTS, 2)."""


def distance_scale(task: Any, draws: int) -> tuple[float, float]:
    """Mean SW2 of seen data to the target, and of the target to itself, over pairs of samples of `NUM_POINTS`."""
    from compbench.tasks.gaussian import distributions

    sources = distributions(task.name, task.settings)

    def seen(generator: torch.Generator) -> torch.Tensor:
        return torch.cat([law.sample(-(-NUM_POINTS // len(sources)), generator) for law in sources.values()])[:NUM_POINTS]

    return mean_distances(lambda generator: target(sources, generator), seen, draws)


def blobs_scale(task: Any, draws: int) -> tuple[float, float]:
    """The same for the mode that no silo has, against all modes that silos have."""
    from compbench.data.blob_mixture import HOLDOUT, MISSING, centre

    def points(cells: Sequence[tuple[int, ...]], generator: torch.Generator) -> torch.Tensor:
        centres = torch.tensor([centre(cell, task.settings) for cell in cells])
        centres = centres.repeat_interleave(-(-NUM_POINTS // len(cells)), 0)[:NUM_POINTS]
        return centres + task.settings.std * torch.randn(centres.shape, generator=generator)

    return mean_distances(
        lambda generator: points([MISSING], generator), lambda generator: points(HOLDOUT.seen_cells, generator), draws
    )


def shares_scale(task: Any) -> float:
    """Distance of the sources' mean class shares from the target's, exactly."""
    from compbench.data.room_shares import SOURCES, exact_shares
    from compbench.metrics.shares import total_variation

    where = task.name.rpartition("-")[2]
    sources = SOURCES[where].values()
    return total_variation([sum(column) / len(sources) for column in zip(*sources, strict=True)], exact_shares(where))


def validity_at_random(task: Any) -> float:
    """Share of valid answers among answers that are drawn without constraints."""
    from compbench.data.constraint_laws import laws_of, violations
    from compbench.tasks.constraints import KINDS, puzzle_of

    base, *groups = laws_of(puzzle_of(KINDS[task.name], task.settings)).values()
    signs = base.signs(20_000, torch.Generator().manual_seed(0))
    return (violations(groups, signs) == 0).double().mean().item()


def mean_distances(target: Draw, seen: Draw, draws: int) -> tuple[float, float]:
    """Mean SW2 between draws of `seen` and `target`, and between two draws of `target`."""
    metric = Registry().load("metrics", "sw2")
    chance, real = [], []
    for draw in range(draws):
        generator = torch.Generator().manual_seed(draw)
        one, other = target(generator), target(generator)
        for values, generated in ((chance, seen(generator)), (real, other)):
            pair = SamplePair(one, generated, other, no_features)
            values.append(metric.compute(pair, numpy.random.default_rng(draw)).value)
    return sum(chance) / draws, sum(real) / draws


def target(sources: dict[tuple[int, int], Mixture], generator: torch.Generator) -> torch.Tensor:
    parts = [sources[cell] for cell in ((1, 0), (0, 1), (0, 0))]
    if all(len(part.weights) == 1 for part in parts):
        return product_of_gaussians(parts, (1.0, 1.0, -1.0)).sample(NUM_POINTS, generator)
    return base_composition(*parts, NUM_POINTS, generator)


def no_features(extractor: str, which: str) -> numpy.ndarray:
    raise KeyError(extractor)


def scale(task: Any, family: str, draws: int) -> dict[str, Any]:
    many = task.truth is None and task.name not in ONE_PICTURE
    known = {"score": task.primary, "metric_version": None, "real": None, "many_pictures": many and task.event.kind == "image"}
    if task.primary == "heldout_sw2":
        chance, real = (blobs_scale if family == "silos" else distance_scale)(task, draws)
        version = Registry().load("metrics", "sw2").version
        return known | {"zero": rounded(chance), "real": rounded(real), "metric_version": version}
    if task.primary == "heldout_total_variation":
        version = Registry().load("metrics", "total_variation").version
        return known | {"zero": rounded(shares_scale(task)), "metric_version": version}
    if task.primary == "all_utility":
        from compbench.data.chest_findings import feasible, label_counts

        version = Registry().load("metrics", "utility").version
        return known | {"zero": rounded(1 / len(feasible(label_counts()))), "metric_version": version}
    if task.primary == "heldout_validity":
        return known | {"zero": rounded(validity_at_random(task)), "real": 1.0}
    return known | {"zero": 0.0 if family == "planning" else rounded(1 / len(task.holdout.cells))}


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def measure(draws: int, known: Collection[str] = ()) -> dict[str, Any]:
    """Scales of our tasks that count in a family, except the tasks in `known`."""
    registry = Registry()
    return {
        name: scale(registry.load("tasks", name), family, draws)
        for family, names in installed_families(registry).items()
        for name in names
        if name not in known and registry.entry("tasks", name).distribution == "compbench"
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the stored scales, to a tenth, and write nothing")
    parser.add_argument("--all", action="store_true", help="measure stored scales again")
    options = parser.parse_args()
    stored = json.loads(FILE.read_text())["tasks"]
    if not options.check:
        found = measure(NUM_DRAWS, () if options.all else stored)
        how = f"experiments/board_scales.py: {NUM_DRAWS} pairs of samples of {NUM_POINTS} points"
        FILE.write_text(json.dumps({"made_by": how, "tasks": {**stored, **found}}, indent=1, sort_keys=True) + "\n")
        return
    found = measure(10)
    wrong = [name for name in found if name not in stored or differs(found[name], stored[name])]
    print(f"stale: {', '.join(wrong)}" if wrong else "the stored scales are right")
    sys.exit(bool(wrong))


def differs(found: dict[str, Any], stored: dict[str, Any]) -> bool:
    if any(found[key] != stored[key] for key in ("score", "metric_version", "many_pictures")):
        return True
    pairs = [(found[key], stored[key]) for key in ("zero", "real")]
    return any((one is None) != (other is None) or abs((one or 0) - (other or 0)) > 0.1 * abs(other or 0) for one, other in pairs)


if __name__ == "__main__":
    main()
