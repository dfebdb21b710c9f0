import math
from collections.abc import Callable

import pytest
import torch
from torch import Generator, Tensor, nn

from compbench.api.context import Batch, Context
from compbench.api.interfaces import Budget
from compbench.flow.nets import MLP, UNet, VelocityNet, head
from compbench.flow.path import logit_normal
from compbench.flow.solver import euler
from compbench.flow.train import ema_decay, flow_matching_loss, learning_rate, train
from compbench.system.errors import Cancelled, CompbenchError

MEANS = torch.tensor([[-2.0, 1.0], [2.0, -1.0]])


class TwoGaussians:
    """x1 ~ N(MEANS[c], 0.1^2)."""

    name, size = "gaussians", 1000

    def batch(self, size: int, generator: Generator) -> Batch:
        condition = torch.randint(2, (size, 1), generator=generator)
        return Batch(MEANS[condition[:, 0]] + 0.1 * torch.randn(size, 2, generator=generator), condition)


class Noise:
    """Images of noise, for the convolutional network."""

    name, size = "noise", 1000

    def batch(self, size: int, generator: Generator) -> Batch:
        return Batch(torch.randn(size, 3, 8, 8, generator=generator), torch.randint(2, (size, 1), generator=generator))


class OneHead(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = head(1, 16, channels)

    def forward(self, condition: Tensor) -> Tensor:
        return self.layers(2 * condition.float() - 1)


class Memory:
    """Checkpoints in memory, contiguous copies as files keep them."""

    def __init__(self) -> None:
        self.kept: tuple[dict[str, Tensor], dict] | None = None
        self.saves = 0

    def load(self) -> tuple[dict[str, Tensor], dict] | None:
        return self.kept

    def save(self, tensors, facts) -> None:
        copies = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
        self.kept, self.saves = (copies, dict(facts)), self.saves + 1


class AfterSteps:
    """Asks a fit to stop before its step number `steps`."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


def vector_net() -> VelocityNet:
    torch.manual_seed(0)
    body = MLP((2,), width=32)
    return VelocityNet(body, OneHead(body.mid_channels), sample_steps=2)


def image_net() -> VelocityNet:
    torch.manual_seed(0)
    body = UNet((3, 8, 8), width=8)
    return VelocityNet(body, OneHead(body.mid_channels), sample_steps=2)


def budget(**changes) -> Budget:
    defaults = {
        "train_steps": 12,
        "batch_size": 8,
        "width": 8,
        "learning_rate": 1e-3,
        "warmup_steps": 3,
        "ema_decay": 0.9,
    }
    return Budget(**(defaults | changes), sample_steps=2)


def context(
    *, seed: int = 0, checkpoints: Memory | None = None, cancelled: Callable[[], bool] = lambda: False, **changes
) -> Context:
    return Context(
        device=torch.device("cpu"),
        precision=changes.pop("precision", "fp32"),
        generator=torch.Generator().manual_seed(seed),
        checkpoints=checkpoints or Memory(),
        cancelled=cancelled,
        **changes,
    )


def equal(a: nn.Module, b: nn.Module) -> bool:
    one, two = a.state_dict(), b.state_dict()
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def test_learning_rate_warms_up_linearly_then_falls_as_a_cosine() -> None:
    b = budget(train_steps=110, warmup_steps=10, learning_rate=1.0, final_learning_rate=0.2)
    assert learning_rate(0, b) == pytest.approx(0.1)
    assert learning_rate(9, b) == pytest.approx(1.0)
    assert learning_rate(60, b) == pytest.approx(0.6)  # half way down
    assert learning_rate(110, b) == pytest.approx(0.2)


def test_ema_decay_grows_to_the_budget_s() -> None:
    assert ema_decay(0, budget()) == pytest.approx(0.1)
    assert ema_decay(10_000, budget(ema_decay=0.999)) == 0.999


def test_train_reaches_the_mean_of_each_condition() -> None:
    net = train(
        vector_net(),
        flow_matching_loss,
        TwoGaussians(),
        budget(train_steps=350, batch_size=128, learning_rate=5e-3, ema_decay=0.98),
        context(),
    )
    x0 = torch.randn(512, 2, generator=torch.Generator().manual_seed(1))
    condition = torch.arange(512)[:, None] % 2
    with torch.no_grad():
        x = euler(lambda x, t: net(x, t, condition), x0, num_steps=30)
    for value in (0, 1):
        torch.testing.assert_close(x[condition[:, 0] == value].mean(0), MEANS[value], rtol=0, atol=0.15)
    assert x[condition[:, 0] == 0].std(0).max() < 0.35


def test_training_times_lie_around_the_budget_s_location() -> None:
    drawn = []

    def watched(net: nn.Module, batch: Batch, generator: torch.Generator) -> torch.Tensor:
        t = logit_normal(len(batch.x1), generator)
        drawn.append(t)
        return net(batch.x1, t, batch.condition).square().mean()

    train(vector_net(), watched, TwoGaussians(), budget(train_steps=4, batch_size=1000, time_location=-2.0), context())
    assert torch.cat(drawn).logit().mean().item() == pytest.approx(-2.0, abs=0.1)


def test_train_lowers_the_loss() -> None:
    def mean_loss(net: nn.Module) -> float:
        generator = torch.Generator().manual_seed(9)
        with torch.no_grad():
            return float(flow_matching_loss(net, TwoGaussians().batch(2000, generator), generator))

    before = mean_loss(vector_net())
    after = mean_loss(
        train(
            vector_net(),
            flow_matching_loss,
            TwoGaussians(),
            budget(train_steps=200, batch_size=64, learning_rate=5e-3),
            context(),
        )
    )
    assert before == pytest.approx(1 + 2.5 + 0.01, rel=0.1)  # E (x1 - x0)^2 an entry: the untrained network says 0
    assert after < before / 2


@pytest.mark.parametrize("make", [vector_net, image_net])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_train_resumed_has_the_same_bits_as_undisturbed(make, precision) -> None:
    silo = TwoGaussians() if make is vector_net else Noise()
    undisturbed, memory = Memory(), Memory()
    whole = train(make(), flow_matching_loss, silo, budget(), context(checkpoints=undisturbed, precision=precision))
    with pytest.raises(Cancelled):
        train(
            make(),
            flow_matching_loss,
            silo,
            budget(),
            context(checkpoints=memory, cancelled=AfterSteps(7), precision=precision),
        )
    assert memory.kept[1]["step"] == 7
    torch.manual_seed(99)  # other initial weights and another generator: only the checkpoint counts
    other = make()
    resumed = train(other, flow_matching_loss, silo, budget(), context(seed=5, checkpoints=memory, precision=precision))
    assert equal(whole, resumed)


def test_train_resumed_keeps_every_moment_and_generator() -> None:
    one, two = Memory(), Memory()
    for memory, stops in ((one, (10,)), (two, (4, 6))):
        for stop in stops:
            with pytest.raises(Cancelled):
                train(
                    image_net(),
                    flow_matching_loss,
                    Noise(),
                    budget(),
                    context(checkpoints=memory, cancelled=AfterSteps(stop)),
                )
    assert one.kept[1] == two.kept[1] == {"step": 10}
    assert one.kept[0].keys() == two.kept[0].keys()
    assert all(torch.equal(one.kept[0][name], two.kept[0][name]) for name in one.kept[0])


def test_train_saves_checkpoints_in_time() -> None:
    memory = Memory()
    train(vector_net(), flow_matching_loss, TwoGaussians(), budget(checkpoint_seconds=1e-9), context(checkpoints=memory))
    assert memory.saves == 12


def test_train_is_determined_by_its_generator() -> None:
    nets = [train(vector_net(), flow_matching_loss, TwoGaussians(), budget(), context(seed=seed)) for seed in (1, 1, 2)]
    assert equal(nets[0], nets[1])
    assert not equal(nets[0], nets[2])


def test_train_refuses_a_checkpoint_of_another_network() -> None:
    memory = Memory()
    train(vector_net(), flow_matching_loss, TwoGaussians(), budget(checkpoint_seconds=1e-9), context(checkpoints=memory))
    with pytest.raises(CompbenchError, match="another network"):
        train(image_net(), flow_matching_loss, Noise(), budget(), context(checkpoints=memory))


def test_train_names_the_step_at_which_the_loss_diverges() -> None:
    calls = iter(range(1000))

    def loss(net: nn.Module, batch: Batch, generator: Generator) -> Tensor:
        value = flow_matching_loss(net, batch, generator)
        return value * math.nan if next(calls) == 60 else value

    with pytest.raises(CompbenchError, match="not finite at step 60"):
        train(vector_net(), loss, TwoGaussians(), budget(train_steps=200), context())


def test_train_leaves_frozen_parameters_alone() -> None:
    net = vector_net()
    net.requires_grad_(False)
    net.conditioning.requires_grad_(True)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    train(net, flow_matching_loss, TwoGaussians(), budget(train_steps=30), context())
    changed = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed
    assert all(name.startswith("conditioning") for name in changed)


def test_train_reports_every_step() -> None:
    reported = []
    train(
        vector_net(),
        flow_matching_loss,
        TwoGaussians(),
        budget(),
        context(progress=lambda done, total: reported.append((done, total))),
    )
    assert reported == [(step, 12) for step in range(1, 13)]


def test_train_returns_averaged_weights_in_eval_mode() -> None:
    last = train(vector_net(), flow_matching_loss, TwoGaussians(), budget(ema_decay=0.0), context())
    averaged = train(vector_net(), flow_matching_loss, TwoGaussians(), budget(ema_decay=0.9), context())
    assert not averaged.training
    assert not equal(last, averaged)


@pytest.mark.parametrize("make", [vector_net, image_net])
def test_train_fast_agrees_with_the_plain_reference(make) -> None:
    silo = TwoGaussians() if make is vector_net else Noise()
    fast, plain = (train(make(), flow_matching_loss, silo, budget(), context(), fast=fast) for fast in (True, False))
    for one, two in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-2, atol=2e-4)
