"""Guided flow matching written by hand: keeps the contract.  Bugs are planted in copies of this file, one in each.

v = v(x, t | null) + w (v(x, t | c) - v(x, t | null)).  On several silos one round of federated averaging.
"""

import copy

import torch
from pydantic import Field
from torch import nn

from compbench.api.context import Steps
from compbench.api.factors import NULL
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Method, MethodSettings
from compbench.flow.encode import one_hots
from compbench.flow.silos import recipe
from compbench.system.errors import Cancelled

MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class Settings(MethodSettings):
    guidance_weight: float = Field(1.5, ge=0, le=10, description="w; 0 ignores c, 1 is plain conditional")
    null_share: float = Field(0.2, ge=0, le=1, description="share of training conditions that are left open")


class Net(nn.Module):
    def __init__(self, problem):
        super().__init__()
        self.sizes, self.num_steps = problem.space.sizes, problem.budget.sample_steps
        entries = torch.Size(problem.event.shape).numel()
        self.hidden = nn.Linear(entries + 1 + sum(self.sizes), 2 * problem.budget.width)
        self.last = nn.Linear(2 * problem.budget.width, entries)

    def forward(self, x, t, condition):
        codes = one_hots(condition, self.sizes)
        return self.last(torch.relu(self.hidden(torch.cat([x.flatten(1), t[:, None], codes], dim=1)))).view_as(x)


def build(settings, problem):
    return Net(problem)


def train(settings, net, silo, budget, ctx):
    net.to(ctx.device)
    average, names = copy.deepcopy(net), dict(net.named_parameters())
    optimiser = torch.optim.Adam(net.parameters(), lr=budget.learning_rate)
    first = 0

    def save(step):
        tensors = {"generator": ctx.generator.get_state()}
        for name, parameter in names.items():
            tensors |= {f"weight.{name}": parameter, f"average.{name}": average.get_parameter(name)}
            tensors |= {f"{moment}.{name}": optimiser.state[parameter][moment] for moment in MOMENTS if step}
        ctx.checkpoints.save(tensors, {"step": step})

    found = ctx.checkpoints.load()
    if found is not None:
        tensors, facts = found
        first = facts["step"]
        for name, parameter in names.items():
            parameter.data.copy_(tensors[f"weight.{name}"])
            average.get_parameter(name).data.copy_(tensors[f"average.{name}"])
            optimiser.state[parameter] = {moment: tensors[f"{moment}.{name}"] for moment in MOMENTS if first}
        ctx.generator.set_state(tensors["generator"])
    for step in range(first, budget.train_steps):
        if ctx.cancelled():
            save(step)
            raise Cancelled(f"stopped before step {step}")
        batch = silo.batch(budget.batch_size, ctx.generator)
        x0 = torch.randn(batch.x1.shape, generator=ctx.generator).to(ctx.device)
        t = torch.rand(len(x0), generator=ctx.generator).to(ctx.device)
        share = torch.rand(len(x0), 1, generator=ctx.generator).to(ctx.device)
        condition = batch.condition.masked_fill(share < settings.null_share, NULL)
        at = t.view(-1, *[1] * (x0.ndim - 1))
        loss = (net((1 - at) * x0 + at * batch.x1, t, condition) - (batch.x1 - x0)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for name, parameter in names.items():
                average.get_parameter(name).lerp_(parameter, 1 - min(budget.ema_decay, (1 + step) / (10 + step)))
        ctx.progress(step + 1, budget.train_steps)
    return average.eval()


def fit(settings, problem, ctx):
    net, federation = build(settings, problem), problem.federation
    if len(federation) == 1:
        return train(settings, net, federation.pooled(), problem.budget, ctx)
    steps = Steps(ctx.progress, len(federation) * problem.budget.train_steps)
    make, budget = recipe(build, settings, problem), problem.budget

    def work(silo, received, own):
        return train(settings, make(), silo, budget, own).state_dict()

    found = federation.run(work, ctx, like=net.state_dict(), stage="local", steps=steps)
    net.load_state_dict({name: sum(one[name] for one in found) / len(found) for name in found[0]})
    return net.to(ctx.device).eval()


@torch.no_grad()
def sample(settings, net, request, ctx):
    x, null = request.x0, torch.full_like(request.condition, NULL)
    for step in range(net.num_steps):
        t = torch.full((len(x),), step / net.num_steps, device=x.device)
        v_null, v_codes = net(x, t, null), net(x, t, request.condition)
        x = x + (v_null + settings.guidance_weight * (v_codes - v_null)) / net.num_steps
        if request.known is not None:
            x = torch.where(request.known_mask, torch.lerp(request.x0, request.known, (step + 1) / net.num_steps), x)
    return x


def evaluations(settings, problem):
    return 2 * problem.budget.sample_steps


@hookimpl
def compbench_methods():
    method = Method(
        name="planted",
        settings=Settings,
        fit=fit,
        sample=sample,
        build=build,
        evaluations=evaluations,
        kinds=("vector", "trajectory"),
        pools_silos=False,
        one_silo=True,
    )
    return (method,)
