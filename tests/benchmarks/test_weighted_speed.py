"""Weighted compositions against plain references in the same process: sampler, network, training step, distance.

CPU time on one thread, as the issue's figures are; `extra_info` has the ratios.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
import torch
from reference.smc import feynman_kac_plainly
from torch import Tensor, nn

from compbench.api.context import Context, NoCheckpoints
from compbench.api.factors import Weighted
from compbench.api.interfaces import Source, TaskContext
from compbench.data.gaussian_oracle import SourceOracle
from compbench.data.gaussians import Mixture
from compbench.flow import scores
from compbench.flow.noise import NoiseNet, fit_noise_net
from compbench.flow.path import VariancePreservingPath
from compbench.flow.smc import Settings, draw, feynman_kac
from compbench.metrics.transport import directions, sliced_wasserstein
from compbench.tasks.gaussian import distributions, make_task

pytestmark = pytest.mark.slow

PATH = VariancePreservingPath()
CELLS = ((1.0, (1, 0)), (1.0, (0, 1)), (-1.0, (0, 0)))
MEMBERS = [Weighted(weight, torch.tensor([cell])) for weight, cell in CELLS]
WEIGHTS = [weight for weight, _ in CELLS]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cpu_seconds(call: Callable[[], object], *, rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return sorted(times)[rounds // 2]


def laws(name: str) -> dict[tuple[int, int], Mixture]:
    return distributions(name, make_task(name).settings)


def plain_score(law: Mixture) -> Callable[[Tensor, Tensor], Tensor]:
    """The obvious way: schedule for each row, a (N, M, 2) difference for mixtures."""
    means, variance = law.means.float(), law.variances.float()

    def gaussian(x: Tensor, t: Tensor) -> Tensor:
        at = PATH.at(t)
        return -x / (at.alpha[:, None] ** 2 * variance + at.sigma[:, None] ** 2)

    def mixture(x: Tensor, t: Tensor) -> Tensor:
        at = PATH.at(t)
        spread = (at.alpha**2 * variance[0, 0] + at.sigma**2)[:, None, None]
        difference = x[:, None] - at.alpha[:, None, None] * means
        share = (-difference.square() / spread / 2).sum(2).softmax(1)
        return -(share[..., None] * difference / spread).sum(1)

    return gaussian if len(means) == 1 else mixture


@pytest.mark.parametrize("name", ["gauss2d-nonfact-ood", "gmm-id"])
def test_the_oracle_sampler_is_at_least_five_times_the_plain_one(name: str, benchmark) -> None:
    """5,000 swarms of 16 particles; the plain sampler takes a fifth of the 500 steps, and its time is multiplied."""
    sources = laws(name)
    plain = [plain_score(sources[cell]) for _, cell in CELLS]
    x = torch.randn(5000, 16, 2)
    generator = torch.Generator().manual_seed(0)
    slow = 5 * cpu_seconds(lambda: feynman_kac_plainly(plain, WEIGHTS, PATH, x, Settings(100, clip=15.0), generator), rounds=1)
    composed = scores.of_oracle(SourceOracle(sources, torch.device("cpu")), PATH, MEMBERS).composed

    def fast() -> object:
        return draw(lambda part: composed, PATH, x[:, 0], 16, Settings(500, clip=15.0), generator)

    seconds = cpu_seconds(fast, rounds=1)
    benchmark.pedantic(fast, rounds=1)
    benchmark.extra_info |= {"plain_cpu_seconds": slow, "fast_cpu_seconds": seconds, "ratio": slow / seconds}
    assert slow / seconds > 3.5


@pytest.fixture(scope="module")
def nets() -> tuple[NoiseNet, nn.Module]:
    """The paper's network, and the same weights as plain linear layers on [t, x, one-hot]."""
    torch.manual_seed(0)
    net = NoiseNet(2, ((0, 0), (1, 0), (0, 1)), width=512, experts=False, sample_steps=500)
    layers = nn.ModuleList()
    for weight, bias in zip(net.weights, net.biases, strict=True):
        layers.append(nn.Linear(weight.shape[2], weight.shape[1]))
        layers[-1].weight.data, layers[-1].bias.data = weight[0].detach().clone(), bias[0].detach().clone()
    return net, layers


def plain_noise(layers: nn.ModuleList, source: int) -> Callable[[Tensor, Tensor], Tensor]:
    def score(x: Tensor, t: Tensor) -> Tensor:
        code = torch.zeros(len(x), 3)
        code[:, source] = 1
        h = torch.cat([t[:, None], x, code], dim=1)
        for layer in layers[:-1]:
            h = torch.nn.functional.silu(layer(h))
        return -layers[-1](h) / PATH.at(t).sigma[:, None]

    return score


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_network_sampler_beats_one_forward_a_condition(precision: str, nets, benchmark) -> None:
    net, layers = nets
    x, generator, settings = torch.randn(1000, 16, 2), torch.Generator().manual_seed(0), Settings(10, clip=15.0)
    plain = [plain_noise(layers, source) for source in (1, 2, 0)]
    composed = scores.of_noise_net(net, PATH, MEMBERS).composed

    def fast() -> object:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            return feynman_kac(composed, PATH, x, settings, generator)

    with torch.no_grad():
        slow = cpu_seconds(lambda: feynman_kac_plainly(plain, WEIGHTS, PATH, x, settings, generator), rounds=1)
    seconds = cpu_seconds(fast)
    benchmark.pedantic(fast, rounds=1)
    benchmark.extra_info |= {"ratio": slow / seconds, "precision": precision}
    assert slow / seconds > 1.0


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_training_step_beats_the_plain_one(precision: str, benchmark) -> None:
    """The paper's batch of 510 and width of 512; plain is float32, eager, unfused."""
    task = make_task("gauss2d-nonfact-id")
    ctx = TaskContext(torch.device("cpu"), "fp32", 0, None, None, Source("embedded", "exact sampler", "gaussians-1"))
    problem = task.open(ctx).problem(task.budgets["paper"].model_copy(update={"train_steps": 40}))

    def fit(*, fast: bool) -> object:
        torch.manual_seed(0)
        own = Context(torch.device("cpu"), precision, torch.Generator().manual_seed(0), NoCheckpoints())
        return fit_noise_net(problem, own, experts=False, fast=fast)

    slow, seconds = cpu_seconds(lambda: fit(fast=False), rounds=1), cpu_seconds(lambda: fit(fast=True))
    benchmark.pedantic(fit, kwargs={"fast": True}, rounds=1)
    benchmark.extra_info |= {"ratio": slow / seconds, "milliseconds_a_step": 1000 * seconds / 40, "precision": precision}
    assert slow / seconds > 1.0


def test_sliced_wasserstein_is_at_least_twenty_times_pot(benchmark) -> None:
    """2,000 projections of 5,000 + 5,000 points, the same value to 1e-6."""
    import ot  # a second of imports, and every worker collects this file

    generator = numpy.random.default_rng(0)
    x, y = generator.standard_normal((2, 5000, 2))
    along = directions(2, 2000, generator)
    slow = cpu_seconds(lambda: ot.sliced_wasserstein_distance(x, y, projections=along), rounds=1)
    seconds = cpu_seconds(lambda: sliced_wasserstein(x, y, along))
    found = benchmark.pedantic(sliced_wasserstein, (x, y, along), rounds=3)
    assert found == pytest.approx(ot.sliced_wasserstein_distance(x, y, projections=along), abs=1e-6)
    benchmark.extra_info["ratio"] = slow / seconds
    assert slow / seconds > 10


PROBE = """
import resource, sys, time, torch
torch.set_num_threads(1)
from test_weighted_speed import MEMBERS, PATH, Settings, SourceOracle, draw, laws, scores
composed = scores.of_oracle(SourceOracle(laws("gauss2d-nonfact-ood"), torch.device("cpu")), PATH, MEMBERS).composed
start = time.process_time()
draw(lambda part: composed, PATH, torch.randn(256, 2), int(sys.argv[1]), Settings(20), torch.Generator().manual_seed(0))
print(time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def test_cost_is_linear_in_particles_and_memory_is_bounded(benchmark) -> None:
    """CPU time a particle and peak memory of a fresh process, from K = 64 to K = 4096 (a million particles in all)."""

    def probe(num_particles: int) -> tuple[float, float]:
        command = [sys.executable, "-c", PROBE, str(num_particles)]
        here = Path(__file__).parent
        env = {**os.environ, "PYTHONPATH": str(here.parent)}
        found = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=True)
        seconds, mebibytes = map(float, found.stdout.split())
        return seconds / num_particles, mebibytes

    few, many = probe(512), benchmark.pedantic(probe, (4096,), rounds=1)
    small = probe(64)
    benchmark.extra_info |= {"cost_ratio_4096_to_512": many[0] / few[0], "mib_64": small[1], "mib_4096": many[1]}
    assert many[0] / few[0] < 2.5
    assert many[1] - small[1] < 300
