"""A decoder's width: by parameters where they are cheap, by cost where each is used at every pixel, the paper's on bumps."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from compbench.api.interfaces import Budget, Event, Problem
from compbench.flow import decoder_sizes
from compbench.flow.decoder_sizes import COST, SizeSettings, decoder_width, products_of, sized_decoder_method, widest
from compbench.flow.decoders import CNNDecoder, Decoder, MLPDecoder, PixelDecoder, TransformerDecoder
from compbench.flow.matching import parameters_of
from compbench.flow.nets import monolithic_net
from compbench.system.errors import Refused
from compbench.testing.tiny_problems import PROBLEMS


def problem(kind: str = "image") -> Problem:
    return next(tiny for tiny in PROBLEMS if tiny.name == kind).make(torch.device("cpu"))


def dense(width: int) -> Decoder:
    return partial(MLPDecoder, width=width, depth=2)


def pixels(width: int) -> Decoder:
    return partial(PixelDecoder, width=width, depth=2)


SHAPE = (3, 28, 20)
NETS = {
    "mlp": lambda: MLPDecoder(9, SHAPE, width=24, depth=3),
    "cnn": lambda: CNNDecoder(9, SHAPE, channels=8, num_hidden=3),
    "pixel": lambda: PixelDecoder(9, SHAPE, width=24, depth=3),
    "transformer": lambda: TransformerDecoder(9, SHAPE, width=24, depth=2, num_heads=2, patch=4, dropout=0.1),
    "unet": lambda: monolithic_net(replace(problem(), event=Event("image", SHAPE), budget=budget(patch=2))),
}


def budget(**changes: int) -> Budget:
    return problem().budget.model_copy(update=changes)


@pytest.mark.parametrize("name", NETS)
def test_products_are_half_the_flops_that_torch_counts(name: str) -> None:
    torch.manual_seed(0)
    net = NETS[name]()
    given = (
        (torch.randn(1, *SHAPE), torch.rand(1), torch.zeros(1, 2, dtype=torch.long)) if name == "unet" else (torch.randn(1, 9),)
    )
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        net(*given)
    before = torch.get_rng_state()
    assert products_of(NETS[name], SHAPE) == pytest.approx(counter.get_total_flops() / 2, rel=1e-9)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_widest_within_a_limit_is_found() -> None:
    assert widest(lambda width: width**2, 10_000, 400, step=4) == 100
    assert widest(lambda width: width**2, 10_399, 400, step=4) == 100
    assert widest(lambda width: width**2, 10_000, 40, step=4) == 40
    assert widest(lambda width: width**2, 1, 40, step=4) == 4


def test_a_cheap_decoder_has_the_shared_network_s_number_of_parameters() -> None:
    given = problem()
    width = decoder_width(given, SizeSettings(), dense, protocol=1)
    inputs = sum(given.space.sizes)
    own = parameters_of(lambda: dense(width)(inputs, given.event.shape))
    assert own == pytest.approx(parameters_of(lambda: monolithic_net(given)), rel=0.05)


def test_a_decoder_of_many_pixels_is_as_wide_as_its_cost_allows() -> None:
    shape = (3, 32, 32)
    large = replace(problem(), event=Event("image", shape), budget=budget(patch=4))
    width, inputs = decoder_width(large, SizeSettings(), pixels, protocol=1), sum(large.space.sizes)
    limit = COST * products_of(lambda: monolithic_net(large), shape)

    def cost(width: int) -> int:
        return products_of(lambda: pixels(width)(inputs, shape), shape)

    assert cost(width) <= limit < cost(width + 4)


def test_a_wider_decoder_learns_at_a_smaller_rate() -> None:
    asked = problem()
    method = sized_decoder_method("dense", SizeSettings, lambda own: dense, protocol=1, version=1)
    width = decoder_width(asked, SizeSettings(), dense, protocol=1)
    rates: list[float] = []

    def regress(net: nn.Module, silo: object, problem: Problem, ctx: object, *, rate_factor: float) -> None:
        rates.append(rate_factor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_sizes, "regress", regress)
        for settings, given in (
            (SizeSettings(), asked),
            (SizeSettings(width_factor=4), asked),
            (SizeSettings(), problem("bumps")),
        ):
            method.fit(settings, given, None)
    assert rates == [asked.budget.width / width, 1.0, 1.0]


def test_a_number_and_a_deterministic_task_give_multiples_of_the_budget_s_width() -> None:
    given = problem()
    assert decoder_width(given, SizeSettings(width_factor=4), dense, protocol=1) == 4 * given.budget.width
    assert decoder_width(problem("bumps"), SizeSettings(), dense, protocol=2) == 2 * problem("bumps").budget.width


def test_a_decoder_of_vectors_is_refused() -> None:
    with pytest.raises(Refused, match="makes images"):
        decoder_width(problem("vector"), SizeSettings(), dense, protocol=1)
