import warnings

import pytest
import torch
from many import clip_each, train_many
from stacked_step import schedule
from support import stand_in
from torch import Generator
from torch._dynamo.utils import counters

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import Budget
from compbench.data.bumps import TableSilo, as_samples, bumps
from compbench.flow.codes import CodeSettings, Encoding
from compbench.flow.decoders import ConditionDecoder, MLPDecoder, regression_loss
from compbench.flow.low_rank_maps import LowRankDecoder, RankSettings, band_of, banded_convolution, penalised_loss
from compbench.flow.train import ema_decay, learning_rate, train
from compbench.system.errors import CompbenchError

CPU = torch.device("cpu")
N = 6
PLACES = torch.cartesian_prod(torch.arange(N), torch.arange(N))
BUDGET = Budget(
    train_steps=30, batch_size=8, width=4, learning_rate=3e-3, warmup_steps=3, ema_decay=0.9, gradient_clip=0.05, sample_steps=1
)
WEIGHTS = ((0.0, 0.0), (0.1, 0.0), (0.0, 0.01), (0.1, 0.01))


def silo(device: torch.device = CPU) -> TableSilo:
    return TableSilo("bumps", as_samples(bumps(PLACES, size=N, sigma=1.0)).to(device), PLACES.to(device))


def context(seed: int, *, compile: bool = False, device: torch.device = CPU) -> Context:
    return Context(device, "fp32", Generator().manual_seed(seed), NoCheckpoints(), compile=compile)


def low_rank(seed: int, weights: tuple[float, float]) -> LowRankDecoder:
    torch.manual_seed(seed)
    return LowRankDecoder((N, N), (1, N, N), RankSettings(entropy_weight=weights[0], variance_weight=weights[1]))


def mlp(seed: int) -> ConditionDecoder:
    torch.manual_seed(seed)
    return ConditionDecoder(Encoding((N, N), CodeSettings()), MLPDecoder(2 * N, (1, N, N), width=8, depth=2))


def together(nets, loss, weights, ctx: Context | None = None) -> None:
    generators, ctx = [Generator().manual_seed(seed) for seed in range(len(nets))], ctx or context(99)
    train_many(nets, loss, [silo(ctx.device)] * len(nets), BUDGET, ctx, generators=generators, weights=torch.tensor(weights))


def test_low_rank_of_many_seeds_and_penalties_at_once_is_each_alone() -> None:
    nets = [low_rank(seed, weights) for seed, weights in enumerate(WEIGHTS)]
    together(nets, penalised_loss, WEIGHTS)
    for seed, weights in enumerate(WEIGHTS):
        alone = low_rank(seed, weights)
        train(alone, lambda *words, net=alone: regression_loss(*words) + net.penalty(), silo(), BUDGET, context(seed))
        assert not nets[seed].training
        torch.testing.assert_close(nets[seed](PLACES), alone(PLACES), rtol=0, atol=1e-5)


def test_decoders_of_many_seeds_at_once_are_each_alone() -> None:
    nets = [mlp(seed) for seed in range(3)]
    together(nets, lambda net, batch, row: regression_loss(net, batch, Generator()), [(0.0,)] * 3)
    for seed in range(3):
        alone = train(mlp(seed), regression_loss, silo(), BUDGET, context(seed))
        torch.testing.assert_close(nets[seed](PLACES), alone(PLACES), rtol=0, atol=1e-5)


def test_each_network_is_clipped_by_its_own_norm() -> None:
    parameters = [torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 1, requires_grad=True)]
    parameters[0].grad, parameters[1].grad = torch.tensor([[3.0, 0, 0], [0.3, 0, 0]]), torch.tensor([[4.0], [0.4]])
    clip_each(parameters, 1.0)
    assert [p.grad[:, 0].tolist() for p in parameters] == [pytest.approx([0.6, 0.3]), pytest.approx([0.8, 0.4])]


def test_a_network_that_diverges_is_named() -> None:
    with pytest.raises(CompbenchError, match="the loss of network 1 of 2 is not finite in steps 0 to 29"):
        together([mlp(0), mlp(1)], lambda net, batch, row: net(batch.condition).square().mean() / row[0], [(1.0,), (0.0,)])


def test_rows_of_one_table_are_drawn_before_the_first_step_as_they_would_be_at_each() -> None:
    class Each:
        """The same examples by `batch` alone."""

        def __init__(self, table: TableSilo) -> None:
            self.name, self.size, self.batch = table.name, table.size, table.batch

    found = []
    for table in (silo(), Each(silo())):
        nets = [mlp(seed) for seed in range(3)]
        generators = [Generator().manual_seed(seed) for seed in range(3)]
        loss = lambda net, batch, row: regression_loss(net, batch, Generator())  # noqa: E731
        train_many(nets, loss, [table] * 3, BUDGET, context(99), generators=generators, weights=torch.zeros(3, 1))
        found.append([net(PLACES) for net in nets])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@stand_in.needs_torch_with_cuda
def test_no_step_of_many_networks_waits_for_the_device() -> None:
    waits = []
    for steps in (6, 12):
        with stand_in.gpu() as log:
            table = TableSilo("bumps", as_samples(bumps(PLACES, size=N, sigma=1.0)).to("cuda"), PLACES.to("cuda"))
            ctx = Context(stand_in.GPU, "fp32", Generator().manual_seed(0), NoCheckpoints())
            budget = BUDGET.model_copy(update={"train_steps": steps})
            nets = [low_rank(seed, (0.1, 0.01)) for seed in range(2)]
            generators = [torch.Generator().manual_seed(seed) for seed in range(2)]
            train_many(nets, penalised_loss, [table] * 2, budget, ctx, generators=generators, weights=torch.ones(2, 2))
        waits.append(log.waits.total())
    assert waits[0] == waits[1]


@pytest.fixture
def forgotten():
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def regression(net, batch, row) -> torch.Tensor:
    return regression_loss(net, batch, None)  # it draws nothing


def as_on_a_gpu(images: torch.Tensor, weight: torch.Tensor, shifts: torch.Tensor) -> torch.Tensor:
    """What `low_rank.convolution` does there; on a CPU it gives a compiler loops of its own."""
    return banded_convolution(images, band_of(weight, shifts))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mlp", "low-rank"])
def test_a_step_of_many_networks_is_one_graph_that_learns_what_torch_s_optimiser_does(
    kind: str, forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compbench.flow.low_rank_maps.convolution", as_on_a_gpu)
    found = []
    for compile in (False, True):
        ctx = context(99, compile=compile)
        if kind == "mlp":
            nets = [mlp(seed) for seed in range(3)]
            together(nets, regression, [(0.0,)] * 3, ctx)
        else:
            nets = [low_rank(seed, weights) for seed, weights in enumerate(WEIGHTS)]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", category=ResourceWarning)  # of files of other tests, once they are collected
                warnings.filterwarnings("ignore", "Guards may run slower on Python 3.13.0")
                together(nets, penalised_loss, WEIGHTS, ctx)
        found.append([net(PLACES) for net in nets])
        assert ctx.notes == ({"compiled": 1.0} if compile else {})
        assert counters["stats"]["unique_graphs"] == compile
    assert not counters["graph_break"]
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_many_networks_that_cannot_be_compiled_are_trained_as_they_are_and_the_note_says_so(forgotten: None) -> None:
    def looks(net, batch, row) -> torch.Tensor:
        return regression(net, batch, row) + 0 * len(str(batch.x1.sum()))  # no compiler can follow it

    nets, plain, ctx = [mlp(0), mlp(1)], [mlp(0), mlp(1)], context(99, compile=True)
    with pytest.warns(UserWarning, match="without compilation"):
        together(nets, looks, [(0.0,)] * 2, ctx)
    together(plain, regression, [(0.0,)] * 2)
    assert ctx.notes == {"compiled": 0.0}
    for one, other in zip(nets, plain, strict=True):
        torch.testing.assert_close(one(PLACES), other(PLACES), rtol=0, atol=1e-5)


def test_the_schedule_is_adamw_s_and_the_budget_s() -> None:
    """One number, gradient 1 at every step: torch's own optimiser takes the same way."""
    number, table = torch.nn.Parameter(torch.tensor([2.0])), schedule(BUDGET, 0.1)
    optimiser = torch.optim.AdamW([number], lr=1.0, weight_decay=0.1)
    own, first, second = torch.tensor([2.0]), torch.zeros(1), torch.zeros(1)
    for step, (keep, rate, correction, moved) in enumerate(table):
        optimiser.param_groups[0]["lr"] = learning_rate(step, BUDGET)
        number.grad = torch.ones(1)
        optimiser.step()
        first, second = 0.9 * first + 0.1, 0.999 * second + 0.001
        own = keep * own - rate * first / (second.sqrt() / correction + 1e-8)
        assert moved == pytest.approx(1 - ema_decay(step, BUDGET))
    torch.testing.assert_close(own, number.detach(), rtol=1e-6, atol=0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_graph_of_many_networks_learns_what_torch_s_optimiser_does(forgotten: None) -> None:
    found = []
    for compile in (False, True):
        ctx = context(99, compile=compile, device=torch.device("cuda", 0))
        nets = [low_rank(seed, weights) for seed, weights in enumerate(WEIGHTS)]
        together(nets, penalised_loss, WEIGHTS, ctx)
        found.append([net.cpu()(PLACES) for net in nets])
        assert ctx.notes["compiled"] == float(compile)
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=0, atol=1e-3)
