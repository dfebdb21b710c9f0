from dataclasses import replace

import pytest
import torch
from compbench_methods import factored, mono, slice_cfg
from problems import (
    MPI3D,
    NOTHING_HELD_OUT,
    SHAPES3D,
    SPACE,
    Corners,
    Shades,
    context,
    image_problem,
    one_factor_problem,
    vector_problem,
)
from support.seldom import seldom
from torch import Generator, Tensor

from compbench.api.factors import NULL, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Method, Problem, Request
from compbench.flow import score_models
from compbench.flow.nets import VelocityNet
from compbench.system.errors import Cancelled, CompbenchError
from compbench.system.profiling import num_parameters

METHODS = {module.__name__.rsplit(".", 1)[-1]: module for module in (mono, factored, slice_cfg)}


def sample_with(module, model, condition: Tensor, shape: tuple[int, ...], *, settings=None, seed: int = 3) -> Tensor:
    x0 = torch.randn(len(condition), *shape, generator=Generator().manual_seed(seed))
    return module.sample(settings or module.Settings(), model, Request(condition, x0), context())


def states_equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    one, two = a.state_dict(), b.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.fixture(scope="module", params=seldom(METHODS, but=["factored"]))
def trained(request):
    """A method and its model of the four corners."""
    torch.manual_seed(0)
    module = METHODS[request.param]
    return module, module.fit(module.Settings(), vector_problem(), context())


def test_method_puts_each_combination_in_its_corner(trained) -> None:
    module, model = trained
    condition = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(64, 1)
    x = sample_with(module, model, condition, (2,))
    assert ((x > 0).long() == condition).float().mean() > 0.98
    for corner in condition[:4]:
        mean = x[(condition == corner).all(1)].mean(0)
        torch.testing.assert_close(mean, 2.0 * corner - 1, rtol=0, atol=0.3)


def test_method_leaves_an_open_factor_undecided_or_still_obeys_the_other(trained) -> None:
    module, model = trained
    condition = torch.tensor([[1, NULL]]).repeat(128, 1)
    x = sample_with(module, model, condition, (2,))
    assert x.isfinite().all()
    if module is slice_cfg:  # the only one that is trained with open factors
        assert (x[:, 0] > 0).float().mean() > 0.9
        assert 0.15 < (x[:, 1] > 0).float().mean() < 0.85


@pytest.mark.parametrize("prediction", ["velocity", "denoised"])
@pytest.mark.parametrize("name", METHODS)
def test_method_draws_images_of_the_right_shape(name, prediction) -> None:
    module, problem = METHODS[name], image_problem(prediction=prediction)
    model = module.fit(module.Settings(), problem, context())
    x = sample_with(module, model, torch.zeros(5, 2).long(), (3, 16, 16))
    assert x.shape == (5, 3, 16, 16)
    assert x.dtype == torch.float32
    assert x.isfinite().all()


@pytest.mark.slow  # `check` trains each of them too
@pytest.mark.parametrize("name", ["mono", "factored"])
def test_method_draws_the_image_that_is_asked_for(name) -> None:
    torch.manual_seed(0)
    module, problem = METHODS[name], image_problem(train_steps=160, prediction="denoised")
    model = module.fit(module.Settings(), problem, context())
    condition = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(8, 1)
    x = sample_with(module, model, condition, (3, 16, 16))
    lit = torch.stack([x[:, 0, :, :8].mean((1, 2)), x[:, 1, :8].mean((1, 2))], dim=1) > 0
    assert (lit.long() == condition).float().mean() > 0.95


@pytest.mark.parametrize("name", METHODS)
def test_method_is_determined_by_its_seed(name) -> None:
    module, models = METHODS[name], []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(module.fit(module.Settings(), image_problem(), context(seed=1)))
    assert states_equal(*models)
    condition = torch.ones(4, 2).long()
    assert torch.equal(*(sample_with(module, model, condition, (3, 16, 16)) for model in models))


@pytest.mark.parametrize("name", METHODS)
def test_method_s_weights_fit_what_build_makes(name) -> None:
    module, problem = METHODS[name], image_problem()
    model = module.fit(module.Settings(), problem, context())
    rebuilt = module.build(module.Settings(), problem)
    rebuilt.load_state_dict(model.state_dict())
    condition = torch.ones(4, 2).long()
    one, two = (sample_with(module, net.eval(), condition, (3, 16, 16)) for net in (model, rebuilt))
    torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", METHODS)
def test_method_stops_when_asked(name) -> None:
    with pytest.raises(Cancelled):
        METHODS[name].fit(METHODS[name].Settings(), image_problem(), context(cancelled=lambda: True))


@pytest.mark.parametrize("name", METHODS)
def test_method_s_hook_gives_a_method_of_its_entry_point_s_name(name) -> None:
    (method,) = METHODS[name].compbench_methods()
    assert isinstance(method, Method)
    assert method.name == name.replace("_", "-")
    assert all(field.description for field in method.settings.model_fields.values())


@pytest.mark.parametrize(("name", "evaluations"), [("mono", 20), ("factored", 20), ("slice_cfg", 60)])
def test_method_counts_its_evaluations(name, evaluations) -> None:
    module = METHODS[name]
    assert module.evaluations(module.Settings(), vector_problem()) == evaluations


@pytest.mark.parametrize(("space", "low", "high"), [(SHAPES3D, 7.4e6, 7.7e6), (MPI3D, 7.4e6, 7.7e6)])
def test_parameters_match_within_a_tenth_of_a_million_at_the_paper_s_width(space, low, high) -> None:
    budget = Budget(train_steps=1, batch_size=1, width=64, learning_rate=1e-3, sample_steps=1)
    problem = Problem(space, Event("image", (3, 64, 64)), Federation([Shades()]), budget, Holdout.empty(space))
    counts = [num_parameters(module.build(module.Settings(), problem)) for module in METHODS.values()]
    assert max(counts) - min(counts) < 0.1e6
    assert low < min(counts)
    assert max(counts) < high


def test_slice_cfg_puts_its_weights_on_the_factors_of_the_holdout() -> None:
    settings = slice_cfg.Settings()
    holdout = Holdout.by_rule(SPACE, ("left-right", "top-bottom"), lambda a, b: a == b == 1)
    model = slice_cfg.build(settings, vector_problem(holdout=holdout, composed=(1,)))
    assert model.guidance.weights(3.0) == (1.0, 3.0)


def test_slice_cfg_shares_the_fit_of_those_that_compose_scores_under_its_paper_s_masks(trained) -> None:
    problem, naive = vector_problem(), score_models.ModelSettings(even_masks=0.0, factor_dropout=0.1)

    def same(problem: Problem = problem, **changes) -> bool:
        return slice_cfg.fit_facts(slice_cfg.Settings(**changes), problem) == score_models.fit_facts(naive, problem)

    assert same(holdout_weight=5.0)
    assert slice_cfg.fit_facts(slice_cfg.Settings(), problem) != score_models.fit_facts(score_models.ModelSettings(), problem)
    assert not same(factor_dropout=0.2)
    assert not same(head_width=2.0)
    assert not same(replace(problem, base=(0, 0)))
    module, model = trained
    if module is slice_cfg:
        torch.manual_seed(0)
        assert states_equal(model, score_models.fit(naive, problem, context()))


def test_extension_leaves_the_frozen_weights_alone_and_learns_the_new_factor() -> None:
    torch.manual_seed(0)
    base = factored.fit(factored.Settings(), one_factor_problem(), context())
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    extended = factored.extend(factored.Settings(), base, "top-bottom", vector_problem(), context())
    after = extended.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert all("top_bottom" in name for name in after.keys() - before.keys())
    assert all(torch.equal(tensor, before[name]) for name, tensor in base.state_dict().items())  # a copy was extended
    condition = torch.cartesian_prod(torch.arange(2), torch.arange(2)).repeat(64, 1)
    x = sample_with(factored, extended, condition, (2,))
    assert ((x > 0).long() == condition).float().mean() > 0.95


@pytest.mark.parametrize(("times", "low", "high"), [("noise-side", 0.2, 0.4), ("logit-normal", 0.0, 0.03)])
def test_a_new_head_is_trained_on_times_when_its_factor_is_decided(monkeypatch, times: str, low: float, high: float) -> None:
    """A quarter of the times are below 0.08, where a Shapes3D's floor is still open; of logit-normal ones not one in 100."""
    base = factored.build(factored.Settings(), one_factor_problem())
    seen, forward = [], VelocityNet.forward
    monkeypatch.setattr(VelocityNet, "forward", lambda net, x, t, c: (seen.append(t), forward(net, x, t, c))[1])
    whole = vector_problem()
    few = replace(whole, budget=whole.budget.model_copy(update={"extend_steps": 40}))
    factored.extend(factored.Settings(extension_times=times), base, "top-bottom", few, context())
    assert low < (torch.cat(seen) < 0.08).float().mean() < high


@pytest.mark.slow
def test_extension_follows_the_order_of_the_larger_space() -> None:
    torch.manual_seed(0)
    whole = vector_problem()
    smaller = SPACE.without("left-right")
    base_problem = Problem(
        smaller, whole.event, Federation([Corners(NOTHING_HELD_OUT, labelled=(1,))]), whole.budget, Holdout.empty(smaller)
    )
    base = factored.fit(factored.Settings(), base_problem, context())
    extended = factored.extend(factored.Settings(), base, "left-right", whole, context())
    assert extended.conditioning.names == ("left-right", "top-bottom")
    x = sample_with(factored, extended, torch.tensor([[0, 1]]).repeat(64, 1), (2,))
    assert (x[:, 0] < 0).float().mean() > 0.95
    assert (x[:, 1] > 0).float().mean() > 0.95


def test_extension_by_a_factor_that_the_model_knows_is_refused() -> None:
    base = factored.build(factored.Settings(), vector_problem())
    with pytest.raises(CompbenchError, match="adding 'top-bottom'"):
        factored.extend(factored.Settings(), base, "top-bottom", vector_problem(), context())


def test_factored_conditioning_is_a_sum_over_factors() -> None:
    net = factored.build(factored.Settings(), vector_problem())
    for parameter in net.conditioning.parameters():
        torch.nn.init.normal_(parameter)
    with torch.no_grad():
        corners = [net.conditioning(torch.tensor([[a, b]])) for a, b in ((0, 0), (0, 1), (1, 0), (1, 1))]
    torch.testing.assert_close(corners[0] + corners[3], corners[1] + corners[2])
