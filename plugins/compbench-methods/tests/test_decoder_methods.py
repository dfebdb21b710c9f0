from dataclasses import replace

import pytest
import torch
from compbench_methods import cnn_decoder, low_rank, mlp_decoder, pixel_decoder, stripes, transformer_decoder
from support.seldom import seldom
from torch import Generator

from compbench.api.context import Context, NoCheckpoints
from compbench.api.factors import NULL, Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem, Request
from compbench.data.bumps import TableSilo, all_stripes, as_samples, as_upright, bumps
from compbench.flow.matching import parameters_of
from compbench.flow.nets import monolithic_net
from compbench.metrics.localisation import localise
from compbench.registry.registry import Registry
from compbench.system.errors import Refused

N = 8
SPACE = FactorSpace([Factor("x", N), Factor("y", N)])
DECODERS = {module.__name__.rsplit(".", 1)[-1]: module for module in (cnn_decoder, mlp_decoder, pixel_decoder, low_rank)}


def context() -> Context:
    torch.manual_seed(0)
    return Context(torch.device("cpu"), "fp32", Generator().manual_seed(0), NoCheckpoints())


def silo(places: torch.Tensor) -> TableSilo:
    return TableSilo("bumps", as_samples(bumps(places, size=N, sigma=1.0)), places)


def problem(train_steps: int = 3, **changes) -> Problem:
    budget = Budget(
        train_steps=train_steps, batch_size=32, width=16, learning_rate=4e-3, ema_decay=0.97, sample_steps=3, **changes
    )
    everywhere = torch.cartesian_prod(torch.arange(N), torch.arange(N))
    return Problem(
        SPACE,
        Event("image", (1, N, N)),
        Federation([silo(everywhere)]),
        budget,
        Holdout.empty(SPACE),
        singles=silo(all_stripes(N)),
        deterministic=True,
    )


def images_of(module, settings, asked: Problem, condition: torch.Tensor) -> torch.Tensor:
    (method,) = module.compbench_methods()
    model = method.fit(settings, asked, context())
    return as_upright(method.sample(settings, model, Request(condition, torch.zeros(len(condition), 1, N, N)), context()))


@pytest.mark.parametrize("name", seldom(DECODERS, but=["low_rank", "mlp_decoder"]))
def test_a_decoder_puts_each_bump_in_its_place(name: str) -> None:
    places = torch.cartesian_prod(torch.arange(N), torch.arange(N))
    settings = DECODERS[name].Settings(**({"entropy_weight": 0, "variance_weight": 0} if name == "low_rank" else {}))
    made = images_of(DECODERS[name], settings, problem(280), places)
    assert localise(made, places).both.float().mean() > 0.95
    assert (made - bumps(places, size=N, sigma=1.0)).square().mean() < 0.3 * bumps(places, size=N, sigma=1.0).square().mean()


@pytest.mark.parametrize("encoding", ["bump", "ramp", "one-hot", "positional"])
def test_the_transformer_runs_with_every_code(encoding: str) -> None:
    settings = transformer_decoder.Settings(encoding=encoding, token=2)
    assert images_of(transformer_decoder, settings, problem(), torch.tensor([[1, 2]])).isfinite().all()


def test_penalties_lower_the_entropy_and_the_variance_they_are_about() -> None:
    found = {}
    for name, weights in {"none": (0, 0), "entropy": (0.1, 0), "variance": (0, 0.01)}.items():
        settings = low_rank.Settings(entropy_weight=weights[0], variance_weight=weights[1])
        found[name] = low_rank.fit(settings, problem(150), context()).maps.penalties()
    assert found["entropy"].entropy < 0.5 * found["none"].entropy
    assert found["variance"].variance < 0.5 * found["none"].variance


@pytest.mark.parametrize("patch", [1, 2])
def test_low_rank_conditions_a_velocity_network_on_its_maps(patch: int) -> None:
    asked = replace(problem(patch=patch), deterministic=False)
    settings = low_rank.Settings(rank=2)
    model = low_rank.fit(settings, asked, context())
    assert model.maps.coefficient.shape == (2 * N, 2)
    x0 = torch.randn(2, 1, N, N)
    made = low_rank.sample(settings, model, Request(torch.tensor([[1, 2], [1, NULL]]), x0), context())
    assert made.shape == (2, 1, N, N)
    assert low_rank.evaluations(settings, asked) == 3


def test_stripes_learns_stripes_and_chosen_bumps_only() -> None:
    chosen = stripes.choose(problem().federation.pooled(), 10, Generator().manual_seed(0))
    assert chosen.size == 10
    batch = chosen.batch(200, Generator().manual_seed(1))
    assert len(batch.condition.unique(dim=0)) == 10
    assert stripes.choose(problem().federation.pooled(), 1000, Generator().manual_seed(0)).size == N * N


def test_stripes_draws_a_stripe_where_a_coordinate_is_open() -> None:
    asked = all_stripes(N)
    made = images_of(stripes, stripes.Settings(decoder="mlp", num_combinations=8), problem(600), asked)
    truth = bumps(asked, size=N, sigma=1.0)
    assert (made - truth).square().mean() < 0.05 * truth.square().mean()


@pytest.mark.parametrize("told", ["maps", "head"])
def test_low_rank_s_velocity_network_and_its_control_have_monos_number_of_parameters(told: str) -> None:
    """Shapes3D at `standard`, where maps on a UNet of the budget's width had 15 % more."""
    task = Registry().load("tasks", "shapes3d-light")
    given = replace(problem(1), space=task.space, event=task.event, budget=task.budgets["standard"], deterministic=False)
    own = parameters_of(lambda: low_rank.build(low_rank.Settings(told=told), given))
    assert own == pytest.approx(parameters_of(lambda: monolithic_net(given)), rel=0.07)


def test_low_rank_s_control_is_told_the_same_at_every_pixel() -> None:
    asked = replace(problem(1, patch=2), deterministic=False)
    net = low_rank.build(low_rank.Settings(told="head"), asked)
    maps = net.maps(torch.tensor([[1, 2], [1, NULL]]))
    assert torch.equal(maps, maps[:, :, :1, :1].expand_as(maps))
    assert not torch.equal(maps[0], maps[1])


@pytest.mark.parametrize("decoder", ["cnn", "transformer", "pixel", "low-rank"])
def test_stripes_trains_any_of_the_decoders(decoder: str) -> None:
    made = images_of(stripes, stripes.Settings(decoder=decoder), problem(), torch.tensor([[1, 2]]))
    assert made.isfinite().all()


def test_stripes_is_refused_where_there_are_no_singles() -> None:
    with pytest.raises(Refused, match="no examples of single factors"):
        stripes.fit(stripes.Settings(), replace(problem(), singles=None), context())


def test_decoders_are_refused_anything_but_images() -> None:
    vector = replace(problem(), event=Event("vector", (2,)))
    with pytest.raises(Refused, match="makes images, this task asks for vectors"):
        mlp_decoder.compbench_methods()[0].build(mlp_decoder.Settings(), vector)
