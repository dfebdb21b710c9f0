"""Factor values become low-rank maps of pixels, followed by small convolutions.  Forced rendering, section 4.1.

On a deterministic task the method is a decoder by regression.  On others the maps are extra channels of a velocity network:

    v(x_t, t | c) = UNet([x_t, M_1(c_1), ..., M_F(c_F)], t)

A trajectory is treated as a picture with one row per channel: a map has a value for each channel at each frame.

The velocity network differs from `mono` in two things, the maps and the place where the condition enters.  A control separates
the two: with `told=head` the extra channels are the output of mono's head, equal at every pixel.  With `entropy_weight=0` and
`variance_weight=0` the maps are unconstrained.

Theirs: the paper has only the decoder.
Ours: if a condition has many samples, the maps condition a velocity network; the width of its UNet gives it as many parameters as
mono.
Why: a decoder by regression draws the mean of a condition's samples.

Theirs: on bumps of 32 x 32 pixels there are 1,000 epochs, about 20,000 steps, at a constant rate of 1e-3, with a weight decay of
1e-4 and neither clipping nor averages.
Ours: at `standard` there are 3,000 steps, the rate falls from 3e-3 to 0 along a cosine, and a moving average is sampled.
Why: all methods of a task have one budget.

Size: on bumps the decoder has the paper's form, with 0.01 of the parameters of `factored`.  On other tasks sizes are equal; up to
version 3 the velocity network had 1.17 times the parameters of `factored` on Shapes3D.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from compbench import Batch, Budget, Context, Event, Method, Problem, Refused, Request, hookimpl
from compbench.flow.decoders import RateSettings, denormals_flushed, regress, sample_decoder
from compbench.flow.encode import one_hots
from compbench.flow.low_rank_maps import LowRankDecoder, LowRankMaps, RankSettings
from compbench.flow.matching import matched_width, parameters_of
from compbench.flow.nets import SHORTEST_TIME_LEFT, Modulation, backbone, monolithic_net
from compbench.flow.path import per_sample
from compbench.flow.solver import answer
from compbench.flow.train import flow_matching_loss, train


class Settings(RankSettings, RateSettings):
    form: Literal["auto", "decoder", "velocity"] = Field(
        "auto", description="'auto': a decoder if each condition has one image, otherwise a velocity network"
    )
    told: Literal["maps", "head"] = Field(
        "maps",
        description="how a velocity network gets its condition: low-rank maps, or mono's head at every pixel (control)",
    )


class HeadMaps(nn.Module):
    """One head on the one-hots of all factors, the same at every pixel: conditions (B, F) -> maps (B, K, H, W).

    Args:
        sizes: number of values of each factor.
        side: (H, W).
        hidden: units of the head.
        num_maps: K.
    """

    def __init__(self, sizes: tuple[int, ...], side: tuple[int, ...], *, hidden: int, num_maps: int) -> None:
        super().__init__()
        self.sizes, self.side = sizes, side
        self.head = nn.Sequential(nn.Linear(sum(sizes), hidden), nn.SiLU(), nn.Linear(hidden, num_maps))

    def forward(self, condition: Tensor) -> Tensor:
        return self.head(one_hots(condition, self.sizes))[:, :, None, None].expand(-1, -1, *self.side)

    def penalty(self) -> Tensor:
        """Zero: a head has no penalty."""
        return self.head[0].weight.new_zeros(())


class RenderedVelocityNet(nn.Module):
    """A UNet that gets the condition only as maps next to x_t.

    Args:
        maps: conditions (B, F) -> (B, K, H, W); H and W are an image's sides, or a trajectory's channels and frames.
        num_maps: K.
        event: shape (C, H, W) of an image or (C, frames) of a trajectory.
        budget: width, patch, prediction and solver steps.
    """

    def __init__(self, maps: LowRankMaps | HeadMaps, num_maps: int, event: Event, budget: Budget) -> None:
        super().__init__()
        channels, *side = event.shape
        self.maps, self.channels, self.is_image = maps, channels, event.kind == "image"
        told = num_maps * (1 if self.is_image else channels)
        self.backbone = backbone(event._replace(shape=(channels + told, *side)), budget)
        self.sample_steps, self.prediction = budget.sample_steps, budget.prediction

    def forward(self, x_t: Tensor, t: Tensor, condition: Tensor) -> Tensor:
        """v(x_t, t | c) of points (B, *D), times (B,) and conditions (B, F), float32 (B, *D)."""
        maps = self.maps(condition).to(x_t.dtype)
        joined = torch.cat([x_t, maps if self.is_image else maps.flatten(1, 2)], dim=1)
        nothing = x_t.new_zeros(len(x_t), self.backbone.mid_channels)
        output = self.backbone.decode(self.backbone.encode(joined, t), Modulation(nothing, nothing))[:, : self.channels]
        if self.prediction == "velocity":
            return output
        return (output - x_t) / (1 - per_sample(t, x_t)).clamp(min=SHORTEST_TIME_LEFT)

    def penalty(self) -> Tensor:
        """The maps' penalty."""
        return self.maps.penalty()


def build(settings: Settings, problem: Problem) -> LowRankDecoder | RenderedVelocityNet:
    """The untrained network."""
    if _decodes(settings, problem):
        if problem.event.kind != "image":
            raise Refused("--set form=decoder draws images only; use form=velocity here.")
        return LowRankDecoder(problem.space.sizes, problem.event.shape, settings)
    return _velocity_net(settings, problem)


def _velocity_net(settings: Settings, problem: Problem) -> RenderedVelocityNet:
    """A velocity network with as many parameters as mono: its UNet's width or its head's width is adjusted."""
    event, budget, sizes = problem.event, problem.budget, problem.space.sizes
    side = event.shape[-2:]

    def with_maps(width: int) -> RenderedVelocityNet:
        maps = LowRankMaps(sizes, side, settings)
        return RenderedVelocityNet(maps, len(sizes), event, budget.model_copy(update={"width": width}))

    def with_head(hidden: int) -> RenderedVelocityNet:
        maps = HeadMaps(sizes, side, hidden=hidden, num_maps=len(sizes))
        return RenderedVelocityNet(maps, len(sizes), event, budget)

    if settings.told == "head" and event.kind != "image":
        raise Refused("--set told=head is a control on images; leave told=maps here.")
    make, step = (with_maps, 4) if settings.told == "maps" else (with_head, 8)
    return make(matched_width(make, parameters_of(lambda: monolithic_net(problem)), step=step))


def fit(settings: Settings, problem: Problem, ctx: Context) -> nn.Module:
    """Regression, or flow matching at the budget's own rate, on all training data, plus the penalties."""
    net, silo = build(settings, problem), problem.federation.pooled()
    if isinstance(net, LowRankDecoder):
        regress(net, silo, problem, ctx, rate_factor=settings.rate_factor)
        return net

    def loss(network: Callable[..., Tensor], batch: Batch, generator: Generator) -> Tensor:
        return flow_matching_loss(network, batch, generator) + net.penalty()

    with denormals_flushed():
        train(net, loss, silo, problem.budget, ctx)
    return net


@torch.no_grad()
def sample(settings: Settings, net: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """The image of each condition, or samples by Euler's steps along the velocity."""
    if isinstance(net, LowRankDecoder):
        return sample_decoder(settings, net, request, ctx)

    def velocity(x: Tensor, t: Tensor) -> Tensor:
        with ctx.autocast():
            return net(x, t, request.condition)

    return answer(velocity, request, num_steps=net.sample_steps)


def evaluations(settings: Settings, problem: Problem) -> int:
    """One evaluation for a decoder, otherwise one per step."""
    return 1 if _decodes(settings, problem) else problem.budget.sample_steps


def _decodes(settings: Settings, problem: Problem) -> bool:
    return settings.form == "decoder" or (settings.form == "auto" and problem.deterministic)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="low-rank",
            settings=Settings,
            fit=fit,
            sample=sample,
            build=build,
            evaluations=evaluations,
            kinds=("image", "trajectory"),
            version=4,
        ),
    )
