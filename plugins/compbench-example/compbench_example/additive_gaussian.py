"""Main effects only: x = b + sum_k m_k(c_k) + s e, fitted by least squares over the training stream."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench.errors import Cancelled
from compbench.flow.encode import one_hots
from compbench.hookspecs import hookimpl
from compbench.interfaces import Context, Method, MethodSettings, Problem, Request


class Settings(MethodSettings):
    ridge: float = Field(1e-6, gt=0, le=1, description="ridge penalty of the least squares, per example")


class MainEffects(nn.Module):
    """The mean of each value of each factor, and one spread for all entries."""

    def __init__(self, settings: Settings, problem: Problem) -> None:
        super().__init__()
        self.sizes, self.shape = problem.space.sizes, problem.event.shape
        inputs, outputs = 1 + sum(self.sizes), torch.Size(self.shape).numel()
        self.register_buffer("effects", torch.zeros(inputs, outputs))  # b on top of all m_k
        self.register_buffer("spread", torch.zeros(()))

    def design(self, condition: Tensor) -> Tensor:  # (B, F) -> (B, 1 + sum of sizes)
        return torch.cat([torch.ones(len(condition), 1, device=condition.device), one_hots(condition, self.sizes)], dim=1)


def fit(settings: Settings, problem: Problem, ctx: Context) -> MainEffects:
    model = MainEffects(settings, problem).to(ctx.device)
    silo, budget = problem.federation.pooled(), problem.budget
    gram, moment, square, count = 0.0, 0.0, 0.0, 0
    for step in range(budget.train_steps):
        if ctx.cancelled():
            raise Cancelled(f"stopped after {step} steps")
        batch = silo.batch(budget.batch_size, ctx.generator)
        design, x1 = model.design(batch.condition).double(), batch.x1.flatten(1).double()
        gram, moment = gram + design.T @ design, moment + design.T @ x1
        square, count = square + x1.square().sum(), count + len(x1)
        ctx.progress(step + 1, budget.train_steps)
    penalty = settings.ridge * count * torch.eye(len(gram), device=ctx.device, dtype=gram.dtype)
    effects = torch.linalg.solve(gram + penalty, moment)
    residual = square - 2 * (effects * moment).sum() + (effects * (gram @ effects)).sum()
    model.effects = effects.float()
    model.spread = (residual.clamp(min=0) / (count * moment.shape[1])).sqrt().float()
    return model.eval()


@torch.no_grad()
def sample(settings: Settings, model: MainEffects, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    mean = model.design(request.condition) @ model.effects
    return mean.view_as(request.x0) + model.spread * request.x0


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="additive-gaussian",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=MainEffects,
            evaluations=lambda settings, problem: 1,
        ),
    )
