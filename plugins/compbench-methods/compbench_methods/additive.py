"""A real sample of the closest seen cell, shifted by the main effects of the factors in which it differs from the request.

    x(c) = x_n + sum_{k : c_k != c_nk} (e_k(c_k) - e_k(c_nk)),    n in argmax_n #{k given by c : c_nk = c_k}

    e = argmin_e sum_n |x_n - sum_k e_k(c_nk)|^2; among all minimisers e has the least norm

This row trains no network.  It extends the additive baseline x(c1, c2) = x(c1, a2) + mean(c2) - mean(a2), which beat deep models
of gene perturbations (Ahlmann-Eltze et al. 2025, Nature Methods); with two perturbations of a base both agree.  If the seen cells
do not identify the effects (`compbench info`: components, rank), the solution of least norm is used.  On data that are additive,
samples are exact wherever the effects are identified.

Theirs: single effects are differences of means from one control.
Ours: e_k(b) - e_k(a) is the difference of means with all other factors equal, averaged over the seen cells by least squares.
Why: a factor grid has no single control.

A factor that the request leaves open matches any value and shifts nothing.  The request's noise breaks ties.  If a request gives
entries, the example nearest to them is shifted, and the given entries are put in.  With several silos the data are pooled: the
row is a centralised reference.

Figures: the paper's figure is of 62 double perturbations of genes, and no task here has measured expression.  On data of two
perturbations that add up, the answer is exact (`plugins/compbench-methods/tests/test_learn_nothing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from compbench import NULL, Context, Method, Problem, Request, hookimpl
from compbench.flow.examples import DRAWN, Examples, KeepingSettings, closest, decoded, keep, with_given

TOLERANCE = 1e-9
"""Directions of the normal equations below this share of the largest eigenvalue count as not identified by the seen cells."""


class Additive(NamedTuple):
    """Kept examples and main effects.

    Attributes:
        examples: the examples that samples start from.
        effects: e, float32 (sum of sizes, *D): one row for each value, grouped by factor in the space's order.
        firsts: where each factor's values begin, (F,).
    """

    examples: Examples
    effects: Tensor
    firsts: Tensor


def fit(settings: KeepingSettings, problem: Problem, ctx: Context) -> Additive:
    """Keep training examples and regress them on their conditions; there are no training steps."""
    examples = keep(settings, problem, ctx)
    firsts = torch.tensor([0, *problem.space.sizes[:-1]], device=examples.condition.device).cumsum(0)
    return Additive(examples, main_effects(examples, problem.space.sizes), firsts)


def main_effects(examples: Examples, sizes: Sequence[int]) -> Tensor:
    """The least-squares e of least norm, float32 (sum of sizes, *D), from the normal equations in float64."""
    columns = [torch.nn.functional.one_hot(examples.condition[:, k], size) for k, size in enumerate(sizes)]
    design = torch.cat(columns, dim=1).float()  # (N, sum of sizes)
    gram, moments = design.T.double() @ design.double(), torch.zeros((), dtype=torch.float64, device=design.device)
    for rows, x1 in zip(design.split(DRAWN), examples.x1.split(DRAWN), strict=True):
        moments = moments + (rows.T @ decoded(x1).flatten(1)).double()  # (sum of sizes, d)
    solved = torch.linalg.pinv(gram, rtol=TOLERANCE, hermitian=True) @ moments
    return solved.float().unflatten(1, examples.x1.shape[1:])


@torch.no_grad()
def sample(settings: KeepingSettings, model: Additive, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """The closest kept example of each request, shifted by the main effects."""
    rows = closest(model.examples, request)
    x, own = model.examples.take(rows), model.examples.condition[rows]  # (B, *D), (B, F)
    for k, first in enumerate(model.firsts):
        asked = torch.where(request.condition[:, k] == NULL, own[:, k], request.condition[:, k])
        x = x + (model.effects[first + asked] - model.effects[first + own[:, k]])
    return with_given(x, request)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (Method(name="additive", settings=KeepingSettings, fit=fit, sample=sample, evaluations=lambda settings, problem: 0),)
