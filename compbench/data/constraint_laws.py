"""Laws over signs with independent blocks, and their exact scores; one law has the answers that one kind of constraint allows.

    x = y + spread n,  n ~ N(0, I),    p(y) = prod_blocks p_B(y_B),    y_B one of m patterns of k signs with given weights

Blocks share no position.  So log densities, scores and divergences of x_t = alpha x + sigma x0 are sums over blocks, and each
block is a mixture of m Gaussians with variance v = alpha^2 spread^2 + sigma^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Generator, Tensor

from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.data.puzzles import Lines, Puzzle

Combination = tuple[int, ...]
SPREAD = 0.1
"""The numbers of a sample have this standard deviation around their signs."""


class Blocks(NamedTuple):
    """G blocks of k positions each, with the same m patterns.

    Attributes:
        positions: (G, k) long.
        patterns: the allowed signs of a block, -1 or 1, (m, k).
        log_weights: (m,), normalised.
    """

    positions: Tensor
    patterns: Tensor
    log_weights: Tensor

    @classmethod
    def of(cls, lines: Lines) -> Blocks:
        total = math.fsum(lines.weights)
        logs = torch.tensor([math.log(weight / total) for weight in lines.weights], dtype=torch.float64)
        return cls(torch.tensor(lines.positions), torch.tensor(lines.patterns, dtype=torch.float64), logs)

    def logits(self, x: Tensor, alpha: float, variance: float) -> Tensor:
        """log w_m + alpha x_B . p_m / v, up to a term that all patterns of a block share: (N, D) -> (N, G, m)."""
        return x[:, self.positions] @ self.patterns.T.to(x) * (alpha / variance) + self.log_weights.to(x)

    def means(self, x: Tensor, alpha: float, variance: float) -> Tensor:
        """E[y_B | x], (N, D) -> (N, G, k)."""
        return self.logits(x, alpha, variance).softmax(-1) @ self.patterns.to(x)

    def matches(self, signs: Tensor) -> Tensor:
        """Whether each block of some signs (N, D) is one of the patterns: bool (N, G)."""
        return (signs[:, self.positions][:, :, None] == self.patterns.to(signs)).all(-1).any(-1)


class BlockLaw(NamedTuple):
    """A law of D numbers near signs.  Every position is in one block."""

    dimension: int
    blocks: tuple[Blocks, ...]
    spread: float = SPREAD

    @classmethod
    def of(cls, dimension: int, lines: Sequence[Lines]) -> BlockLaw:
        """Raises CompbenchError if a position is in no block, or in two."""
        places = sorted(place for own in lines for line in own.positions for place in line)
        if places != list(range(dimension)):
            raise CompbenchError(f"the blocks of a law over {dimension} signs must hold each position once.")
        return cls(dimension, tuple(map(Blocks.of, lines)))

    def moved(self, device: torch.device) -> BlockLaw:
        return self._replace(blocks=tuple(Blocks(*(part.to(device) for part in own)) for own in self.blocks))

    def signs(self, count: int, generator: Generator) -> Tensor:
        """`count` draws of y, float64 (count, D), on the CPU."""
        made = torch.empty(count, self.dimension, dtype=torch.float64)
        for own in self.blocks:
            chosen = torch.multinomial(own.log_weights.exp(), count * len(own.positions), replacement=True, generator=generator)
            made[:, own.positions.flatten()] = own.patterns[chosen].reshape(count, -1)
        return made

    def sample(self, count: int, generator: Generator) -> Tensor:
        """`count` draws of x, float64 (count, D), on the CPU."""
        noise = torch.randn(count, self.dimension, generator=generator, dtype=torch.float64)
        return self.signs(count, generator) + self.spread * noise

    def variance(self, alpha: float, sigma: float) -> float:
        return alpha**2 * self.spread**2 + sigma**2

    def score(self, x: Tensor, alpha: float, sigma: float) -> Tensor:
        """(alpha E[y | x] - x) / v, (N, D)."""
        variance, mean = self.variance(alpha, sigma), torch.empty_like(x)
        for own in self.blocks:
            mean[:, own.positions.flatten()] = own.means(x, alpha, variance).flatten(1)
        return (alpha * mean - x) / variance

    def log_density(self, x: Tensor, alpha: float, sigma: float) -> Tensor:
        """log p_t(x), (N,)."""
        variance = self.variance(alpha, sigma)
        inside = [own.logits(x, alpha, variance).logsumexp(-1).sum(-1) for own in self.blocks]
        shared = (x.square().sum(-1) + alpha**2 * self.dimension) / (2 * variance)
        return torch.stack(inside).sum(0) - shared - self.dimension / 2 * math.log(2 * math.pi * variance)

    def divergence(self, x: Tensor, alpha: float, sigma: float) -> Tensor:
        """div grad log p_t(x) = -D / v + (alpha / v)^2 tr Cov[y | x], (N,)."""
        variance = self.variance(alpha, sigma)
        squares = torch.stack([own.means(x, alpha, variance).square().sum((1, 2)) for own in self.blocks]).sum(0)
        return -self.dimension / variance + (alpha / variance) ** 2 * (self.dimension - squares)

    def violations(self, signs: Tensor) -> Tensor:
        """Number of blocks of signs (N, D) that match none of their patterns, (N,)."""
        return torch.stack([(~own.matches(signs)).sum(1) for own in self.blocks]).sum(0)


def signs_of(x: Tensor) -> Tensor:
    """The signs of an answer's numbers: 1 above 0, else -1."""
    return torch.where(x > 0, 1.0, -1.0)


def laws_of(puzzle: Puzzle) -> dict[Combination, BlockLaw]:
    """The laws of the seen combinations: the base (0, ..., 0), and each group of constraints alone."""
    count = len(puzzle.groups)
    found = {(0,) * count: BlockLaw.of(puzzle.dimension, puzzle.base)}
    for number, lines in enumerate(puzzle.groups.values()):
        found[tuple(int(place == number) for place in range(count))] = BlockLaw.of(puzzle.dimension, lines)
    return found


def violations(laws: Iterable[BlockLaw], signs: Tensor) -> Tensor:
    """Number of blocks of some laws that signs (N, D) violate, (N,); with all laws of a puzzle, 0 means a valid answer."""
    return torch.stack([law.violations(signs) for law in laws]).sum(0)


class BlockOracle:
    """The exact laws of the seen combinations, as a `compbench.flow.scores.Oracle`.

    Args:
        laws: the laws of the base and of each constraint alone.
        device: device of the scores.
    """

    def __init__(self, laws: Mapping[Combination, BlockLaw], device: torch.device) -> None:
        self.laws = {cell: law.moved(device) for cell, law in laws.items()}

    def law(self, combination: Combination) -> BlockLaw:
        """The law of a seen combination.  Raises CompbenchError for any other, which has no closed form."""
        if combination not in self.laws:
            raise CompbenchError(f"only the combinations {', '.join(map(str, self.laws))} have exact scores, not {combination}.")
        return self.laws[combination]

    def composed(self, members: Sequence[tuple[float, Combination]]) -> Callable[[Tensor, float, float], tuple[Tensor, Tensor]]:
        """S = sum_a w_a s_a and its gap |S|^2 - sum_a w_a |s_a|^2, of (x (N, D), alpha, sigma)."""
        parts = [(weight, self.law(cell)) for weight, cell in members]

        def values(x: Tensor, alpha: float, sigma: float) -> tuple[Tensor, Tensor]:
            points = x.double()
            total, squares = torch.zeros_like(points), torch.zeros_like(points[:, 0])
            for weight, law in parts:
                score = law.score(points, alpha, sigma)
                total += weight * score
                squares += weight * score.square().sum(1)
            return total.to(x.dtype), (total.square().sum(1) - squares).to(x.dtype)

        return values

    def members(self, combinations: Sequence[Combination]) -> Callable[[Tensor, float, float], Tensor]:
        """Scores of each combination: (x (N, D), alpha, sigma) -> (C, N, D)."""
        laws = [self.law(cell) for cell in combinations]
        return lambda x, alpha, sigma: torch.stack([law.score(x.double(), alpha, sigma).to(x.dtype) for law in laws])

    def log_densities(self, combinations: Sequence[Combination]) -> Callable[[Tensor, float, float], Tensor]:
        """log p_t(x | combination) of each: (x (N, D), alpha, sigma) -> float64 (C, N)."""
        laws = [self.law(cell) for cell in combinations]
        return lambda x, alpha, sigma: torch.stack([law.log_density(x.double(), alpha, sigma) for law in laws])

    def divergences(self, combinations: Sequence[Combination]) -> Callable[[Tensor, float, float], Tensor]:
        """div grad log p_t(x | combination) of each: (x (N, D), alpha, sigma) -> (C, N)."""
        laws = [self.law(cell) for cell in combinations]
        return lambda x, alpha, sigma: torch.stack([law.divergence(x.double(), alpha, sigma).to(x.dtype) for law in laws])

    def repaired(self, combination: Combination, count: int, most: int, generator: Generator) -> Tensor:
        """Answers without constraints, repaired greedily until no single change helps: signs, float64 (count, D), on the CPU.

        A change gives one block of the base another of its patterns.  Each answer takes the change that breaks the fewest
        constraints of the groups that are on (ties: at random), if these are fewer than before.

        Args:
            combination: which groups are on.
            count: number of answers.
            most: largest number of changes of an answer.
            generator: on the CPU.
        """
        size = len(combination)
        single = [tuple(int(place == k) for place in range(size)) for k, value in enumerate(combination) if value > 0]
        base, *asked = [self.law(cell).moved(torch.device("cpu")) for cell in ((0,) * size, *single)]
        signs = base.signs(count, generator)
        at_work = torch.arange(count)
        for _ in range(most):
            changed = _neighbours(signs[at_work], base)  # (n, M, D)
            broken = violations([base, *asked], changed.flatten(0, 1)).view(changed.shape[:2])
            best = (broken + torch.rand(broken.shape, generator=generator) / 2).argmin(1)
            place = torch.arange(len(at_work))
            helps = broken[place, best] < violations([base, *asked], signs[at_work])
            if not bool(helps.any()):
                break
            signs[at_work[helps]] = changed[place[helps], best[helps]]
            at_work = at_work[helps]
        return signs


def _neighbours(signs: Tensor, base: BlockLaw) -> Tensor:
    """For each answer (N, D), all answers that differ from it in at most one block of the base, (N, M, D)."""
    made = []
    for own in base.blocks:
        for positions in own.positions:
            for pattern in own.patterns:
                changed = signs.clone()
                changed[:, positions] = pattern
                made.append(changed)
    return torch.stack(made, dim=1)
