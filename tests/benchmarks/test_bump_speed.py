"""Decoders against a plain loop with a DataLoader, and diagnostics against a loop over points.  Ratios only; -m slow."""

import time
from statistics import median

import pytest
import torch
import torch.nn.functional as F
from many import train_many
from reference.geometry import metrics_by_loop
from torch import nn
from torch.utils.data import DataLoader, Dataset

from compbench.api.context import Context, NoCheckpoints
from compbench.api.interfaces import TaskContext
from compbench.data.bumps import as_samples, bumps
from compbench.diagnose.geometry import metrics_by_jvp, tapped
from compbench.flow.codes import CodeSettings, Encoding
from compbench.flow.compilation import compiles
from compbench.flow.decoders import CNNDecoder, ConditionDecoder, MLPDecoder, denormals_flushed, fused, penalised
from compbench.flow.low_rank_maps import REFERENCE_TOKENS, REFERENCE_VECTORS, LowRankDecoder, RankSettings, penalised_loss
from compbench.flow.train import train
from compbench.system import devices
from compbench.tasks.bump import Settings, make_task

pytestmark = pytest.mark.slow
N = 28


class Places(Dataset):
    """Draws an image when it is asked for, as a plain script does."""

    def __init__(self, places: torch.Tensor) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        place = self.places[index]
        return place, as_samples(bumps(place[None], size=N, sigma=1.0))[0]


class PlainLowRank(LowRankDecoder):
    """Each example's vectors looked up by a one-hot product, its maps and all convolutions done again."""

    def forward(self, condition: torch.Tensor) -> torch.Tensor:
        maps = self.maps
        chosen = F.one_hot(maps.tokens(condition), sum(maps.sizes)).float()  # (B, F, T)
        coefficient = chosen @ maps.coefficient
        column, row = (torch.einsum("bft,trh->bfrh", chosen, F.normalize(vectors, dim=-1)) for vectors in (maps.column, maps.row))
        h = torch.einsum("bfr,bfrh,bfrw->bfhw", coefficient, column, row)
        for activation, convolution in zip(self.activations, self.convolutions, strict=True):
            h = convolution(activation(h))
        return 2 * h - 1

    def penalty(self) -> torch.Tensor:
        square = self.maps.coefficient.square()
        share = (square / square.sum(-1, keepdim=True)).clamp(min=1e-8)
        entropy = -(share * share.log()).sum(-1).mean()
        variance = (self.maps.column.var(-1).mean() + self.maps.row.var(-1).mean()) / 2
        return 0.1 * REFERENCE_TOKENS * entropy + 0.01 * REFERENCE_VECTORS * variance


def net_of(kind: str, *, plain: bool) -> nn.Module:
    torch.manual_seed(0)
    if kind == "low-rank":
        return (PlainLowRank if plain else LowRankDecoder)((N, N), (1, N, N), RankSettings())
    make = {
        "cnn": lambda: CNNDecoder(2 * N, (1, N, N), channels=64, num_hidden=2),
        "mlp": lambda: MLPDecoder(2 * N, (1, N, N), width=256, depth=3),
    }[kind]
    return ConditionDecoder(Encoding((N, N), CodeSettings()), make())


def plain_seconds(kind: str, steps: int) -> float:
    """CPU seconds a step of a plain loop: DataLoader, AdamW, fp32."""
    net = net_of(kind, plain=True)
    places = task().open(context()).problem(task().budgets["quick"]).federation.pooled().condition
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)
    done, start = 0, 0.0
    while done < steps + 3:
        for condition, x1 in DataLoader(Places(places), batch_size=32, shuffle=True):
            if done == 3:
                start = time.process_time()
            loss = (net(condition) - x1).square().mean() / 4
            if kind == "low-rank":
                loss = loss + net.penalty()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            loss.item()
            done += 1
            if done == steps + 3:
                break
    return (time.process_time() - start) / steps


def our_seconds(kind: str, steps: int) -> float:
    """CPU seconds a step of our loop, in the precision that a run takes on this machine, compiled where `regress` does it."""
    net = net_of(kind, plain=False)
    budget = task().budgets["quick"].model_copy(update={"train_steps": steps + 3})
    silo = task().open(context()).problem(budget).federation.pooled()
    stamps = []
    precision = devices.precision("auto", torch.device("cpu"))
    ctx = Context(torch.device("cpu"), precision, torch.Generator().manual_seed(0), NoCheckpoints())
    ctx.progress = lambda done, total: stamps.append(time.process_time())
    loss = fused(penalised) if kind == "low-rank" and compiles("cpu") else penalised
    with denormals_flushed():
        train(net, lambda network, batch, generator: loss(network, batch), silo, budget, ctx)
    return (stamps[-1] - stamps[2]) / steps


def task():
    return make_task("bump-center", Settings())


def context() -> TaskContext:
    return TaskContext(torch.device("cpu"), "fp32", 0, None, None, None)


@pytest.mark.parametrize(("kind", "steps", "least"), [("cnn", 40, 1.0), ("mlp", 400, 1.5), ("low-rank", 200, 3.0)])
def test_a_decoders_training_step_beats_a_plain_loop_with_a_loader(kind: str, steps: int, least: float) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pairs = [(plain_seconds(kind, steps), our_seconds(kind, steps)) for _ in range(5)]  # in turn: machines are noisy
        ratio = median(plain for plain, _ in pairs) / median(ours for _, ours in pairs)
    finally:
        torch.set_num_threads(threads)
    print(f"{kind}: {ratio:.2f} times the steps a second of a plain loop")
    assert ratio > least


def many_seconds(count: int, steps: int) -> float:
    """CPU seconds a step and network of low-rank, `count` at once."""
    nets, weights = [net_of("low-rank", plain=False) for _ in range(count)], torch.tensor([[0.1, 0.01]] * count)
    budget = task().budgets["quick"].model_copy(update={"train_steps": steps + 3})
    silos = [task().open(context()).problem(budget).federation.pooled()] * count
    stamps = []
    precision = devices.precision("auto", torch.device("cpu"))
    ctx = Context(torch.device("cpu"), precision, torch.Generator(), NoCheckpoints())
    ctx.progress = lambda done, total: stamps.append(time.process_time())
    generators = [torch.Generator().manual_seed(seed) for seed in range(count)]
    with denormals_flushed():
        train_many(nets, penalised_loss, silos, budget, ctx, generators=generators, weights=weights)
    return (stamps[-1] - stamps[2]) / steps / count


def test_many_low_rank_decoders_at_once_beat_a_plain_loop_each() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        plain = min(plain_seconds("low-rank", 50) for _ in range(2))
        alone = min(our_seconds("low-rank", 50) for _ in range(2))
        together = min(many_seconds(8, 20) for _ in range(2))
    finally:
        torch.set_num_threads(threads)
    print(f"low-rank, 8 at once: {plain / together:.2f} times the steps a second of plain loops, {alone / together:.2f} of ours")
    assert plain / together > 2


def test_batched_derivatives_beat_a_loop_over_points() -> None:
    place = torch.cartesian_prod(torch.arange(8), torch.arange(8)).float()
    model = ConditionDecoder(Encoding((8, 8), CodeSettings()), CNNDecoder(16, (1, N, N), channels=16, num_hidden=2)).eval()
    code = model.encoding(place)
    tangents = torch.stack([model.encoding.tangent(place, factor) for factor in range(2)])
    with tapped(model) as heard, torch.no_grad():

        def layers(own: torch.Tensor) -> dict[str, torch.Tensor]:
            output = model.render(own)
            return {**heard(len(own)), "output": output}

        seconds = []
        for measure in (metrics_by_loop, metrics_by_jvp):
            measure(layers, code, tangents)
            start = time.process_time()
            measure(layers, code, tangents)
            seconds.append(time.process_time() - start)
    ratio = seconds[0] / seconds[1]
    print(f"metric tensors of 64 points: {ratio:.1f} times as fast as a loop over points")
    assert ratio > 3
