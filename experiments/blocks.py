"""Compare penalties and masks on an exact toy problem: six factors, each a position on a circle in two coordinates of its own.

    x1 = (u(c_1), ..., u(c_6)) + 0.15 e,    u(v) = (cos pi v / 2, sin pi v / 2),  v = 0 ... 3

    python experiments/blocks.py coind [--seeds 2]
    python experiments/blocks.py masks [--seeds 2]

Factors affect different entries, so a composition around NULL is right by construction if all factors are independent.  Cells of
the first two factors are held out by parity, as in `medium` tasks, so these two are not independent: no mask removes that part of
the held-out error.  Each fit is the board's own MLP of 260,000 weights with 1,000 steps of 128; samples are composed with w = 1.
A factor is right if its two coordinates are nearest to its own position, within 4 standard deviations.

`coind` compares forms and masks of CoInD's penalty: only a pair of factors (version 1 of the method), or one factor against all
others.  `masks` compares masks of the fit that composing methods share.  Defaults are chosen by seen scores; held-out scores
are printed too, but not used.  A fit takes 10 to 50 s on one core.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from statistics import fmean
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.api.factors import NULL, Factor, FactorSpace, Holdout, Weighted
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem
from compbench.flow.compose import around_null, compose, stacked
from compbench.flow.independence import one_against_rest_loss
from compbench.flow.masking import Dropout, Law, Masking, masked, size_shares
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.path import LinearPath, logit_normal, point, target_velocity
from compbench.flow.solver import euler
from compbench.flow.train import Loss, flow_matching_loss, train

NUM_FACTORS, NUM_VALUES = 6, 4
STD = 0.15
SPACE = FactorSpace(Factor(name, NUM_VALUES) for name in "abcdef")
HOLDOUT = Holdout.by_rule(SPACE, ("a", "b"), lambda a, b: (a + b) % 2 == 1)
BUDGET = Budget(train_steps=1000, batch_size=128, width=96, learning_rate=2e-3, ema_decay=0.99, sample_steps=50)
NUM_SAMPLES = 800

PENALTIES = ("none", "pair", "rest")
COIND_MASKS: dict[str, Law] = {
    "0.7 / 0.2 / 0.1": Masking(full=0.7, marginal=0.2, unconditional=0.1),
    "independent 0.2": Dropout(0.2),
}
MASKS: dict[str, Law] = {
    "0.7 whole, 0.2 alone, 0.1 NULL": Masking(full=0.7, marginal=0.2, unconditional=0.1),
    "independent 0.1": Dropout(0.1),
    "independent 0.3": Dropout(0.3),
    "independent 0.5": Dropout(0.5),
    "even": Dropout(0.3, even=1.0),
    "half even, half independent 0.3": Dropout(0.3, even=0.5),
}


def places(values: Tensor) -> Tensor:
    """u of each value: (...) long -> (..., 2)."""
    angle = values * (2 * math.pi / NUM_VALUES)
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


class Blocks:
    """The seen examples, drawn exactly."""

    name, size = "blocks", 100_000

    def batch(self, size: int, generator: Generator) -> Batch:
        condition = HOLDOUT.draw(size, generator, heldout=False)
        centre = places(condition).flatten(1)
        return Batch(centre + STD * torch.randn(centre.shape, generator=generator), condition)


def problem() -> Problem:
    """The problem that a method gets."""
    event = Event("vector", (2 * NUM_FACTORS,))
    return Problem(SPACE, event, Federation([Blocks()]), BUDGET, HOLDOUT, composed=(0, 1))


def right(x: Tensor, condition: Tensor) -> Tensor:
    """Whether each factor of samples (B, 2 F) is at the position that conditions (B, F) request, bool (B, F)."""
    distances = (x.unflatten(1, (-1, 1, 2)) - places(torch.arange(NUM_VALUES))).norm(dim=-1)  # (B, F, values)
    nearest = distances.min(-1)
    return (nearest.indices == condition) & (nearest.values < 4 * STD)


class Found(NamedTuple):
    """Shares of samples that are right: in the two factors of the holdout, and in all factors for seen pairs."""

    held_out: float
    seen: float
    seen_all: float


def mean(found: list[Found]) -> Found:
    """The mean over seeds."""
    return Found(*map(fmean, zip(*found, strict=True)))


@torch.no_grad()
def scores(net: VelocityNet, members: Callable[[Tensor], list[Weighted]], seed: int) -> Found:
    """Scores of a composition's samples, for held-out and for seen conditions."""

    def correct(heldout: bool) -> Tensor:
        generator = Generator().manual_seed(1000 * seed + heldout)
        condition = HOLDOUT.draw(NUM_SAMPLES, generator, heldout=heldout)
        x0 = torch.randn(NUM_SAMPLES, 2 * NUM_FACTORS, generator=generator)
        composition = members(condition)
        return right(euler(lambda x, t: compose(net, x, t, composition), x0, num_steps=BUDGET.sample_steps), condition)

    held, seen = correct(True), correct(False)
    shares = (held[:, :2].all(1), seen[:, :2].all(1), seen.all(1))
    return Found(*(share.float().mean().item() for share in shares))


def slices(condition: Tensor) -> list[Weighted]:
    """NULL and each factor alone, w = 1."""
    return around_null(condition, [1.0] * NUM_FACTORS)


def whole(condition: Tensor) -> list[Weighted]:
    """The whole condition, without composition."""
    return [Weighted(1.0, condition)]


def fit(loss: Loss, seed: int) -> VelocityNet:
    """The board's network, trained as on the board."""
    torch.manual_seed(seed)
    given, ctx = problem(), Context(torch.device("cpu"), "fp32", Generator().manual_seed(seed), NoCheckpoints())
    net = monolithic_net(given)
    train(net, loss, given.federation.pooled(), given.budget, ctx)
    return net


def pair_loss(law: Law, independence: float) -> Loss:
    """Version 1 of `coind`: L_FM + lambda E || v(c_i) + v(c_j) - v(c_i, c_j) - v(NULL) ||^2, all other factors open.

    Times are those of version 3, so that the forms of the penalty are compared at equal times.
    """

    def loss(net: VelocityNet, batch: Batch, generator: Generator) -> Tensor:
        x0 = torch.randn(batch.x1.shape, generator=generator)
        t = logit_normal(len(x0), generator)
        path, asked = LinearPath(), masked(batch.condition, law, generator)
        order = torch.rand(batch.condition.shape, generator=generator).argsort(1)
        nothing = torch.full_like(asked, NULL)
        pair = [batch.condition.where(mask, nothing) for mask in (order == 0, order == 1, order < 2)]
        velocities = stacked(net, point(path, x0, batch.x1, t), t, torch.stack([asked, *pair, nothing]))
        penalty = (velocities[1] + velocities[2] - velocities[3] - velocities[4]).square().mean()
        return (velocities[0] - target_velocity(path, x0, batch.x1, t)).square().mean() + independence * penalty

    return loss


def coind_loss(penalty: str, law: Law) -> Loss:
    """The loss of one form of the penalty, lambda = 1."""
    return pair_loss(law, 1.0) if penalty == "pair" else one_against_rest_loss(law, float(penalty == "rest"))


def masked_loss(law: Law) -> Loss:
    """Flow matching on masked conditions, as in the fit that composing methods share."""

    def loss(net: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
        return flow_matching_loss(net, batch._replace(condition=masked(batch.condition, law, generator)), generator)

    return loss


def row(name: str, loss: Loss, seeds: range) -> str:
    """One line of the table: means over seeds for compositions and for whole conditions."""
    composed, outright = [], []
    for seed in seeds:
        net = fit(loss, seed)
        composed.append(scores(net, slices, seed))
        outright.append(scores(net, whole, seed))
    found, told = mean(composed), mean(outright)
    figures = (found.held_out, found.seen, found.seen_all, told.held_out, told.seen)
    return f"| {name} | " + " | ".join(f"{figure:.2f}" for figure in figures) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("coind", "masks"))
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    print("| | held out | seen | seen, all six right | asked outright: held out | seen |\n| --- | --- | --- | --- | --- | --- |")
    arms: dict[str, Loss] = {}
    if asked.what == "coind":
        arms = {f"{form}, {name}": coind_loss(form, law) for name, law in COIND_MASKS.items() for form in PENALTIES}
    for name, law in MASKS.items() if asked.what == "masks" else ():
        null, one, *_, every = size_shares(law, NUM_FACTORS)
        arms[f"{name} (NULL {null:.2g}, a factor {one / NUM_FACTORS:.2g}, whole {every:.2g})"] = masked_loss(law)
    for name, loss in arms.items():
        print(row(name, loss, range(asked.seeds)), flush=True)


if __name__ == "__main__":
    main()
