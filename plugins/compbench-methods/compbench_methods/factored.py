"""One learnt effect per factor, added: h <- h + sum_k (gamma_k(c_k) * h + beta_k(c_k)) at its middle.

Compositional Flow Matching with Factored Velocity Fields (FVF), equation 1 and section 5.  The input of each head is its factor's
one-hot minus the training mean; biases remain.  A head for a new factor can be trained alone on a frozen model.

Theirs: mono's head has 6 C hidden units, and each of the heads of six or seven factors has C.
Ours: each head has 6 C over the number of factors, rounded to whole C, and at least C.  So the number of parameters is within a
tenth of mono's with one to three factors and with five to seven, but larger with four (by 17 % on `queens-8` at `standard`) and
with more than seven (by 51 % on `sat-20`, which has 12, and by 13 % on `chest-noniid`, which has 14).
Why: with six or seven factors this is the paper's network, and no head has fewer hidden units than the paper's.

Theirs: the fit has 25,600,000 examples, and the UNet has 64 channels on pixels and predicts velocities.
Ours: at `standard` the fit has 211,200 on Shapes3D, and the UNet has 32 channels on patches of 4 pixels and predicts the denoised
picture; `--preset paper` has the paper's network and number of examples.
Why: `standard` is limited to half an hour on two cores.
"""

from __future__ import annotations

import copy
import re
from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from compbench import CompbenchError, Context, Method, MethodSettings, Problem, Request, hookimpl
from compbench.flow.encode import centred_one_hot
from compbench.flow.nets import VelocityNet, backbone, head, head_hidden, velocity_net
from compbench.flow.path import logit_normal, noise_side
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train

TIMES = {"noise-side": noise_side, "logit-normal": logit_normal}


class Settings(MethodSettings):
    head_width: float = Field(
        1.0, gt=0, le=8, description="hidden units of each head, in multiples of the protocol's C (256 at the paper's width)"
    )

    extension_times: Literal["noise-side", "logit-normal"] = Field(
        "noise-side",
        description="distribution of the times at which a new head is trained: u^2 (not the paper's; it needs fewer steps), "
        "or the paper's logit-normal",
    )


class FactorHead(nn.Module):
    """delta_k: maps one factor's values (B,), as centred one-hots, to gamma_k and beta_k concatenated, (B, 2 C)."""

    def __init__(self, frequencies: tuple[float, ...], *, hidden: int, channels: int) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.tensor(frequencies))
        self.head = head(len(frequencies), hidden, channels)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(centred_one_hot(values, self.frequencies))


class FactoredConditioning(nn.Module):
    """sum_k delta_k: conditions (B, F) -> (B, 2 C).  Heads are kept by factor name, so that one can be added."""

    def __init__(self, names: tuple[str, ...], heads: dict[str, FactorHead]) -> None:
        super().__init__()
        self.names = names
        self.heads = nn.ModuleDict({_key(name): head for name, head in heads.items()})

    def forward(self, condition: Tensor) -> Tensor:
        deltas = [self.heads[_key(name)](condition[:, k]) for k, name in enumerate(self.names)]
        return torch.stack(deltas).sum(0)


def build(settings: Settings, problem: Problem) -> VelocityNet:
    """The untrained network."""
    trunk = backbone(problem.event, problem.budget)
    hidden = round(settings.head_width * head_hidden(trunk.mid_channels, len(problem.space)))
    heads = {
        name: FactorHead(own, hidden=hidden, channels=trunk.mid_channels)
        for name, own in zip(problem.space.names, problem.frequencies(), strict=True)
    }
    conditioning = FactoredConditioning(problem.space.names, heads)
    return velocity_net(trunk, conditioning, problem.budget)


def fit(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Flow matching on all training data."""
    net = build(settings, problem)
    train(net, flow_matching_loss, problem.federation.pooled(), problem.budget, ctx)
    return net


def extend(settings: Settings, net: VelocityNet, factor: str, problem: Problem, ctx: Context) -> VelocityNet:
    """Freeze a model, add a head for `factor`, and train that head alone.  FVF, extension experiment.

    Args:
        settings: this method's settings.
        net: a model of `problem.space.without(factor)`; it is not changed.
        factor: name of the new factor.
        problem: the larger space's problem; conditions follow its order.
        ctx: the stage's context.

    Returns:
        a model of the larger space; before training it equals the smaller one, because a new head's output is zero.
    """
    known = net.conditioning.names
    if set(known) != set(problem.space.names) - {factor}:
        raise CompbenchError(f"a model of {', '.join(known)} does not become one of this task by adding '{factor}'.")
    extended = copy.deepcopy(net).requires_grad_(False)
    hidden = extended.conditioning.heads[_key(known[0])].head[0].out_features
    frequencies = problem.frequencies()[problem.space.index(factor)]
    extended.conditioning.heads[_key(factor)] = FactorHead(frequencies, hidden=hidden, channels=net.backbone.mid_channels)
    extended.conditioning.names = problem.space.names
    budget = problem.budget.model_copy(update={"train_steps": max(problem.budget.extend_steps, 1)})
    loss = partial(flow_matching_loss, times=TIMES[settings.extension_times])
    train(extended, loss, problem.federation.pooled(), budget, ctx)
    return extended


@torch.no_grad()
def sample(settings: Settings, net: VelocityNet, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """Euler's steps along v(x_t, t | c)."""

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return net(x, t, request.condition)

    return answer(velocity, request, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """One evaluation per step."""
    return problem.budget.sample_steps


def _key(name: str) -> str:
    """A factor's name as a submodule's name, which may not contain a dot."""
    return "factor_" + re.sub(r"\W", "_", name)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="factored",
            settings=Settings,
            fit=fit,
            sample=sample,
            extend=extend,
            build=build,
            evaluations=evaluations,
            version=2,
        ),
    )
