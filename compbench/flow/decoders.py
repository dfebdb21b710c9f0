"""Deterministic decoders from a code to an image: convolutions, dense layers, attention over patches, or a function of pixels.

    x = 2 g(c) - 1,   loss = E ((g(c) - (x1 + 1) / 2)^2)

Forced rendering, section 2; if the paper's table and its repository differ, sizes follow the repository.  On a stochastic task
such a model gives the mean of a condition's samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import torch
from pydantic import Field
from torch import Generator, Tensor, nn

from compbench.api.interfaces import Method, MethodSettings, Need
from compbench.flow.codes import CodeSettings, Encoding
from compbench.flow.compilation import compiles
from compbench.flow.train import train
from compbench.system.condition_counts import regressed
from compbench.system.errors import CompbenchError, Refused

if TYPE_CHECKING:
    from compbench.api.context import Batch, Context, Silo
    from compbench.api.interfaces import Problem, Request


FUSED_FROM = 5_000
"""Smallest number of steps of a fit for which compiling the training step pays."""


class RateSettings(MethodSettings):
    """A decoder's own learning rate, because with one common rate attention and pixel decoders would end half trained."""

    rate_factor: float = Field(3.0, gt=0, le=100, description="learning rate over the budget's; 1 is the paper's")


Decoder = Callable[[int, tuple[int, ...]], nn.Module]
"""(inputs E, shape (C, H, W)) -> module from codes (B, E) to images (B, C, H, W)."""


class ConditionDecoder(nn.Module):
    """Conditions (B, F) -> samples (B, C, H, W), in [-1, 1] after a fit: an encoding and a decoder."""

    def __init__(self, encoding: Encoding, decoder: nn.Module) -> None:
        super().__init__()
        self.encoding, self.decoder = encoding, decoder

    def forward(self, condition: Tensor) -> Tensor:
        return self.render(self.encoding(condition))

    def render(self, code: Tensor) -> Tensor:
        """The part after the encoding: codes (B, E) -> samples."""
        return 2 * self.decoder(code).float() - 1


def condition_decoder(problem: Problem, settings: CodeSettings, decoder: Decoder) -> ConditionDecoder:
    """An untrained decoder for a problem's conditions and images.  Raises Refused for anything but images."""
    if problem.event.kind != "image":
        raise Refused(f"a decoder makes images, this task asks for {problem.event.kind}s.")
    encoding = Encoding(problem.space.sizes, settings, problem.space.periodic)
    return ConditionDecoder(encoding, decoder(encoding.num_outputs, problem.event.shape))


Regression = Callable[[Callable[[Tensor], Tensor], "Batch"], Tensor]
"""(conditions (B, F) -> samples, batch) -> scalar loss."""


def regression_loss(net: Callable[[Tensor], Tensor], batch: Batch, generator: Generator | None = None) -> Tensor:
    """E ((net(c) - x1) / 2)^2: the MSE of images in [0, 1], the mean over entries.  Draws nothing."""
    regressed(batch.condition)
    return (net(batch.condition) - batch.x1).square().mean() / 4


def regress(net: nn.Module, silo: Silo, problem: Problem, ctx: Context, *, rate_factor: float = 1.0) -> None:
    """Fit a decoder in place on a silo's examples, with its own penalty if it has one (`net.penalty()`).

    If a network has `fuses` set, a long fit on a CPU compiles its step, so that many small operations become few loops.
    Compiling takes about 20 s the first time, so a short fit does not compile; TORCHDYNAMO_DISABLE=1 turns it off.

    Args:
        net: conditions (B, F) -> samples.
        silo: source of the examples.
        problem: the problem with the budget.
        ctx: context of the fit; its notes say whether the step was compiled, if it could have been.
        rate_factor: learning rate divided by the budget's.
    """
    budget = problem.budget.model_copy(update={"learning_rate": rate_factor * problem.budget.learning_rate})
    loss: Regression = penalised
    if getattr(net, "fuses", False) and ctx.device.type == "cpu" and budget.train_steps >= FUSED_FROM:
        ctx.notes["compiled"] = float(compiles("cpu"))
        loss = fused(penalised) if compiles("cpu") else penalised
    with denormals_flushed():
        train(net, lambda network, batch, generator: loss(network, batch), silo, budget, ctx)


def penalised(net: Callable[[Tensor], Tensor], batch: Batch) -> Tensor:
    """`regression_loss`, plus the network's own penalty if it has one."""
    value = regression_loss(net, batch)
    return value + net.penalty() if hasattr(net, "penalty") else value


def fused(loss: Regression) -> Regression:
    """A loss compiled for one fit, during which only the network's weights change.

    Checking this in each step would take a quarter of the step's time, so torch 2.8 and newer skip the check, and code that was
    compiled for an earlier fit is discarded.
    """
    torch.compiler.reset()
    unchecked = getattr(torch.compiler, "skip_guard_on_all_nn_modules_unsafe", None)
    return torch.compile(loss, dynamic=False, options={"guard_filter_fn": unchecked} if unchecked else None)


Own = TypeVar("Own", bound=MethodSettings)
"""The settings of one method."""


def decoder_method(
    name: str,
    settings: type[Own],
    build: Callable[[Own, Problem], nn.Module],
    *,
    fit: Callable[[Own, Problem, Context], nn.Module] | None = None,
    version: int = 1,
    needs: tuple[Need, ...] = (),
) -> Method:
    """A method that regresses images on conditions.

    Args:
        name: name of the method.
        settings: class of its settings; with a `RateSettings`, its learning rate applies.
        build: (settings, problem) -> the untrained network, conditions (B, F) -> samples.
        fit: replaces regression on all training data.
        version: goes up when the method's results change.
        needs: what a task must offer it.
    """

    def fit_all(own: Own, problem: Problem, ctx: Context) -> nn.Module:
        net = build(own, problem)
        rate_factor = own.rate_factor if isinstance(own, RateSettings) else 1.0
        regress(net, problem.federation.pooled(), problem, ctx, rate_factor=rate_factor)
        return net

    return Method(
        name=name,
        settings=settings,
        fit=fit or fit_all,
        needs=needs,
        sample=sample_decoder,
        build=build,
        evaluations=lambda own, problem: 1,
        kinds=("image",),
        regresses=True,
        version=version,
    )


@torch.no_grad()
def sample_decoder(settings: MethodSettings, net: nn.Module, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """The image of each condition; the noise is not used."""
    with ctx.autocast():
        return net(request.condition).float()


@contextmanager
def denormals_flushed() -> Iterator[None]:
    """Treat numbers below 1e-38 as zero on this thread.  Moments of dead units and of shrinking coefficients become that small,
    and a CPU works two to three times slower on them.  Afterwards the processor's default is restored.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


class CNNDecoder(nn.Module):
    """Transposed convolutions: a stem to a quarter of the size, two doublings, then layers that keep the size.

    The stem is a dense layer with one bias per channel.  The decoder has 307,457 parameters from 56 inputs to 28 x 28 pixels with
    64 channels and two hidden layers.

    Args:
        inputs: E.
        shape: (C, H, W).
        channels: channels of every hidden map.
        num_hidden: layers between stem and output, at least the two doublings.
    """

    def __init__(self, inputs: int, shape: tuple[int, ...], *, channels: int, num_hidden: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        stem = (math.ceil(shape[1] / 4), math.ceil(shape[2] / 4))
        layers: list[nn.Module] = [nn.ConvTranspose2d(inputs, channels, stem), nn.ReLU()]
        for layer in range(num_hidden):
            how = (4, 2, 1) if layer < 2 else (3, 1, 1)
            layers += [nn.ConvTranspose2d(channels, channels, *how), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(channels, shape[0], 3, padding=1))

    def forward(self, code: Tensor) -> Tensor:
        return self.layers(code[:, :, None, None])[:, :, : self.shape[1], : self.shape[2]]


class MLPDecoder(nn.Module):
    """Dense layers with ReLU: (B, E) -> (B, C, H, W)."""

    def __init__(self, inputs: int, shape: tuple[int, ...], *, width: int, depth: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        layers: list[nn.Module] = []
        for layer in range(depth):
            layers += [nn.Linear(width if layer else inputs, width), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, math.prod(shape)))

    def forward(self, code: Tensor) -> Tensor:
        return self.layers(code).unflatten(1, self.shape)


class TransformerDecoder(nn.Module):
    """One token per patch: a linear map of the code plus the patch's sinusoidal position, through encoder blocks.

    Args:
        inputs: E.
        shape: (C, H, W), divisible by `patch`.
        width: channels of a token, divisible by 4 and by `num_heads`.
        depth: number of blocks.
        num_heads: heads of self-attention over all tokens.
        patch: pixels of a token's side; 1 is the paper's.
        dropout: dropout in the blocks during training.
    """

    def __init__(
        self, inputs: int, shape: tuple[int, ...], *, width: int, depth: int, num_heads: int, patch: int, dropout: float
    ) -> None:
        super().__init__()
        channels, height, side = shape
        if height % patch or side % patch:
            raise CompbenchError(f"patch {patch} does not divide images of {height} x {side}; choose one that does.")
        self.grid, self.patch = (height // patch, side // patch), patch
        self.enter = nn.Linear(inputs, width)
        self.register_buffer("place", sinusoidal_places(*self.grid, width), persistent=False)
        blocks = [
            nn.TransformerEncoderLayer(width, num_heads, dim_feedforward=4 * width, dropout=dropout, batch_first=True)
            for _ in range(depth)
        ]
        self.blocks = nn.Sequential(*blocks)
        self.leave = nn.Linear(width, channels * patch**2)

    def forward(self, code: Tensor) -> Tensor:
        tokens = self.leave(self.blocks(self.enter(code)[:, None] + self.place))  # (B, T, C p^2)
        maps = tokens.transpose(1, 2).unflatten(2, self.grid)
        return nn.functional.pixel_shuffle(maps, self.patch)


class PixelDecoder(nn.Module):
    """All pixels share one function of the code and of their position, without attention and convolution.

    The code enters additively, W c + place(u, v), followed by dense layers with PReLU.  The decoder is in the paper's repository,
    not in the paper, and generalises to held-out positions without further measures.
    """

    def __init__(self, inputs: int, shape: tuple[int, ...], *, width: int, depth: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.enter = nn.Linear(inputs, width)
        self.register_buffer("place", sinusoidal_places(shape[1], shape[2], width), persistent=False)
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.PReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, shape[0]))

    def forward(self, code: Tensor) -> Tensor:
        pixels = self.layers(self.enter(code)[:, None] + self.place)  # (B, H W, C)
        return pixels.transpose(1, 2).unflatten(2, self.shape[1:])


def sinusoidal_places(height: int, width: int, channels: int) -> Tensor:
    """sin and cos of row and of column, frequencies 10000^(-4 k / channels), (height * width, channels).

    Args:
        height, width: sides of the grid.
        channels: number of channels, divisible by 4.
    """
    if channels % 4:
        raise CompbenchError(f"places take a multiple of 4 channels, got {channels}; change the width.")
    frequency = 10_000 ** (-4 * torch.arange(channels // 4) / channels)
    rows, columns = (
        place[:, None].float() * frequency for place in torch.cartesian_prod(torch.arange(height), torch.arange(width)).unbind(1)
    )
    return torch.cat([rows.sin(), rows.cos(), columns.sin(), columns.cos()], dim=1)
