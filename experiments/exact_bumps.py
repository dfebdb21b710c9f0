"""Where a perfect network composed around NULL places bumps: the closed-form optimum of slices and of CoInD.

    python experiments/exact_bumps.py

A bump task has one image d_ij per seen cell, so at a point x_t of the path the best denoised images given only x = i (a_i), only
y = j (b_j), nothing (z) and both (v_ij) are those that minimise

    sum_ij W_ij ( p_full |v_ij - d_ij|^2 + p_x |a_i - d_ij|^2 + p_y |b_j - d_ij|^2 + p_null |z - d_ij|^2
                  + lambda |a_i + b_j - z - v_ij|^2 ),    W_ij = p(cell ij | x_t)

with the probabilities p(m) of masks that `coind` uses.  After v_ij is eliminated, the last line becomes |a_i + b_j - z - d_ij|^2
with the weight kappa = p_full lambda / (p_full + lambda): 2 N + 1 linear equations per point.  lambda = 0 gives slices, whose
optimum does not depend on the masks.  Samples follow a_i + b_j - z by the task's Euler steps.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from compbench.data.bumps import as_upright, bumps
from compbench.flow.masking import Masking
from compbench.flow.path import LinearPath, denoised_to_velocity
from compbench.flow.silos import DecentralisedSettings
from compbench.flow.solver import euler
from compbench.metrics.localisation import localise, shaped
from compbench.tasks.bump import SQUARES, Settings, images, make_task

MASKING = DecentralisedSettings().masking
"""The default masks of `coind`."""
WEIGHTS = (0.0, 1.0, 100.0)
"""Values of lambda; the default of `coind` is 1."""
NUM_SEEDS = 3


class Optimum(NamedTuple):
    """The best denoised images at B points: given only x, given only y, (B, N, D) each, and given nothing, (B, D)."""

    x: Tensor
    y: Tensor
    nothing: Tensor

    def composed(self, cells: Tensor) -> Tensor:
        """a_i + b_j - z for one cell per point: (B, 2) -> (B, D)."""
        rows = torch.arange(len(cells))
        return self.x[rows, cells[:, 0]] + self.y[rows, cells[:, 1]] - self.nothing


def log_posterior(x_t: Tensor, t: float, table: Tensor, seen: Tensor) -> Tensor:
    """log W_ij up to a constant, -inf at cells without data: points (B, D), images (N, N, D), seen (N, N) -> (B, N, N)."""
    distances = torch.cdist(x_t, t * table.flatten(0, 1)).square().unflatten(1, seen.shape)
    return (-distances / (2 * (1 - t) ** 2)).masked_fill(~seen, -torch.inf)


def optimum(log_weights: Tensor, table: Tensor, masking: Masking, independence: float) -> Optimum:
    """The minimiser of the loss above; each equation is divided by the weight of its own value, however small that is.

    Args:
        log_weights: log W, (B, N, N).
        table: d_ij, (N, N, D); where W_ij is 0, its value does not matter.
        masking: p(m).
        independence: lambda.
    """
    size = len(table)
    along_y, along_x = log_weights.softmax(2), log_weights.softmax(1)  # p(j | i), p(i | j)
    both = log_weights.flatten(1).softmax(1).unflatten(1, (size, size))
    means = torch.cat(
        [
            torch.einsum("bij,ijd->bid", along_y, table),
            torch.einsum("bij,ijd->bjd", along_x, table),
            torch.einsum("bij,ijd->bd", both, table)[:, None],
        ],
        dim=1,
    )  # (B, 2N + 1, D)
    kappa = masking.full * independence / (masking.full + independence)
    alone, nothing = masking.marginal / 2, masking.unconditional
    matrix = torch.diag(torch.tensor([alone + kappa] * 2 * size + [nothing + kappa], dtype=table.dtype)).repeat(len(both), 1, 1)
    matrix[:, :size, size:-1] = kappa * along_y
    matrix[:, size:-1, :size] = kappa * along_x.mT
    matrix[:, :-1, -1] = -kappa
    matrix[:, -1, :-1] = -kappa * torch.cat([both.sum(2), both.sum(1)], dim=1)
    sides = torch.tensor([alone + kappa] * 2 * size + [nothing - kappa], dtype=table.dtype)
    solved = torch.linalg.solve(matrix, sides[:, None] * means)
    return Optimum(solved[:, :size], solved[:, size:-1], solved[:, -1])


def drawn(settings: Settings, seen: Tensor, independence: float, seed: int, num_steps: int) -> Tensor:
    """One upright sample of each cell, (N N, N, N), x first."""
    size, path = settings.size, LinearPath()
    cells = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    table = images(cells, settings).double().flatten(1).unflatten(0, (size, size))

    def velocity(x_t: Tensor, t: Tensor) -> Tensor:
        best = optimum(log_posterior(x_t, t[0].item(), table, seen), table, MASKING, independence)
        return denoised_to_velocity(path, best.composed(cells), x_t, t)

    noise = torch.randn(len(cells), size * size, generator=Generator().manual_seed(seed), dtype=torch.double)
    return as_upright(euler(velocity, noise, num_steps=num_steps).float().unflatten(1, (1, size, size)))


class Row(NamedTuple):
    """Shares of images with the bump in the right place and shape, and with x or y right; the median of the brightest pixels."""

    held_out: float
    seen: float
    either: float
    peak: float


def row(name: str, independence: float) -> Row:
    """The scores of a perfect network's samples on a bump task."""
    settings = SQUARES[name]
    task = make_task(name, settings)
    seen = torch.ones(settings.size, settings.size, dtype=torch.bool)
    seen[tuple(torch.tensor(task.holdout.cells).T)] = False
    cells = torch.cartesian_prod(torch.arange(settings.size), torch.arange(settings.size)).repeat(NUM_SEEDS, 1)
    num_steps = task.budgets["standard"].sample_steps
    made = torch.cat([drawn(settings, seen, independence, seed, num_steps) for seed in range(NUM_SEEDS)])
    right = shaped(made, bumps(cells, size=settings.size, sigma=settings.sigma), cells).float()
    found, known = localise(made, cells), seen.flatten().repeat(NUM_SEEDS)
    either = (found.x | found.y).float().mean().item()
    return Row(right[~known].mean().item(), right[known].mean().item(), either, made.flatten(1).amax(1).median().item())


def main() -> None:
    print("| | lambda | held out | seen | x or y right | brightest pixel |\n| --- | --- | --- | --- | --- | --- |")
    for name in ("bump-center", "bump-corner"):
        for independence in WEIGHTS:
            found = row(name, independence)
            scores = f"{found.held_out:.2f} | {found.seen:.2f} | {found.either:.2f} | {found.peak:.2f}"
            print(f"| `{name}` | {independence:g} | {scores} |", flush=True)


if __name__ == "__main__":
    main()
