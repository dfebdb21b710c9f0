"""Rules for rounds on regressions of one weight, whose optima are known, and merges of networks."""

import math
from dataclasses import replace

import pytest
import torch
from compbench_methods import fedavgm, fedflow, fedprox, scaffold, soup
from problems import SPACE, context
from support.seldom import seldom
from torch import Generator, Tensor, nn

from compbench.api.context import NoCheckpoints
from compbench.api.factors import Holdout
from compbench.api.federation import Federation, SiloMemory, num_bytes
from compbench.api.interfaces import Budget, Event, Problem
from compbench.data.silo_shards import TensorSilo
from compbench.flow.rounds import Corrected, average, displaced, held_near, rounds
from compbench.flow.silos import Recipe, split
from compbench.flow.train import train
from compbench.runner.checkpoints import FileCheckpoints
from compbench.system.errors import Cancelled
from compbench.system.files import load_tensors

HOLDOUT = Holdout(SPACE, (0, 1), ((1, 0),))
SLOPES, TARGETS = (1.0, 2.0), (-1.0, 2.0)
"""f_k = (slope theta - target)^2 / 2: silos' own optima are -1 and 1, the pooled one is (-1 + 4) / 5."""
POOLED, OWN_MEAN = 0.6, 0.0


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(1))


def regression(net, batch, generator) -> Tensor:
    slope, target = batch.x1.unbind(1)
    return (slope * net.theta - target).square().mean() / 2


def regressions(train_steps: int = 1200) -> Problem:
    """Two silos, the examples of each alike, so that every batch has the silo's exact gradient."""
    condition = torch.zeros(20, len(SPACE), dtype=torch.long)
    silos = [
        TensorSilo(f"silo {k}", torch.tensor(pair).expand(20, 2).clone(), condition)
        for k, pair in enumerate(zip(SLOPES, TARGETS, strict=True))
    ]
    budget = Budget(
        train_steps=train_steps, batch_size=4, width=8, learning_rate=0.05, ema_decay=0.0, sample_steps=2, gradient_clip=10.0
    )
    return Problem(SPACE, Event("vector", (2,)), Federation(silos), budget, HOLDOUT)


def plain(net, silo, received, budget, own) -> None:
    train(net, regression, silo, budget, own)


def value_of(net) -> float:
    return net.theta.item()


@pytest.mark.slow
def test_plain_averaging_of_long_rounds_ends_at_the_mean_of_the_silos_own_optima() -> None:
    net = rounds(Recipe(Weight, 0), plain, regressions(), context(), num_rounds=8)
    assert value_of(net) == pytest.approx(OWN_MEAN, abs=0.1)


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_what_is_sampled_is_the_moving_average_of_the_servers_networks(decay: float) -> None:
    """Round r of 40 steps leaves theta = r + 1; from step 80 on a step's decay is the budget's, and a round's is decay^40."""

    def local(net, silo, received, budget, own):
        with torch.no_grad():
            net.theta += 1

    problem = regressions(120)
    problem = replace(problem, budget=problem.budget.model_copy(update={"ema_decay": decay}))
    net = rounds(Recipe(Weight, 0), local, problem, context(), num_rounds=3)
    after, kept = 0.0, [math.prod(min(decay, (1 + s) / (10 + s)) for s in range(40 * r, 40 * r + 40)) for r in range(3)]
    for theta, share in zip((1.0, 2.0, 3.0), kept, strict=True):
        after = share * after + (1 - share) * theta
    assert value_of(net) == pytest.approx(after)
    assert kept[2] == pytest.approx(decay**40)
    if not decay:
        assert value_of(net) == 3


@pytest.mark.parametrize("clip", seldom([10.0, 0.5], but=[0.5]))
def test_scaffold_ends_at_the_pooled_optimum_also_with_a_clip_below_the_silos_gradients(clip: float) -> None:
    """The silos' own gradients are 1.6 and -1.6 there, of which a clip of controls or of single terms would leave 0.5."""
    problem = regressions(1200)
    problem = replace(problem, budget=problem.budget.model_copy(update={"gradient_clip": clip}))
    net = scaffold.corrected_rounds(Recipe(Weight, 0), regression, problem, context(), num_rounds=60)
    assert value_of(net) == pytest.approx(POOLED, abs=0.05)


def controls_after(num_rounds: int, problem: Problem) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """What the silos sent after some rounds, and what the server sent them in the last one."""
    sent, received, run = [], [], Federation.run

    def watched(self, *args, **options):
        received.append(options["send"])
        sent.append(run(self, *args, **options))
        return sent[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Federation, "run", watched)
        scaffold.corrected_rounds(Recipe(Weight, 0), regression, problem, context(), num_rounds=num_rounds)
    return sent[-1], received[-1]


def test_a_silos_control_is_the_mean_of_its_own_gradients_along_the_round() -> None:
    """Of one step from 0 that is the gradient there, -slope target, which is not clipped; the server sends its mean."""
    problem = regressions(2)
    problem = replace(problem, budget=problem.budget.model_copy(update={"gradient_clip": 1.0}))
    first, _ = controls_after(1, replace(problem, budget=problem.budget.model_copy(update={"train_steps": 1})))
    assert [state["control.theta"].item() for state in first] == pytest.approx([1.0, -4.0])
    second, received = controls_after(2, problem)
    assert received["control.theta"].item() == pytest.approx(-1.5)
    theta = received["theta"].item()
    expected = [slope * (slope * theta - target) for slope, target in zip(SLOPES, TARGETS, strict=True)]
    assert [state["control.theta"].item() for state in second] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("slope", "shifted"), [(1.0, -3.0), (4.0, 0.0), (-3.0, -7.0), (9.0, 0.0), (-9.0, -8.0)])
def test_a_slope_is_never_longer_than_the_gradient_that_it_corrects(slope: float, shifted: float) -> None:
    """The silo's gradient at 0 is -4; what is averaged is this gradient, whatever the slope and the clip."""
    net, problem = Weight(), regressions(1)
    seen = []
    corrected = Corrected(net, {"theta": torch.tensor([slope])})
    net.theta.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.item()))
    train(net, regression, problem.federation._silos[1], problem.budget.model_copy(update={"gradient_clip": 1e-3}), context())
    assert seen == pytest.approx([shifted])
    assert corrected.close()["theta"].item() == pytest.approx(-4.0)
    regression(net, problem.federation._silos[1].batch(4, torch.Generator()), None).backward()
    assert corrected.close()["theta"].item() == pytest.approx(-4.0)  # closed


def test_a_round_of_scaffold_sends_two_networks_to_a_silo_and_two_back() -> None:
    """As the paper has it: a silo's own control stays there."""
    sent = {}
    for name, run in {
        "fedflow": lambda problem: rounds(Recipe(Weight, 0), plain, problem, context(), num_rounds=3),
        "scaffold": lambda problem: scaffold.corrected_rounds(Recipe(Weight, 0), regression, problem, context(), num_rounds=3),
    }.items():
        problem = regressions(30)
        run(problem)
        sent[name] = [(account.bytes_in, account.bytes_out, account.steps) for account in problem.federation.accounts]
    assert sent["fedflow"] == [(12, 12, 30)] * 2
    assert sent["scaffold"] == [(24, 24, 30)] * 2


def test_an_interrupted_scaffold_goes_on_bit_for_bit(tmp_path) -> None:
    def run(checkpoints, cancelled=lambda: False):
        torch.manual_seed(0)
        (method,) = scaffold.compbench_methods()
        ctx = context(cancelled=cancelled)
        ctx.checkpoints = checkpoints
        return method.fit(method.settings(rounds=3), corners(), ctx).state_dict()

    asked = iter(range(100))
    path = tmp_path / "fit.safetensors"
    straight = run(NoCheckpoints())
    with pytest.raises(Cancelled):
        run(FileCheckpoints(path, resume=False), lambda: next(asked) > 18)  # in the third round of four steps, in a silo's second
    resumed = run(FileCheckpoints(path, resume=True))
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


@pytest.mark.parametrize("asked", [1, 4, 25, 42])
def test_a_fit_keeps_the_networks_of_one_round_and_goes_on_with_momentum(asked: int, tmp_path) -> None:
    """Stopped in the first, fourth and sixth round of eight, each of three steps in two silos."""

    def run(checkpoints, cancelled=lambda: False):
        ctx = context(cancelled=cancelled)
        ctx.checkpoints = checkpoints
        rule = fedavgm.momentum_rule(0.5, 1.0)
        return value_of(rounds(Recipe(Weight, 0), plain, regressions(24), ctx, num_rounds=8, take_up=rule))

    path, count = tmp_path / "fit.safetensors", iter(range(1000))
    with pytest.raises(Cancelled):
        run(FileCheckpoints(path, resume=False), lambda: next(count) >= asked)
    full = {path.name.split("-silo")[0] for path in tmp_path.glob("fit.round-*") if load_tensors(path)[0]}
    assert full <= {f"fit.round-{asked // 6}"}
    assert run(FileCheckpoints(path, resume=True)) == run(NoCheckpoints())


@pytest.mark.parametrize("mu", seldom([0.0, 1.0, 1e3], but=[1.0]))
def test_a_silos_proximal_step_ends_where_both_gradients_cancel_and_at_the_server_for_large_mu(mu) -> None:
    problem = regressions(800)
    (silo, _), start, (slope, _), (target, _) = problem.federation._silos, 0.5, SLOPES, TARGETS
    net = Weight()
    nn.init.constant_(net.theta, start)
    train(net, held_near(regression, net, mu), silo, problem.budget, context(), weight_decay=0.0)
    expected = (slope * target + mu * start) / (slope**2 + mu)
    assert value_of(net) == pytest.approx(expected, abs=0.01)
    if mu == 1e3:
        assert expected == pytest.approx(start, abs=0.01)


def test_momentum_adds_up_the_mean_changes() -> None:
    rule, kept = fedavgm.momentum_rule(0.5, 2.0), {}
    before = {"theta": torch.tensor([1.0])}
    first = rule(before, {"theta": torch.tensor([2.0])}, kept)
    assert first["theta"].item() == 1 + 2 * 1
    assert rule(first, {"theta": torch.tensor([3.0])}, kept)["theta"].item() == 3 + 2 * (0.5 * 1 + 0)


def corners() -> Problem:
    parts = [((0, 0), (0, 1)), ((0, 1), (1, 1))]
    silos = []
    for number, cells in enumerate(parts):
        condition = torch.tensor(cells).repeat_interleave(50, 0)
        x1 = 2.0 * condition - 1 + 0.3 * torch.randn(len(condition), 2, generator=Generator().manual_seed(number))
        silos.append(TensorSilo(f"silo {number}", x1, condition))
    budget = Budget(train_steps=12, batch_size=16, width=16, learning_rate=3e-3, ema_decay=0.5, sample_steps=3)
    return Problem(SPACE, Event("vector", (2,)), Federation(silos), budget, HOLDOUT, composed=(0, 1))


def fit(module, name: str, problem: Problem, **settings) -> nn.Module:
    (method,) = [method for method in module.compbench_methods() if method.name == name]
    torch.manual_seed(0)
    return method.fit(method.settings(**settings), problem, context())


def test_fedprox_without_pull_and_fedavgm_without_momentum_are_fedflow() -> None:
    plain_net = fit(fedflow, "fedflow", corners(), rounds=3).state_dict()
    for net in (fit(fedprox, "fedprox", corners(), rounds=3, mu=0.0), fit(fedavgm, "fedavgm", corners(), rounds=3, momentum=0.0)):
        for name, value in net.state_dict().items():
            assert torch.allclose(value, plain_net[name], atol=1e-6)


def test_fedprox_divides_its_pull_by_the_entries_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = []
    monkeypatch.setattr(fedprox, "held_near", lambda loss, net, mu: pulls.append(mu) or loss)
    fit(fedprox, "fedprox", corners(), rounds=1, mu=3.0)
    assert pulls == [1.5, 1.5]  # of two silos, whose samples have two entries


def test_merges_are_the_start_moved_by_lambda_times_all_changes() -> None:
    """lambda 0 is the start, which rounds have trained; 1/n is the soup, as the authors say."""
    start, mean, twice = (fit(soup, "task-arithmetic", corners(), scaling=scaling).state_dict() for scaling in (0.0, "1/n", 1.0))
    merged = fit(soup, "soup", corners()).state_dict()
    trained = fit(fedflow, "fedflow", replace(corners(), budget=split(corners().budget, 0.75)[0]), rounds=5).state_dict()
    for name, value in merged.items():
        assert torch.equal(start[name], trained[name])
        assert torch.equal(mean[name], value)
        assert torch.allclose(twice[name] - start[name], 2 * (value - start[name]), atol=1e-6)
    assert any(not torch.equal(merged[name], start[name]) for name in merged)


def test_merges_cost_rounds_a_broadcast_and_a_network_of_each_silo() -> None:
    """Of 12 steps 3 are rounds, a step each; to choose lambda takes a network more, and gives a number for each that is tried."""
    for name, more in (("soup", 0), ("task-arithmetic", 1)):
        problem = corners()
        size = num_bytes(fit(soup, name, problem).state_dict())
        for account in problem.federation.accounts:
            assert (account.steps, account.transfers_in, account.transfers_out) == (12, 3 + 1 + more, 3 + 1 + more)
            assert account.bytes_in == (3 + 1 + more) * size
            assert account.bytes_out == (3 + 1) * size + more * 4 * len(soup.MULTIPLES)


@pytest.mark.parametrize("best", soup.MULTIPLES)
def test_lambda_is_the_multiple_of_least_loss_on_all_silos_data(best: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two silos whose own optima are `best` + 1 and `best` - 1."""

    def parabola(*given):
        def loss(net, batch, generator):
            return (net.theta - best - batch.x1[0, 1].sign()).square().sum()

        return loss

    monkeypatch.setattr(soup, "decentralised_loss", parabola)
    monkeypatch.setattr(soup, "network", lambda settings, problem: Weight())
    problem, ctx = regressions(4), context()
    memory = SiloMemory({"start.theta": torch.zeros(1)})
    parts = soup.Ingredients({"theta": torch.zeros(1)}, {"theta": torch.ones(1)}, memory)
    assert soup.chosen(soup.ScaledSettings(), problem, ctx, parts) == best
    assert len(ctx.notes["loss_by_multiple"]) == len(soup.MULTIPLES)


def test_average_and_displacement_are_what_they_say() -> None:
    states = [{"a": torch.tensor([1.0])}, {"a": torch.tensor([3.0])}]
    assert average(states, torch.tensor([0.25, 0.75]))["a"].item() == 2.5
    assert displaced({"a": torch.tensor([1.0])}, states, 0.5)["a"].item() == 2.0
