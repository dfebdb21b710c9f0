"""dit, local and cross-attention: mono's number of parameters at every budget, and that each draws what it is asked for."""

from dataclasses import replace

import pytest
import torch
from compbench_methods import cross_attention, dit, local
from problems import Shades, context, image_problem, vector_problem
from support.seldom import seldom
from torch import Generator, nn

from compbench.api.federation import Federation
from compbench.api.interfaces import Event, Problem, Request
from compbench.flow.matching import parameters_of
from compbench.flow.nets import monolithic_net
from compbench.registry.registry import Registry
from compbench.system.errors import Refused

MODULES = {"dit": dit, "local": local, "cross-attention": cross_attention}


def problems_of(name: str, preset: str) -> dict[tuple[object, ...], Problem]:
    """One problem for each event, lattice, width and patch of the tasks that a method claims, at a preset."""
    registry = Registry()
    method, found = registry.load("methods", name), {}
    for task in (registry.load("tasks", each) for each in registry.names("tasks")):
        if task.event.kind in method.kinds and preset in task.budgets:
            budget = task.budgets[preset]
            key = (task.event, task.space.sizes, budget.width, budget.patch)
            if key not in found:
                found[key] = Problem(task.space, task.event, Federation([Shades()]), budget, task.holdout, base=task.base)
    return found


MONO: dict[tuple[object, ...], int] = {}
"""mono's parameters of each problem: the same for all methods."""


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers without initial weights: networks that are only counted need none, and they are a third of the time."""
    for layer in (nn.Linear, nn.modules.conv._ConvNd):
        monkeypatch.setattr(layer, "reset_parameters", lambda layer: None)


def share_of_mono(module, key: tuple[object, ...], problem: Problem) -> float:
    if key not in MONO:
        MONO[key] = parameters_of(lambda: monolithic_net(problem))
    return parameters_of(lambda: module.build(module.Settings(), problem)) / MONO[key]


@pytest.mark.parametrize("preset", seldom(["smoke", "quick", "standard", "paper"], but=["smoke"]))
@pytest.mark.parametrize("name", seldom(MODULES, but=["dit"]))
@pytest.mark.usefixtures("unset")
def test_parameters_are_within_a_tenth_of_monos_at_every_budget(name: str, preset: str) -> None:
    module = MODULES[name]
    shares = {key: share_of_mono(module, key, problem) for key, problem in problems_of(name, preset).items()}
    assert shares
    off = {key: share for key, share in shares.items() if abs(share - 1) > 0.1}
    assert not off


@pytest.mark.slow  # `check` trains each of them too
@pytest.mark.parametrize("name", MODULES)
def test_method_draws_the_image_that_is_asked_for(name: str) -> None:
    torch.manual_seed(0)
    module, problem = MODULES[name], image_problem(train_steps=60, prediction="denoised", patch=4)
    (method,) = module.compbench_methods()
    model = method.fit(module.Settings(), problem, context())
    condition = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(8, 1)
    x0 = torch.randn(len(condition), 3, 16, 16, generator=Generator().manual_seed(3))
    x = method.sample(module.Settings(), model, Request(condition, x0), context())
    lit = torch.stack([x[:, 0, :, :8].mean((1, 2)), x[:, 1, :8].mean((1, 2))], dim=1) > 0
    assert (lit.long() == condition).float().mean() > 0.95


def test_cross_attention_puts_each_combination_in_its_corner() -> None:
    torch.manual_seed(0)
    (method,) = cross_attention.compbench_methods()
    model = method.fit(method.settings(), vector_problem(), context())
    condition = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(64, 1)
    x0 = torch.randn(len(condition), 2, generator=Generator().manual_seed(3))
    x = method.sample(method.settings(), model, Request(condition, x0), context())
    assert ((x > 0).long() == condition).float().mean() > 0.98


@pytest.mark.parametrize("module", [dit, local])
@pytest.mark.parametrize("event", [Event("vector", (2,)), Event("trajectory", (2, 8))])
def test_networks_on_patches_are_refused_anything_but_images(module, event: Event) -> None:
    with pytest.raises(Refused, match=f"makes images, this task asks for {event.kind}s"):
        module.build(module.Settings(), replace(image_problem(), event=event))


def test_dit_sees_sprites_in_patches_of_four_pixels_and_other_images_in_eight_a_side() -> None:
    sides = {(1, 64, 64): (16, 16), (3, 64, 64): (8, 8), (1, 28, 28): (7, 7)}
    for shape, grid in sides.items():
        small = replace(image_problem(), event=Event("image", shape))
        assert dit.build(dit.Settings(), small).grid == grid
    assert dit.build(dit.Settings(tokens=4), replace(image_problem(), event=Event("image", (1, 64, 64)))).grid == (4, 4)


def test_a_radius_of_more_patches_than_blocks_is_refused() -> None:
    with pytest.raises(Refused, match="a radius of 7 needs as many blocks; set depth to 7 or more"):
        local.build(local.Settings(radius=7), image_problem())
