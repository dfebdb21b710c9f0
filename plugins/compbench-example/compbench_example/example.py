"""Guided flow matching: v = v(x, t | NULL) + w (v(x, t | c) - v(x, t | NULL)).

Ho & Salimans 2022.
"""

# `compbench list` shows the first line above, `info` the others too.  Write your own there.

import torch
from compbench import NULL, Method, MethodSettings, hookimpl
from compbench.flow.compose import guide
from compbench.flow.nets import monolithic_net
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train
from pydantic import Field

COMPBENCH_API = 1


class Settings(MethodSettings):
    guidance_weight: float = Field(1.5, ge=0, le=20, description="w; 1 is no guidance")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of rows trained on NULL")


def build(settings, problem):
    return monolithic_net(problem)


def fit(settings, problem, ctx):
    def loss(net, batch, generator):
        rows = (len(batch.condition), 1)
        drop = torch.rand(rows, generator=generator, device=generator.device)
        condition = batch.condition.masked_fill(drop < settings.dropout, NULL)  # (B, F)
        return flow_matching_loss(net, batch._replace(condition=condition), generator)

    net = build(settings, problem)
    return train(net, loss, problem.federation.pooled(), problem.budget, ctx)


@torch.no_grad()
def sample(settings, net, request, ctx):  # noise x0 (B, *D) -> samples (B, *D)
    conditions = torch.stack([torch.full_like(request.condition, NULL), request.condition])

    def velocity(x, t):  # points (B, *D), times (B,) from 0 (noise) to 1 (data) -> (B, *D)
        with ctx.autocast():
            v_null, v_cond = net.stacked(x, t, conditions)  # one batch for both
        return guide(v_null, v_cond, settings.guidance_weight)

    return answer(velocity, request, num_steps=net.sample_steps)


def evaluations(settings, problem):
    return 2 * problem.budget.sample_steps


@hookimpl
def compbench_methods():
    functions = {"fit": fit, "sample": sample, "build": build}
    return (Method("example", Settings, **functions, evaluations=evaluations),)
