"""The order of low-rank's four ablations, with many seeds: all of them trained at once, then paired differences.

    python experiments/low_rank_ablations.py [--seeds 20] [--steps 1000] [--device cuda]

16 x 16 pixels, a 10 x 10 square held out in the corner or the centre, smaller than the board's so that many seeds are
affordable; images are asked of the averaged weights.  About 2 CPU minutes for 20 seeds.
"""

from __future__ import annotations

import argparse

import torch
from many import train_many
from torch import Generator, Tensor

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import TaskContext
from compbench.board.statistics import interval, mean
from compbench.data.bumps import as_upright, blank_level, bumps
from compbench.flow.decoders import denormals_flushed
from compbench.flow.low_rank_maps import LowRankDecoder, RankSettings, penalised_loss
from compbench.system import devices
from compbench.tasks.bump import Settings, make_task

ABLATIONS = {"none": (0.0, 0.0), "entropy": (0.1, 0.0), "variance": (0.0, 0.01), "both": (0.1, 0.01)}
SQUARES = {"bump-corner": (6, 15), "bump-center": (3, 12)}
SIZE, RATE_FACTOR = 16, 3.0


def heldout_errors(task_name: str, seeds: range, steps: int, weights: tuple[float, float], device: torch.device) -> list[float]:
    """MSE over blank on held-out places, by seed."""
    first, last = SQUARES[task_name]
    task = make_task(task_name, Settings(size=SIZE, first=first, last=last))
    budget = task.budgets["quick"]
    budget = budget.model_copy(update={"train_steps": steps, "learning_rate": RATE_FACTOR * budget.learning_rate})
    silo = task.open(TaskContext(device, "fp32", 0, None, None, None)).problem(budget).federation.pooled()  # type: ignore[arg-type]
    nets = []
    for seed in seeds:
        torch.manual_seed(seed)
        nets.append(LowRankDecoder((SIZE, SIZE), (1, SIZE, SIZE), RankSettings()))
    generators = [Generator().manual_seed(seed) for seed in seeds]
    with denormals_flushed():
        train_many(
            nets,
            penalised_loss,
            [silo] * len(nets),
            budget,
            Context(device, "fp32", Generator(), NoCheckpoints(), compile=device.type == "cuda"),
            generators=generators,
            weights=torch.tensor([weights] * len(nets)),
        )
    cells = torch.tensor(task.holdout.cells)
    truth = bumps(cells, size=SIZE, sigma=1.0)
    return [over_blank(as_upright(net.cpu()(cells).detach()), truth, cells) for net in nets]


def over_blank(made: Tensor, truth: Tensor, cells: Tensor) -> float:
    """MSE over that of a blank image."""
    return (made - truth).square().mean().item() / blank_level(cells, size=SIZE, sigma=1.0)


def cell(found: list[float]) -> str:
    """Mean and 95 % interval of the mean."""
    spread = interval(found)
    return f"{mean(found):.3f}" + (f" [{spread.low:.3f}, {spread.high:.3f}]" if spread else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tasks", default=",".join(SQUARES))
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    device = devices.resolve(asked.device)
    torch.set_num_threads(1)
    for task in asked.tasks.split(","):
        found = {name: heldout_errors(task, range(asked.seeds), asked.steps, own, device) for name, own in ABLATIONS.items()}
        print(f"\n{task}: held-out MSE over blank, {asked.seeds} seeds")
        for name, errors in found.items():
            line = f"  {name:9s} {cell(errors)}"
            if name != "both":
                paired = [both - other for both, other in zip(found["both"], errors, strict=True)]
                better = mean([float(difference < 0) for difference in paired])
                line += f"   both minus it, paired: {cell(paired)}, lower in {better:.0%} of seeds"
            print(line, flush=True)


if __name__ == "__main__":
    main()
