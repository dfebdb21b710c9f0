import pytest
import torch
from support import stand_in
from torch import Generator

from compbench.context import NoCheckpoints
from compbench.data.bumps import TableSilo, as_samples, bumps
from compbench.errors import CompbenchError
from compbench.flow.codes import CodeSettings, Encoding
from compbench.flow.decoders import ConditionDecoder, MLPDecoder, regression_loss
from compbench.flow.low_rank import LowRankDecoder, RankSettings, penalised_loss
from compbench.flow.many import clip_each, train_many
from compbench.flow.train import train
from compbench.interfaces import Budget, Context

N = 6
PLACES = torch.cartesian_prod(torch.arange(N), torch.arange(N))
BUDGET = Budget(
    train_steps=30, batch_size=8, width=4, learning_rate=3e-3, warmup_steps=3, ema_decay=0.9, gradient_clip=0.05, sample_steps=1
)
WEIGHTS = ((0.0, 0.0), (0.1, 0.0), (0.0, 0.01), (0.1, 0.01))


def silo() -> TableSilo:
    return TableSilo("bumps", as_samples(bumps(PLACES, size=N, sigma=1.0)), PLACES)


def context(seed: int) -> Context:
    return Context(torch.device("cpu"), "fp32", Generator().manual_seed(seed), NoCheckpoints())


def low_rank(seed: int, weights: tuple[float, float]) -> LowRankDecoder:
    torch.manual_seed(seed)
    return LowRankDecoder((N, N), (1, N, N), RankSettings(entropy_weight=weights[0], variance_weight=weights[1]))


def mlp(seed: int) -> ConditionDecoder:
    torch.manual_seed(seed)
    return ConditionDecoder(Encoding((N, N), CodeSettings()), MLPDecoder(2 * N, (1, N, N), width=8, depth=2))


def together(nets, loss, weights) -> None:
    generators = [Generator().manual_seed(seed) for seed in range(len(nets))]
    train_many(nets, loss, [silo()] * len(nets), BUDGET, context(99), generators=generators, weights=torch.tensor(weights))


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
