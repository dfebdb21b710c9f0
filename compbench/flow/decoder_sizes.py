"""The width of a decoder: the shared network's size if each condition of a task has many images, otherwise the paper's size.

    width = the largest at which  parameters(width) is nearest to P  and  products(width) <= COST * products of the shared network
    rate  = rate of the protocol * width of the protocol / width

P is the number of parameters of the shared network, the protocol's `monolithic_net`; products are the multiply-adds of one
forward pass.  A network that is evaluated at every pixel uses each weight thousands of times: with P parameters, `pixel-decoder`
would need 130 times the products of the shared network on 64 x 64 pixels.  So the cost is bounded too, and a record shows both.
Rates were tuned at the protocol's width; Adam's best rate falls as one over the width (Yang et al. 2022, arXiv 2203.03466).

On deterministic tasks decoders keep the sizes of forced rendering's protocol, which are enough to learn all seen examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import torch
from pydantic import Field
from torch import nn

from compbench.flow.codes import FactorCodeSettings, Kind, encoding_of
from compbench.flow.decoders import (
    CNNDecoder,
    ConditionDecoder,
    Decoder,
    PixelDecoder,
    RateSettings,
    TransformerDecoder,
    decoder_method,
    regress,
)
from compbench.flow.fourier import FourierDecoder
from compbench.flow.matching import matched_width, parameters_of
from compbench.flow.nets import UNet, VelocityNet, monolithic_net
from compbench.system.errors import Refused

if TYPE_CHECKING:
    from compbench.api.context import Context
    from compbench.api.interfaces import Method, Problem

COST = 3.0
"""Largest ratio of a decoder's products to those of the shared network; with it a fit at `standard` ends within half an hour."""


class SizeSettings(FactorCodeSettings):
    """A decoder's code and width."""

    width_factor: Annotated[float, Field(gt=0, le=64)] | Literal["auto"] = Field(
        "auto",
        description="hidden units over the budget's width; 'auto' gives mono's number of parameters, or as many as 3 times "
        "its FLOPs allow, and on deterministic tasks the paper's size",
    )


Make = Callable[[int], Decoder]
"""width -> (inputs E, shape (C, H, W)) -> module from codes (B, E) to images; the wider, the more parameters."""


def decoder_width(
    problem: Problem, settings: SizeSettings, make: Make, *, protocol: int, step: int = 4, numbers: Kind = "bump"
) -> int:
    """The width of a decoder on a task, by its settings.

    Args:
        problem: its event, space and budget.
        settings: code and width.
        make: the decoder.
        protocol: the paper's width divided by the budget's.
        step: step of the tried widths.
        numbers: the code of numbered values.

    Raises:
        Refused: the task's samples are not images.
    """
    if problem.event.kind != "image":
        raise Refused(f"a decoder makes images, this task asks for {problem.event.kind}s.")
    if settings.width_factor != "auto":
        return max(step, round(settings.width_factor * problem.budget.width / step) * step)
    if problem.deterministic:
        return protocol * problem.budget.width
    inputs, shape = encoding_of(problem.space.factors, settings, numbers).num_outputs, problem.event.shape

    def build(width: int) -> nn.Module:
        return make(width)(inputs, shape)

    width = matched_width(build, parameters_of(lambda: monolithic_net(problem)), step=step)
    limit = COST * products_of(lambda: monolithic_net(problem), shape)
    return widest(lambda wide: products_of(lambda: build(wide), shape), limit, width, step=step)


def widest(cost: Callable[[int], int], limit: float, width: int, *, step: int) -> int:
    """The largest multiple of `step` up to `width` whose cost is within a limit, at least `step`; by bisection."""
    if cost(width) <= limit:
        return width
    low, high = 1, width // step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle * step) <= limit else (low, middle)
    return low * step


def products_of(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> int:
    """Multiply-adds per row of a forward pass of a decoder or of a velocity network with a UNet, without computing anything.

    Args:
        build: () -> network.
        shape: (C, H, W) of its images.
    """
    with torch.device("meta"):
        net = build()
    used = {id(weight): places for module, places in _places(net, shape) for weight in _matrices(module)}
    products = sum(weight.numel() * used.get(id(weight), 1) for weight in _matrices(net))
    if isinstance(net, TransformerDecoder):
        places, channels = net.get_buffer("place").shape
        products += 2 * len(net.blocks) * places**2 * channels  # q k^T and its product with the values
    return products


def _matrices(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.ndim > 1]


def _places(net: nn.Module, shape: tuple[int, ...]) -> Iterable[tuple[nn.Module, int]]:
    """Parts of a network, each with the number of positions at which it is evaluated; other parts are evaluated once."""
    _, height, width = shape
    if isinstance(net, PixelDecoder | FourierDecoder):
        yield net.layers, height * width
    elif isinstance(net, TransformerDecoder):
        places = len(net.get_buffer("place"))
        yield net.blocks, places
        yield net.leave, places
    elif isinstance(net, CNNDecoder):
        high, wide = 1, 1
        for layer in net.layers.children():
            if isinstance(layer, nn.ConvTranspose2d):
                yield layer, high * wide
                high, wide = (_grown(size, layer, axis) for axis, size in enumerate((high, wide)))
    elif isinstance(net, VelocityNet) and isinstance(net.backbone, UNet):
        yield from _places_of_unet(net.backbone, height // net.backbone.patch, width // net.backbone.patch)


def _grown(size: int, layer: nn.ConvTranspose2d, axis: int) -> int:
    padding = layer.padding[axis]
    assert isinstance(padding, int)
    return (size - 1) * layer.stride[axis] - 2 * padding + layer.kernel_size[axis]


def _places_of_unet(unet: UNet, height: int, width: int) -> Iterable[tuple[nn.Module, int]]:
    """A UNet's convolutions at each stage; the sides of a stage are halved and rounded up."""
    yield unet.enter, height * width
    yield unet.leave, height * width
    for level, (down, up) in enumerate(zip(unet.down_blocks, unet.up_blocks, strict=True)):
        yield down, height * width
        yield up, height * width
        if level < len(unet.downs):
            yield unet.ups[level], height * width
            height, width = -(-height // 2), -(-width // 2)
            yield unet.downs[level], height * width
    yield unet.middle, height * width


Own = TypeVar("Own", bound=SizeSettings)
"""The settings of one method."""


def sized_decoder_method(
    name: str,
    settings: type[Own],
    maker: Callable[[Own], Make],
    *,
    protocol: int,
    version: int,
    step: Callable[[Own], int] = lambda settings: 4,
    numbers: Kind = "bump",
) -> Method:
    """A method that regresses images on conditions, of the shared network's size.

    Args:
        name: name of the method.
        settings: class of its settings; with a `RateSettings`, its learning rate applies.
        maker: settings -> `Make`.
        protocol: the paper's width divided by the budget's.
        step: settings -> step of the tried widths.
        version: goes up when the method's results change.
        numbers: the code that `auto` has for numbered values.
    """

    def width_of(own: Own, problem: Problem) -> int:
        return decoder_width(problem, own, maker(own), protocol=protocol, step=step(own), numbers=numbers)

    def build(own: Own, problem: Problem) -> ConditionDecoder:
        make, encoding = maker(own)(width_of(own, problem)), encoding_of(problem.space.factors, own, numbers)
        return ConditionDecoder(encoding, make(encoding.num_outputs, problem.event.shape))

    def fit(own: Own, problem: Problem, ctx: Context) -> nn.Module:
        net, factor = build(own, problem), own.rate_factor if isinstance(own, RateSettings) else 1.0
        if own.width_factor == "auto":
            factor *= protocol * problem.budget.width / width_of(own, problem)
        regress(net, problem.federation.pooled(), problem, ctx, rate_factor=factor)
        return net

    return decoder_method(name, settings, build, fit=fit, version=version)
