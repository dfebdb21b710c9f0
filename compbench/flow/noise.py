"""The noise network of vector tasks: eps(x_t, t | source) for a few sources, as one conditional model or one expert per source.

    score s = -eps / sigma_t on the variance-preserving path

Catastrophic Compositional Generation, appendix F: four hidden layers of 512, raw time, one-hot source, Adam.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from compbench.flow.compose import Guidance
from compbench.flow.memory import rows_at_once
from compbench.flow.path import GaussianPath, VariancePreservingPath, point
from compbench.flow.train import train
from compbench.flow.transfer import numbers
from compbench.system.condition_counts import regressed
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.api.context import Batch, Context
    from compbench.api.interfaces import Problem

NUM_HIDDEN = 4
CHUNK_ROWS = 2048
"""Number of rows in one forward during sampling on a CPU, so that activations stay in its second-level cache."""


class NoiseNet(nn.Module):
    """eps(x_t, t | source): linear maps with SiLU in between, for E experts side by side (E = 1: one conditional model).

    A linear map of [t, x, one-hot] is a map of [t, x] plus a row of weights for the source, so several sources at one x share
    that product; experts use one batched product.

    Args:
        dimension: number of entries of a sample.
        sources: the combinations that the network models, in order.
        width: hidden units.
        experts: whether each source has its own network, which needs no one-hot.
        sample_steps: number of solver steps for a sample.
    """

    def __init__(
        self, dimension: int, sources: tuple[tuple[int, ...], ...], *, width: int, experts: bool, sample_steps: int
    ) -> None:
        super().__init__()
        self.sample_steps = sample_steps
        self.guidance: Guidance | None = None  # the task's guidance, if samples may be composed
        self.dimension, self.sources, self.experts = dimension, sources, experts
        self.table: Tensor
        self.register_buffer("table", torch.tensor(sources), persistent=False)
        count = len(sources) if experts else 1
        inputs = 1 + dimension + (0 if experts else len(sources))
        sizes = [inputs, *[width] * NUM_HIDDEN, dimension]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for size_in, size_out in pairwise(sizes):
            layers = [nn.Linear(size_in, size_out) for _ in range(count)]
            self.weights.append(torch.stack([layer.weight.detach() for layer in layers]))  # (E, out, in)
            self.biases.append(torch.stack([layer.bias.detach() for layer in layers]))  # (E, out)

    @property
    def numbers_per_row(self) -> int:
        """Float32 numbers that a forward holds for a row and source: a layer before and after its product, and a copy in fp32."""
        return 4 * self.weights[0].shape[1]

    def position(self, combination: tuple[int, ...]) -> int:
        """Position of a combination among the sources.  Raises CompbenchError if it is not a source."""
        if combination not in self.sources:
            raise CompbenchError(
                f"the score model knows the sources {list(self.sources)}, not {combination}: compose it of those."
            )
        return self.sources.index(combination)

    def index(self, condition: Tensor) -> Tensor:
        """`position` of each condition of a batch, (B, F) -> (B,); unchecked, so that the host does not wait for the device."""
        return (condition[:, None] == self.table).all(-1).int().argmax(1)

    def check(self, condition: Tensor) -> None:
        """Raise CompbenchError for a training batch with a condition that is not a source, or, for experts, out of order."""
        found = [self.position(tuple(row)) for row in condition.tolist()]
        count = len(self.sources)
        if self.experts and (len(found) % count or found != sorted(found) or len(set(map(found.count, range(count)))) > 1):
            raise CompbenchError("experts train on batches with equally many examples of each source, in the sources' order.")

    def forward(self, x_t: Tensor, t: Tensor, source: Tensor) -> Tensor:
        """eps of rows that each have their own source; for experts, in the order that `check` requires.

        Args:
            x_t: (B, *D).
            t: (B,).
            source: positions of the sources, (B,).

        Returns:
            float32 (B, *D).
        """
        rows = torch.cat([t[:, None], x_t.flatten(1)], dim=1)
        with torch.autocast(x_t.device.type, enabled=False):  # bf16 would round positions to three digits
            if self.experts:
                grouped = rows.view(len(self.sources), -1, rows.shape[1])  # (E, B / E, 1 + D)
            else:
                grouped = torch.cat([rows, F.one_hot(source, len(self.sources)).to(rows.dtype)], dim=1)[None]
            first = torch.baddbmm(self.biases[0][:, None], grouped, self.weights[0].mT)
        return self._deep(first).reshape(x_t.shape)

    def at_sources(self, x: Tensor, t: float, members: list[int]) -> Tensor:
        """eps of some sources at the same points and time, in one forward.

        Args:
            x: (N, D).
            t: time.
            members: positions of C sources.

        Returns:
            float32 (C, N, D).
        """
        rows = numbers(tuple(members), x.device, torch.long)
        if self.experts:
            weights, biases = [w.index_select(0, rows) for w in self.weights], [b.index_select(0, rows) for b in self.biases]
        else:
            weights, biases = list(self.weights), list(self.biases)
        first, bias = weights[0], biases[0]
        start = bias + t * first[:, :, 0]  # (C or 1, width): what every row adds
        if not self.experts:
            start = start + first[0, :, 1 + self.dimension :].T.index_select(0, rows)  # (C, width)
        spatial = first[:, :, 1 : 1 + self.dimension].mT  # (C or 1, D, width)
        size = CHUNK_ROWS if x.device.type == "cpu" else rows_at_once(self, len(members))
        parts = []
        for part in x.split(max(size, 1)):
            with torch.autocast(x.device.type, enabled=False):
                h = torch.matmul(part, spatial) + start[:, None]  # (C, n, width)
            if not self.experts:
                h = h.flatten(0, 1)[None]  # one model: all sources are rows of one product
            parts.append(self._deep(h, weights, biases).reshape(len(members), len(part), self.dimension))
        return torch.cat(parts, dim=1)

    def _deep(self, h: Tensor, weights: list[Tensor] | None = None, biases: list[Tensor] | None = None) -> Tensor:
        """The layers after the first: (E, B, width) -> float32 (E, B, D).  The last map is fp32, because sigma divides it."""
        weights, biases = weights or list(self.weights), biases or list(self.biases)
        inplace = not torch.is_grad_enabled()
        for weight, bias in zip(weights[1:-1], biases[1:-1], strict=True):
            h = torch.baddbmm(bias[:, None], F.silu(h, inplace=inplace), weight.mT)
        with torch.autocast(h.device.type, enabled=False):
            return torch.baddbmm(biases[-1][:, None], F.silu(h, inplace=inplace).float(), weights[-1].mT)


def sources(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """The members of compositions around the base: the base, and each perturbation of a single factor."""
    found = [problem.base]
    for k, size in enumerate(problem.space.sizes):
        found += [(*problem.base[:k], value, *problem.base[k + 1 :]) for value in range(size) if value != problem.base[k]]
    return tuple(found)


def build_noise_net(problem: Problem, *, experts: bool) -> NoiseNet:
    """The budget's untrained noise network of a perturbation task."""
    dimension = math.prod(problem.event.shape)
    budget = problem.budget
    net = NoiseNet(dimension, sources(problem), width=budget.width, experts=experts, sample_steps=budget.sample_steps)
    net.guidance = Guidance.of(problem)
    return net


def fit_noise_net(problem: Problem, ctx: Context, *, experts: bool, fast: bool = True) -> NoiseNet:
    """Minimise E || eps(x_t, t | c) - x0 ||^2, a sum over entries, t uniform on (0, 1), by Adam; each expert has own batches.

    Args:
        problem: problem of a perturbation task, whose silo draws equally many examples of each source, in order.
        ctx: the stage's context.
        experts: whether each source has its own network.
        fast: False selects the plain reference in float32.
    """
    net = build_noise_net(problem, experts=experts)
    path = VariancePreservingPath()

    def loss(net: NoiseNet, batch: Batch, generator: Generator) -> Tensor:
        regressed(batch.condition)
        return noise_loss(net, path, batch._replace(condition=net.index(batch.condition)), generator)

    count = len(net.sources)
    each = problem.budget.batch_size if experts else problem.budget.batch_size // count
    budget = problem.budget.model_copy(update={"batch_size": count * max(each, 1)})
    silo = problem.federation.pooled()
    net.check(silo.batch(budget.batch_size, Generator().manual_seed(0)).condition.cpu())
    train(net, loss, silo, budget, ctx, weight_decay=0.0, fast=fast)
    return net


def noise_loss(net: nn.Module, path: GaussianPath, batch: Batch, generator: Generator) -> Tensor:
    """Squared error of the predicted noise, summed over a sample's entries, averaged over the batch."""
    x1 = batch.x1
    x0 = torch.randn(x1.shape, generator=generator, device=x1.device)
    t = torch.rand(len(x1), generator=generator, device=x1.device)
    return (net(point(path, x0, x1, t), t, batch.condition) - x0).square().flatten(1).sum(1).mean()
