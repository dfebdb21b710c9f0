"""Adds and subtracts velocities of seen combinations: v = v(c1, a2) + v(a1, c2) - v(a1, a2), averaged over anchors a.

Projective composition (Bradley et al. 2025, arXiv 2502.04549) with a seen combination as background, as in perturbation tasks.
A seen combination, or a condition that leaves a factor of the holdout open, is not composed: all num_anchors (P + 1) members are
this condition, so it costs as many evaluations as a held-out one (P is the number of the holdout's factors).  The method refuses
a task in which some held-out cell has no anchor: each rectangle with this cell as a corner has another corner that is not seen.

Theirs: one background distribution serves all combinations, and samples follow the reverse diffusion of the composed scores
(as Catastrophic Compositional Generation, section 4.2, describes it).
Ours: each held-out cell has seen combinations as backgrounds, four by default; velocities are composed and averaged over them,
and samples follow the flow.
Why: a factor grid has no common background, and nothing makes one anchor better than another; solver and steps are those of
`mono`.

Figures: this project has no copy of the paper, so none of its figures is reproduced.  Where corners of a square add up, the
corner that was never seen is reached (`plugins/compbench-methods/tests/test_composers.py`).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from compbench import Context, Holdout, Method, MethodSettings, Problem, Refused, Request, Weighted, hookimpl
from compbench.flow.compose import compose
from compbench.flow.nets import VelocityNet, monolithic_net
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train


class Settings(MethodSettings):
    head_width: float = Field(
        1.0, gt=0, le=8, description="hidden units of the head, in multiples of the protocol's 6 C (1536 at the paper's width)"
    )
    num_anchors: int = Field(
        4, ge=1, le=100, description="number of anchors to average over for a held-out cell; fewer are repeated"
    )


def spread(holdout: Holdout, num_anchors: int) -> Tensor:
    """The anchors of each held-out cell, evenly picked, (cells, num_anchors, P).  Raises Refused if a cell has none."""
    rows = []
    for cell in holdout.cells:
        found = holdout.anchors(cell)
        if not found:
            raise Refused(f"the held-out cell {cell} has no anchor: no rectangle with it as a corner has three seen corners.")
        rows.append([found[j * len(found) // num_anchors] for j in range(num_anchors)])
    return torch.tensor(rows, dtype=torch.long).view(len(rows), num_anchors, len(holdout.factors))


def build(settings: Settings, problem: Problem) -> VelocityNet:
    """The untrained network, with the anchors of every held-out cell."""
    net = monolithic_net(problem, head_width=settings.head_width)
    net.register_buffer("cells", torch.tensor(problem.holdout.cells, dtype=torch.long).view(-1, len(problem.holdout.factors)))
    net.register_buffer("anchors", spread(problem.holdout, settings.num_anchors))
    net.pattern = list(problem.holdout.factors)
    return net


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Flow matching on all training data, on whole conditions only: the fit of mono."""
    net = build(settings, problem)
    train(net, flow_matching_loss, problem.federation.pooled(), problem.budget, ctx)
    return net


def composition(net: VelocityNet, condition: Tensor) -> list[Weighted]:
    """(P + 1) members per anchor, whose weights sum to 1; for a seen condition all members are that condition."""
    same = (condition[:, None, net.pattern] == net.cells).all(-1)  # (B, cells)
    if not len(net.cells):
        return [Weighted(1.0, condition)]
    held, which = same.any(1), same.int().argmax(1)
    count, factors = net.anchors.shape[1], len(net.pattern)
    members = []
    for number in range(count):
        anchor = condition.clone()
        anchor[:, net.pattern] = torch.where(held[:, None], net.anchors[which, number], condition[:, net.pattern])
        members.append(Weighted((1 - factors) / count, anchor))
        for position in net.pattern:
            moved = anchor.clone()
            moved[:, position] = condition[:, position]
            members.append(Weighted(1 / count, moved))
    return members


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along the anchored velocity, all members in one forward."""
    members = composition(net, request.condition)

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return compose(net, x, t, members)

    return answer(velocity, request, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """At each step, for each anchor: one evaluation of the anchor, and one for each factor of the holdout."""
    return problem.budget.sample_steps * settings.num_anchors * (len(problem.holdout.factors) + 1)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="anchored",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=evaluations,
            needs=("anchors",),
        ),
    )
