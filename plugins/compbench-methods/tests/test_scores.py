"""naive-ode, naive-sde and fkc: what they sample, on a task with a base and on one without."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from compbench_methods import driftlite, fkc, guided, mcmc, naive, rne, superdiff
from problems import context, image_problem, perturbed_images, vector_problem
from support.seldom import seldom, slow
from torch import nn

from compbench.api.factors import Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Event, Method, Problem, Request, Source, TaskContext
from compbench.data.gaussian_oracle import SourceOracle
from compbench.data.gaussians import gaussian
from compbench.flow import score_models
from compbench.flow.compose import Guidance
from compbench.flow.expert_nets import source_rows
from compbench.flow.path import LinearPath, VariancePreservingPath, velocity_to_score
from compbench.flow.swarms import levels
from compbench.system.errors import CompbenchError, Refused
from compbench.tasks.gaussian import make_task

METHODS: dict[str, Method] = {m.name: m for module in (driftlite, fkc, mcmc, naive, rne) for m in module.compbench_methods()}
superdiff_method = superdiff.compbench_methods()[0]
LEARNED = ("driftlite", "fkc", "mcmc", "naive-ode", "naive-sde", "rne")
FEW = {"fkc": {"num_particles": 4}, "rne": {"num_particles": 4}, "driftlite": {"num_particles": 4, "num_pilots": 16}}
"""Settings of a small swarm."""
SOURCES = seldom(
    [(name, experts) for experts in (False, True) for name in LEARNED],
    but=[*((name, False) for name in LEARNED if name != "driftlite"), ("naive-ode", True)],
)
"""Methods, and whether each source has a network of its own; `.ci/slow` samples all of them from such networks."""


def perturbed(train_steps: int = 350, name: str = "gauss2d-nonfact-id", **budget) -> Problem:
    task = make_task(name)
    source = Source("embedded", "exact sampler", "gaussians-1")
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, None, None, source)
    changed = {"train_steps": train_steps, "batch_size": 300, "width": 128, "learning_rate": 3e-3, "sample_steps": 50, **budget}
    return task.open(ctx).problem(task.budgets["quick"].model_copy(update=changed))


def asked(count: int, cell: tuple[int, int] = (1, 1)) -> Request:
    generator = torch.Generator().manual_seed(7)
    return Request(torch.tensor(cell).repeat(count, 1), torch.randn(count, 2, generator=generator))


@pytest.mark.parametrize(
    ("method", "variance"),
    [
        ("naive-ode-oracle", 0.5),
        ("naive-sde-oracle", 0.85),
        ("fkc-oracle", 20 / 21),
        slow(("mcmc-oracle", 20 / 21)),
        ("rne-oracle", 20 / 21),
        ("driftlite-oracle", 20 / 21),
    ],
)
def test_oracles_reach_the_known_variance(method: str, variance: float) -> None:
    """gauss2d-nonfact-id: theorem 2 for the flow, 0.845 for the diffusion, theorem 1 for the corrected one."""
    found = METHODS[method]
    problem = perturbed(sample_steps=100)
    settings = found.settings()
    x = found.sample(settings, found.fit(settings, problem, context()), asked(1500), context())
    assert x.var().item() == pytest.approx(variance, rel=0.08)


@cache
def sources(experts: bool) -> nn.Module:
    """The fit that all of them share (`test_all_share_one_fit`)."""
    torch.manual_seed(0)
    return METHODS["naive-ode"].fit(METHODS["naive-ode"].settings(experts=experts), perturbed(), context())


@cache
def without_a_base(experts: bool) -> tuple[nn.Module, Problem]:
    held = Holdout.by_rule(vector_problem().space, ["left-right", "top-bottom"], lambda a, b: (a, b) == (1, 1))
    problem = vector_problem(holdout=held)
    torch.manual_seed(0)
    return METHODS["naive-ode"].fit(METHODS["naive-ode"].settings(experts=experts), problem, context()), problem


def test_all_share_one_fit() -> None:
    assert {METHODS[name].fit for name in LEARNED} == {score_models.fit}
    assert all(issubclass(METHODS[name].settings, score_models.ModelSettings) for name in LEARNED)


@pytest.mark.parametrize(
    ("name", "experts"),
    seldom(
        [(name, experts) for experts in (False, True) for name in LEARNED],
        but=[(name, False) for name in LEARNED if name != "driftlite"],
    ),
)
def test_learned_sources_are_sampled_for_what_they_are(name: str, experts: bool) -> None:
    """A single perturbation is no composition: N(0, diag(10, 1))."""
    found = METHODS[name]
    settings = found.settings(experts=experts, **FEW.get(name, {}))
    x = found.sample(settings, sources(experts), asked(150, (1, 0)), context())
    wide, narrow = x.var(0).tolist()
    assert 4 < wide < 25
    assert 0.2 < narrow < 3


def test_the_trace_is_noted() -> None:
    ctx = context()
    found = METHODS["fkc-oracle"]
    problem = perturbed(sample_steps=20)
    settings = found.settings(num_particles=8)
    found.sample(settings, found.fit(settings, problem, ctx), asked(100), ctx)
    assert set(ctx.notes) == {"clipped", "distinct_ancestors", "ess", "tempered", "guidance_weight"}
    assert len(ctx.notes["ess"]) == 20
    assert 1 <= ctx.notes["distinct_ancestors"] <= 8
    assert ctx.notes["tempered"] == 1  # with exact scores the authors' weights stay as they are


@pytest.mark.parametrize(("name", "experts"), SOURCES)
def test_without_a_base_they_compose_around_null(name: str, experts: bool) -> None:
    found = METHODS[name]
    settings = found.settings(experts=experts, **FEW.get(name, {}))
    model, problem = without_a_base(experts)
    request = Request(torch.tensor([[0, 1], [1, 0]]).repeat(15, 1), torch.randn(30, 2))
    x = found.sample(settings, model, request, context())
    error = (x - (2.0 * request.condition - 1)).abs().median().item()
    assert error < 0.6
    calls = {
        "fkc": 4 * 21,
        "rne": 4 * 20,
        "driftlite": 2 * 4 * 20,
        "mcmc": 1 + 20 + 2 * 11 * 14,  # two evaluations a move, as the line has a point inside; no chain below sigma 0.3
    }
    assert found.evaluations(settings, problem) == 3 * calls.get(name, 21)


def test_trajectories_are_composed_around_null_too() -> None:
    """Eight states of two numbers, all at the corner of their combination; the three methods share the network and its fit."""
    flat = vector_problem(train_steps=80)
    budget = flat.budget.model_copy(update={"batch_size": 32, "width": 16})

    class Paths:
        name, size = "paths", 1000

        def batch(self, size: int, generator: torch.Generator):
            batch = flat.federation.pooled().batch(size, generator)
            return batch._replace(x1=batch.x1[:, :, None].expand(-1, -1, 8))

    event = Event("trajectory", (2, 8))
    problem = Problem(flat.space, event, Federation([Paths()]), budget, flat.holdout)
    found = METHODS["fkc"]
    settings = found.settings(num_particles=2)
    request = Request(torch.tensor([[0, 1], [1, 0]]).repeat(8, 1), torch.randn(16, 2, 8))
    x = found.sample(settings, found.fit(settings, problem, context()), request, context())
    assert x.shape == (16, 2, 8)
    assert (x - (2.0 * request.condition - 1)[:, :, None]).abs().median().item() < 0.8


class OnePoint(nn.Module):
    """The velocity of data that are one point: v = (x1 - x) / (1 - t)."""

    base, sample_steps, guidance = (), 20, Guidance(1.0, (True, True))

    def stacked(self, x_t: torch.Tensor, t: torch.Tensor, conditions: torch.Tensor) -> torch.Tensor:
        return ((0.5 - x_t) / (1 - t)[:, None]).expand(len(conditions), *x_t.shape)


class Normals(OnePoint):
    """The velocity of N(mean, 0.5^2) in each entry; the means are 0.2 times the sum of the condition, in which NULL is -1."""

    def stacked(self, x_t: torch.Tensor, t: torch.Tensor, conditions: torch.Tensor) -> torch.Tensor:
        t, mean = t.view(-1, 1), 0.2 * conditions.sum(-1, keepdim=True)
        rate = (t * 0.25 - (1 - t)) / (t**2 * 0.25 + (1 - t) ** 2)
        return mean + rate * (x_t - t * mean)


def test_chains_in_many_dimensions_accept_as_much_with_networks_in_bf16() -> None:
    """This network is the same in each precision, so only the sums over members could be rounded."""
    found, rates = METHODS["mcmc"], []
    noise = torch.randn(4, 12_288, generator=torch.Generator().manual_seed(1))
    for precision in ("fp32", "bf16"):
        ctx = replace(context(), precision=precision)
        settings = found.settings(num_levels=6, num_inner=2, line_points=2, step_size=0.2)
        found.sample(settings, Normals(), Request(torch.ones(4, 2, dtype=torch.long), noise), ctx)
        rates.append(torch.tensor(ctx.notes["acceptance"]))
    assert rates[0].mean() > 0.7
    assert torch.equal(*rates)


@pytest.mark.parametrize(("least", "sizes"), [(1, [5, 5, 3]), (4, [5, 4, 4]), (6, [7, 6]), (7, [13]), (20, [13])])
def test_parts_have_the_least_number_of_requests_that_their_control_needs(least: int, sizes: list[int]) -> None:
    request = Request(torch.ones(13, 2, dtype=torch.long), torch.zeros(13, 3, 64, 64))
    compose = score_models.perturbations(OnePoint(), "task", context())
    parts = [
        part.rows
        for part in score_models.compositions(OnePoint(), request, context(), compose=compose, num_particles=4, least_rows=least)
    ]
    assert [len(rows) for rows in parts] == sizes
    assert torch.cat(parts).tolist() == list(range(13))


@pytest.mark.parametrize("shape", [(2,), (3, 16, 16)])
def test_driftlite_estimates_divergences_in_fp32_in_each_precision(shape: tuple[int, ...]) -> None:
    """Noise networks on vectors, velocity networks on images."""
    found = METHODS["driftlite"]
    if len(shape) == 1:
        model = score_models.build(driftlite.Settings(), perturbed())
    else:  # untrained, a velocity network's answer is 0
        model = score_models.fit(driftlite.Settings(), image_problem(), context())
    settings = found.settings(num_steps=3, **FEW["driftlite"])
    request = Request(torch.ones(6, 2, dtype=torch.long), torch.randn(6, *shape, generator=torch.Generator().manual_seed(1)))
    exact, rounded = (
        found.sample(settings, model, request, replace(context(), precision=precision)) for precision in ("fp32", "bf16")
    )
    assert torch.equal(exact, rounded)


@pytest.mark.parametrize("name", [name for name in LEARNED if name != "mcmc"])
def test_no_sampler_leaves_noise_in_what_a_velocity_network_answers(name: str) -> None:
    """mcmc's chains stop at sigma 0.3, from where a step without noise leads to the data."""
    found = METHODS[name]
    x = found.sample(found.settings(**FEW.get(name, {})), OnePoint(), asked(500), context())
    assert (x - 0.5).abs().max() < 0.003


@pytest.mark.parametrize("name", ["mcmc", "mcmc-oracle"])
@pytest.mark.parametrize("kernel", ["mala", "hmc", "ula"])
def test_chains_cost_what_fkc_costs_in_the_plane(name: str, kernel: str) -> None:
    found, problem = METHODS[name], perturbed(sample_steps=100)
    spent, most = found.evaluations(found.settings(kernel=kernel), problem), METHODS["fkc"].evaluations(fkc.Settings(), problem)
    assert 0.85 * most < spent <= most
    assert found.evaluations(found.settings(num_levels=40, num_inner=3, line_points=2), problem) <= 3 * (1 + 40 + 3 * 40)


class AnswersOff:
    """N(0, I) for every combination, as a noise network has it whose answer is off by 0.05, and its score by 0.05 / sigma."""

    OFF = 0.05

    def members(self, combinations):
        return lambda x, alpha, sigma: (self.OFF / sigma - x).expand(len(combinations), *x.shape)

    def composed(self, members):
        return lambda x, alpha, sigma: (self.OFF / sigma - x, x.new_zeros(len(x)))

    def log_densities(self, combinations):
        return lambda x, alpha, sigma: (x * self.OFF / sigma - x**2 / 2).sum(1).double().expand(len(combinations), len(x))

    def divergences(self, combinations):
        return lambda x, alpha, sigma: x.new_full((len(combinations), len(x)), -float(x.shape[1]))


@pytest.mark.parametrize(("smallest", "off"), [(0.1, 0.357), (0.3, 0.155)])
def test_chains_end_where_a_networks_error_would_move_them_far(smallest: float, off: float) -> None:
    """A chain settles at a mean of 0.05 / sigma, and the steps after the last one hardly move it."""
    model = score_models.OracleModel(AnswersOff(), (0, 0), 50, Guidance(1.0, (True, True)))
    last = min(level.sigma for level in levels(VariancePreservingPath(), 50, 1e-5) if level.sigma >= smallest)
    assert off == pytest.approx(0.05 / last, abs=0.001)
    x = mcmc.sample(mcmc.Settings(smallest_sigma=smallest), model, asked(2000), context())
    assert x.mean().item() == pytest.approx(off, abs=0.04)
    assert METHODS["mcmc"].settings().smallest_sigma == 0.3


def test_learnt_scores_are_integrated_over_three_points_on_vectors_alone() -> None:
    path, edge = score_models.path_of(perturbed())
    plane, image = (mcmc.chains(mcmc.Settings(), mcmc.Place(planar, 100, path, edge)) for planar in (True, False))
    assert (plane.num_levels, plane.num_inner, plane.line_points) == (100, 8, 3)
    assert (image.num_levels, image.num_inner, image.line_points) == (40, 3, 2)
    oracle = mcmc.chains(mcmc.OracleSettings(), mcmc.Place(True, 100, path, edge))
    assert (oracle.num_levels, oracle.num_inner) == (100, 15)


def test_an_oracle_is_refused_where_there_is_none() -> None:
    with pytest.raises(Refused, match="no analytic scores"):
        METHODS["fkc-oracle"].fit(METHODS["fkc-oracle"].settings(), vector_problem(), context())


def test_weights_that_are_no_distribution_are_refused_with_theorem_1() -> None:
    """w = 1 is the task's own; w = 20 of base 1.1: 20 (0.1 + 1) - 39 / 1.1 < 0."""
    found, problem = METHODS["naive-sde-oracle"], perturbed(name="gauss2d-nonfact-ood")
    settings = found.settings(weight=20)
    with pytest.raises(CompbenchError, match="theorem 1"):
        found.sample(settings, found.fit(settings, problem, context()), asked(4), context())


@pytest.mark.parametrize("setting", [{"num_particles": 0}, {"g_clip": 0}, {"g_clip": "on"}, {"resample_below": 1.5}])
def test_settings_out_of_bounds_are_refused(setting: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        fkc.Settings(**setting)


def test_equal_fits_are_asked_for_alike_by_all_methods() -> None:
    problem = perturbed()
    facts = {str(METHODS[name].shared_fit(METHODS[name].settings(), problem)) for name in LEARNED}
    assert len(facts) == 1
    experts = fkc.Settings(experts=True)
    assert str(METHODS["fkc"].shared_fit(experts, problem)) not in facts
    assert str(METHODS["fkc"].shared_fit(fkc.Settings(num_particles=3), problem)) in facts


def test_the_particles_of_a_request_are_paired_on_its_noise() -> None:
    found, problem = METHODS["naive-ode-oracle"], perturbed(sample_steps=30)
    settings = found.settings()
    model = found.fit(settings, problem, context())
    request = asked(10)
    twice = [found.sample(settings, model, request, context(seed)) for seed in (0, 1)]
    assert torch.equal(*twice)
    flipped = found.sample(settings, model, request._replace(x0=-request.x0), context())
    assert torch.allclose(flipped, -twice[0], atol=1e-5)


def test_the_double_perturbation_of_a_wider_first_source_is_wider() -> None:
    """Both factors count: without either perturbation the product is another Gaussian."""
    laws = {(0, 0): gaussian((20, 20)), (1, 0): gaussian((10, 1)), (0, 1): gaussian((1, 10))}
    oracle = SourceOracle(laws, torch.device("cpu"))
    problem = Problem(**{**perturbed(sample_steps=100).__dict__, "oracle": oracle, "federation": Federation([_Nothing()])})
    found = METHODS["fkc-oracle"]
    settings = found.settings()
    model = found.fit(settings, problem, context())
    first, second, both = (
        found.sample(settings, model, asked(3000, cell), context()).var(0) for cell in ((1, 0), (0, 1), (1, 1))
    )
    assert first.tolist() == pytest.approx([10, 1], rel=0.15)
    assert second.tolist() == pytest.approx([1, 10], rel=0.15)
    assert both.tolist() == pytest.approx([20 / 21] * 2, rel=0.15)
    assert math.isfinite(both.sum())


class _Nothing:
    name, size = "nothing", 1


def test_the_planar_clip_stays_with_noise_networks_and_velocity_networks_are_tempered() -> None:
    """With these nothing is clipped and no step leaves less than half of the effective size, on vectors and on images."""
    found, notes = METHODS["fkc"], []
    for problem, shape in ((perturbed(3), (2,)), (vector_problem(train_steps=20), (2,)), (image_problem(), (3, 16, 16))):
        settings, ctx = found.settings(num_particles=8, weight=10), context()
        request = Request(torch.tensor([[0, 1], [1, 0]] * 4), torch.randn(8, *shape))
        found.sample(settings, found.fit(settings, problem, context()), request, ctx)
        notes.append(ctx.notes)
    assert notes[0]["tempered"] == 1
    assert notes[1]["tempered"] < 1
    for note in notes[1:]:
        assert note["clipped"] == 0
        assert min(note["ess"]) >= 4 - 1e-3
    assert fkc.PLANAR == {"g_clip": 15.0, "resample_below": 1.0, "ess_floor": 0.0}  # the authors' code


def test_images_with_a_base_are_composed_around_it() -> None:
    """s = s10 + s01 - s00 of the network's own answers for whole sources: no factor is ever left open."""
    problem = perturbed_images()
    model = score_models.fit(naive.ModelSettings(), problem, context())
    request = Request(torch.tensor([[1, 1]] * 3), torch.randn(3, 3, 16, 16))
    compose = score_models.perturbations(model, "task", context())
    (part,) = score_models.compositions(model, request, context(), compose=compose)
    found = part.members.composed(request.x0[:, None], 0.4).score[:, 0]
    t = torch.full((3,), 0.4)
    scores = {
        cell: velocity_to_score(LinearPath(), model(request.x0, t, torch.tensor([cell] * 3)), request.x0, t)
        for cell in ((0, 0), (1, 0), (0, 1))
    }
    torch.testing.assert_close(found, scores[1, 0] + scores[0, 1] - scores[0, 0], rtol=1e-4, atol=1e-4)


@pytest.mark.slow  # scores of both are composed in each test of a base too
@pytest.mark.parametrize("experts", [False, True])
def test_lights_of_two_perturbations_are_both_on(experts: bool) -> None:
    """They light different pixels, so the composition of scores is exact; no training image has both."""
    torch.manual_seed(0)
    found, problem = METHODS["naive-ode"], perturbed_images(train_steps=60 if experts else 100, patch=4)
    settings = found.settings(experts=experts)
    request = Request(torch.tensor([[1, 1], [1, 0], [0, 1], [0, 0]] * 4), torch.randn(16, 3, 16, 16))
    x = found.sample(settings, found.fit(settings, problem, context()), request, context())
    lit = torch.stack([x[:, 0, :, :8].mean((1, 2)), x[:, 1, :8, :].mean((1, 2))], 1) > 0
    assert torch.equal(lit, request.condition > 0)


@pytest.mark.parametrize("name", [*LEARNED, "superdiff"])
def test_every_composer_runs_on_images_with_a_base(name: str) -> None:
    found, problem = {**METHODS, superdiff_method.name: superdiff_method}[name], perturbed_images()
    settings = found.settings(**{"mcmc": {"num_levels": 4}, **FEW}.get(name, {}))
    request = Request(torch.tensor([[1, 1], [1, 0], [0, 0]]), torch.randn(3, 3, 16, 16))
    x = found.sample(settings, found.fit(settings, problem, context()), request, context())
    assert x.shape == (3, 3, 16, 16)
    assert bool(x.isfinite().all())


def test_experts_of_images_learn_from_their_own_source_alone() -> None:
    condition = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]])
    rows = [source_rows(condition, (0, 0), member).tolist() for member in range(3)]
    assert rows == [[True, False, False, False], [False, True, False, False], [False, False, True, False]]


def test_guidance_around_null_is_refused_where_there_is_a_base() -> None:
    method = guided.compbench_methods()[0]
    with pytest.raises(Refused, match="around a base"):
        method.fit(method.settings(), perturbed_images(), context())
