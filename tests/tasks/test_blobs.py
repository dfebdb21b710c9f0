"""The blobs: where modes lie, who has which, what perfect and blind samplers score, and figure 3's panel."""

import pytest
import torch
from torch import Generator

from compbench.api.interfaces import Source, TaskContext
from compbench.data.blob_mixture import HOLDOUT, MISSING, SPACE, Settings, centre
from compbench.data.silo_shards import check_marginals, dirichlet_owners, iid_owners
from compbench.metrics import vector
from compbench.system.errors import CompbenchError
from compbench.tasks.blobs import BUDGETS, make_task
from compbench.tasks.blobs_evaluation import panel


@pytest.fixture
def ctx(tmp_path) -> TaskContext:
    metrics = {metric.name: metric for metric in vector.compbench_metrics()}
    source = Source("embedded", "exact sampler", "blobs-1")
    return TaskContext(torch.device("cpu"), "fp32", 0, tmp_path, tmp_path, source, "smoke", metrics=metrics)


def exact(condition: torch.Tensor, stream: str) -> torch.Tensor:
    centres = torch.tensor([centre(tuple(row), Settings()) for row in condition.tolist()])
    return centres + Settings().std * torch.randn(centres.shape, generator=Generator().manual_seed(9))


def scores(sampler, ctx) -> dict[str, float]:
    return {score.name: score.value for score in make_task("noniid").open(ctx).evaluate(sampler).scores}


def test_right_is_right_and_top_is_top() -> None:
    assert centre((1, 0), Settings(side=3.0)) == (3.0, 3.0)
    assert centre((0, 1), Settings(side=3.0)) == (-3.0, -3.0)


@pytest.mark.parametrize(("split", "modes"), [("iid", [3, 3]), ("noniid", [2, 2])])
def test_no_silo_has_the_missing_mode_and_together_they_have_the_rest(split, modes, ctx) -> None:
    task = make_task(split)
    problem = task.open(ctx).problem(BUDGETS["smoke"])
    everything = set()
    for silo, count in zip(problem.federation._silos, modes, strict=True):
        cells = set(map(tuple, silo.condition.tolist()))
        assert len(cells) == count
        everything |= cells
        batch = silo.batch(4000, Generator().manual_seed(0))
        for cell in cells:
            points = batch.x1[(batch.condition == torch.tensor(cell)).all(1)]
            assert torch.allclose(points.mean(0), torch.tensor(centre(cell, Settings())), atol=0.05)
            assert torch.allclose(points.std(0), torch.full((2,), 0.3), atol=0.03)
    assert everything == set(HOLDOUT.seen_cells)


def test_exact_samples_reach_the_ceiling_and_others_do_not(ctx) -> None:
    perfect = scores(exact, ctx)
    assert perfect["heldout_mode_share"] >= 0.96
    assert perfect["seen_mode_share"] >= 0.96

    def stuck(condition, stream):  # what a network does that knows the missing mode's values one by one
        return exact(torch.where((condition == torch.tensor(MISSING)).all(1)[:, None], torch.tensor([0, 1]), condition), stream)

    found = scores(stuck, ctx)
    assert found["heldout_mode_share"] == 0
    assert found["seen_mode_share"] >= 0.96
    assert found["heldout_sw2"] > 10 * perfect["heldout_sw2"]


def mediocre(condition: torch.Tensor, stream: str) -> torch.Tensor:
    """Modes half a standard deviation off and a quarter too wide."""
    centres = torch.tensor([centre(tuple(row), Settings()) for row in condition.tolist()])
    return 0.15 + centres + 1.25 * (exact(condition, stream) - centres)


def test_a_sampler_that_collapses_on_the_centre_ranks_below_real_data_and_below_a_mediocre_one(ctx) -> None:
    def collapsed(condition, stream, width=0.0):
        centres = torch.tensor([centre(tuple(row), Settings()) for row in condition.tolist()])
        return centres + width * (exact(condition, stream) - centres)

    found = make_task("noniid").open(ctx).evaluate(collapsed).scores
    (primary,) = [score for score in found if score.primary]
    assert (primary.name, primary.direction) == (make_task("noniid").primary, "lower")
    assert primary.value == pytest.approx(0.3, rel=0.1)  # one dimension's std: W2 of N(0, s^2) to a point is s
    name, others = primary.name, [scores(sampler, ctx)[primary.name] for sampler in (exact, mediocre)]
    assert others[0] < others[1] < primary.value
    assert others[0] < 3 * primary.floor
    half = scores(lambda condition, stream: collapsed(condition, stream, 0.5), ctx)
    assert half["heldout_mode_share"] > scores(mediocre, ctx)["heldout_mode_share"]  # which is why that ranks nothing
    assert scores(exact, ctx)[name] < half[name] < primary.value


def test_the_panel_has_a_bold_ring_and_the_samples(ctx) -> None:
    at = {cell: exact(torch.tensor([cell] * 50), "") for cell in (*HOLDOUT.seen_cells, MISSING)}
    picture = panel(at, Settings())
    assert picture.shape == (240, 240, 3)
    quarter = picture[:120, 120:]  # right and top
    red = (quarter[..., 0] > 180) & (quarter[..., 1] < 120)
    assert red.sum() > 100
    without = panel(at | {MISSING: torch.empty(0, 2)}, Settings())[:120, 120:]
    assert ((without < 80).all(-1)).sum() > 100


def test_modes_that_run_into_each_other_are_refused() -> None:
    with pytest.raises(CompbenchError, match="task.std=0.5: modes 1 from the axes"):
        make_task("iid", Settings(std=0.5))


def test_official_data_is_refused_in_one_line(tmp_path) -> None:
    with pytest.raises(CompbenchError, match="use --source embedded"):
        make_task("iid").source(tmp_path, "official")


def test_a_value_that_no_silo_has_is_named() -> None:
    left = torch.tensor([[0, 0], [0, 1]])
    check_marginals([left, torch.tensor([[1, 0]])], SPACE)
    with pytest.raises(CompbenchError, match="no silo has 'left-right' = right: full marginal coverage fails"):
        check_marginals([left, left], SPACE)


def test_owners_are_uniform_or_as_uneven_as_the_concentration_says() -> None:
    generator = Generator().manual_seed(0)
    shares = torch.bincount(iid_owners(20_000, 4, generator), minlength=4) / 20_000
    assert torch.allclose(shares, torch.full((4,), 0.25), atol=0.02)
    cell = torch.arange(50).repeat_interleave(400)
    largest = {}
    for concentration in (0.1, 100.0):
        owners = dirichlet_owners(cell, 4, concentration, generator)
        table = torch.zeros(50, 4).index_put_((cell, owners), torch.ones(len(cell)), accumulate=True) / 400
        largest[concentration] = table.max(1).values.mean()
    assert largest[0.1] > 0.75
    assert largest[100.0] < 0.35
