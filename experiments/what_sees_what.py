"""How sensitive each distance in fixed features is to known changes of a task's real pictures, in multiples of the noise floor.

    python experiments/what_sees_what.py --output docs/what_sees_what.png
    python experiments/what_sees_what.py emoji-medium dsprites-light --pictures 300

Either all pictures are corrupted, by a 3 x 3 blur, noise, or a shift of two pixels; or their content is wrong: half of the values
of the first factor are missing (a mode), the last factor has only one value (a wrong factor), or each picture belongs to another
request (wrong pairs).  The floor compares real pictures with real ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import torch
from guidance_weights import context_of
from torch import Generator, Tensor
from torch.nn import functional

from compbench.api.factors import FactorSpace
from compbench.api.interfaces import SamplePair
from compbench.metrics.efficientnet import ImageNetFeatures
from compbench.registry.registry import Registry
from compbench.system.home import Home

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TASKS = ("emoji-medium", "shapes3d-medium", "dsprites-light", "cmnist-diagonal")
METRICS = ("fwd", "fd_imagenet", "fjd_imagenet")


def blurred(x: Tensor) -> Tensor:
    return functional.avg_pool2d(functional.pad(x.float(), (1, 1, 1, 1), mode="replicate"), 3, stride=1).round().to(torch.uint8)


def noisy(x: Tensor, deviation: float) -> Tensor:
    noise = torch.randn(x.shape, generator=Generator().manual_seed(2))
    return (x.float() + deviation * noise).clamp(0, 255).round().to(torch.uint8)


SPOILT: dict[str, Callable[[Tensor], Tensor]] = {
    "blur 3x3": blurred,
    "noise, sd 5": lambda x: noisy(x, 5),
    "noise, sd 15": lambda x: noisy(x, 15),
    "shift, 2 px": lambda x: torch.cat([x[..., 2:], x[..., -1:].expand(*x.shape[:-1], 2)], dim=-1),
}


def half_missing(condition: Tensor, space: FactorSpace) -> Tensor:
    """Conditions with the upper half of the first factor's values replaced by the lower half."""
    changed = condition.clone()
    changed[:, 0] %= max(1, space.sizes[0] // 2)
    return changed


def one_value(condition: Tensor, space: FactorSpace) -> Tensor:
    """Conditions with the first value of the last factor everywhere."""
    changed = condition.clone()
    changed[:, -1] = 0
    return changed


def wrong_pairs(condition: Tensor, space: FactorSpace) -> Tensor:
    """The same conditions in another order."""
    return condition[torch.randperm(len(condition), generator=Generator().manual_seed(6))]


SHOWN = {"half of a factor missing": half_missing, "one factor stuck": one_value, "wrong pairs": wrong_pairs}


def distances(name: str, count: int) -> dict[str, dict[str, float]]:
    """Each distance for each change, in multiples of its noise floor."""
    registry = Registry()
    task = registry.load("tasks", name)
    opened = task.open(context_of(task, registry, "quick", 0, Home.of_user().references))
    evaluation = opened.evaluation

    def pictures(condition: Tensor, seed: int) -> Tensor:
        generator = Generator().manual_seed(seed)
        if hasattr(evaluation, "real"):
            return evaluation.real.of(condition, generator).cpu()
        return evaluation._pictures(evaluation.lattices.refined(condition, generator)).cpu()

    asked, others = (task.space.uniform(count, Generator().manual_seed(seed)) for seed in (0, 1))
    conditions = {"real": asked, "floor": others, "generated": others}
    real, floor = pictures(asked, 3), pictures(others, 4)
    sets = {what: change(floor) for what, change in SPOILT.items()}
    sets |= {what: pictures(change(others, task.space), 5) for what, change in SHOWN.items()}
    network = ImageNetFeatures(torch.device("cpu"))
    known = {which: network(images).numpy() for which, images in (("real", real), ("floor", floor))}
    found = {}
    for what, images in sets.items():
        own = known | {"generated": network(images).numpy()}
        pair = SamplePair(real, images, floor, lambda extractor, which, own=own: own[which], conditions)
        values = {metric: registry.load("metrics", metric).compute(pair, numpy.random.default_rng(0)) for metric in METRICS}
        found[what] = {metric: value.value / value.floor for metric, value in values.items()}
        print(
            f"{name:<16} {what:<26} " + "  ".join(f"{metric} x{share:.2f}" for metric, share in found[what].items()), flush=True
        )
    return found


def figure(found: dict[str, dict[str, dict[str, float]]]) -> Figure:
    """A panel for each task with a bar for each change and distance, on a logarithmic axis with labels at 1, 2, 5, 10, ..."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    drawn = Figure(figsize=(3.2 * len(found), 3.4), layout="constrained")
    for axes, (name, changes) in zip(drawn.subplots(1, len(found), sharey=True, squeeze=False)[0], found.items(), strict=True):
        rows = numpy.arange(len(changes))
        for number, metric in enumerate(METRICS):
            axes.barh(rows + 0.26 * (number - 1), [each[metric] for each in changes.values()], 0.25, label=metric)
        axes.set(title=name, xscale="log", xlabel="multiple of the noise floor", yticks=rows, yticklabels=list(changes))
        axes.xaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter="{x:g}", minor_locator=NullLocator())
        axes.axvline(1, color="0.4", linewidth=0.8)
    axes.legend(frameon=False, fontsize="small")
    axes.invert_yaxis()
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS, metavar="TASK")
    parser.add_argument("--pictures", type=int, default=400)
    parser.add_argument("--output", type=Path, default=Path("what_sees_what.png"))
    asked = parser.parse_args()
    figure({name: distances(name, asked.pictures) for name in asked.tasks}).savefig(asked.output, dpi=110)
    print(asked.output)


if __name__ == "__main__":
    main()
