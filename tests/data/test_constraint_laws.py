"""Laws of disjoint blocks: densities against a sum over all answers, scores and divergences against automatic derivatives."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from torch import Tensor

from compbench.data.constraint_laws import BlockLaw, BlockOracle, laws_of, violations
from compbench.data.puzzles import Lines, Puzzle, colouring, disjoint, num_answers, queens, satisfiability
from compbench.system.errors import CompbenchError

LEVELS = [(1.0, 0.05), (0.7, 0.5), (0.1, 0.99)]


def answers(law: BlockLaw) -> tuple[Tensor, Tensor]:
    """Every answer that a law allows and its probability."""
    made = [(torch.zeros(law.dimension, dtype=torch.float64), 1.0)]
    for own in law.blocks:
        for positions in own.positions:
            made = [
                (answer.clone().index_copy(0, positions, pattern), weight * float(log.exp()))
                for answer, weight in made
                for pattern, log in zip(own.patterns, own.log_weights, strict=True)
            ]
    return torch.stack([answer for answer, _ in made]), torch.tensor([weight for _, weight in made], dtype=torch.float64)


def log_chance(law: BlockLaw, signs: Tensor) -> Tensor:
    """log p of answers (N, D), minus infinity where the law does not allow one."""
    found = torch.zeros(len(signs), dtype=torch.float64)
    for own in law.blocks:
        same = (signs[:, own.positions][:, :, None] == own.patterns).all(-1)  # (N, G, m)
        found += torch.where(same, own.log_weights, -torch.inf).amax(-1).sum(-1)
    return found


@pytest.fixture(params=["rows", "diagonals"])
def law(request: pytest.FixtureRequest) -> BlockLaw:
    puzzle = queens(3)
    return BlockLaw.of(puzzle.dimension, puzzle.groups[request.param])


@pytest.mark.parametrize(("alpha", "sigma"), LEVELS)
def test_the_density_is_the_sum_over_all_answers(law: BlockLaw, alpha: float, sigma: float) -> None:
    signs, weights = answers(law)
    assert weights.sum() == pytest.approx(1)
    x = torch.randn(5, law.dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    variance = alpha**2 * law.spread**2 + sigma**2
    each = torch.distributions.Normal(alpha * signs, variance**0.5).log_prob(x[:, None]).sum(-1)
    assert torch.allclose(law.log_density(x, alpha, sigma), (each + weights.log()).logsumexp(1))


@pytest.mark.parametrize(("alpha", "sigma"), LEVELS)
def test_scores_and_divergences_are_the_density_s_derivatives(law: BlockLaw, alpha: float, sigma: float) -> None:
    x = torch.randn(4, law.dimension, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_(True)
    (score,) = torch.autograd.grad(law.log_density(x, alpha, sigma).sum(), x, create_graph=True)
    assert torch.allclose(law.score(x.detach(), alpha, sigma), score)
    second = [torch.autograd.grad(score[:, k].sum(), x, retain_graph=True)[0][:, k] for k in range(law.dimension)]
    assert torch.allclose(law.divergence(x.detach(), alpha, sigma), torch.stack(second).sum(0), rtol=1e-6, atol=1e-6)


def test_draws_have_the_frequencies_of_the_law(law: BlockLaw) -> None:
    signs, weights = answers(law)
    drawn = law.signs(20_000, torch.Generator().manual_seed(0))
    found = (drawn[:, None] == signs).all(-1).double().mean(0)
    assert found.sum() == pytest.approx(1)
    assert (found - weights).abs().max() < 0.02


@pytest.mark.parametrize(
    "puzzle", [queens(4), colouring(6, 2.0, 0), satisfiability(6, 1.5, 0)], ids=["queens", "colours", "clauses"]
)
def test_the_product_of_the_laws_over_the_base_is_uniform_over_valid_answers(puzzle: Puzzle) -> None:
    base, *groups = laws_of(puzzle).values()
    signs, _ = answers(groups[0])  # any other answer breaks the first group, and has no chance in it
    logs = log_chance(base, signs)
    for law in groups:
        logs = logs + log_chance(law, signs) - log_chance(base, signs)
    valid = violations([base, *groups], signs) == 0
    assert valid.any()
    assert torch.equal(logs.isfinite(), valid)
    assert torch.allclose(logs[valid], logs[valid][0])


def test_eight_queens_have_92_answers() -> None:
    base, *groups = laws_of(queens(8)).values()
    rows = list(permutations(range(8)))
    boards = torch.full((len(rows), 64), -1.0)
    boards.view(-1, 8, 8).scatter_(2, torch.tensor(rows)[:, :, None], 1.0)
    assert int((violations([base, *groups], boards) == 0).sum()) == 92


def test_broken_answers_are_counted_by_the_lines_that_they_break() -> None:
    base, *groups = laws_of(queens(4)).values()
    solved = torch.full((4, 4), -1.0)
    solved[[0, 1, 2, 3], [1, 3, 0, 2]] = 1.0
    missing, added, moved = solved.clone(), solved.clone(), solved.clone()
    missing[0, 1] = -1.0  # a row and a column are empty
    added[0, 0] = 1.0  # a row, a column and the diagonal below it hold two
    moved[0, 1], moved[0, 0] = -1.0, 1.0  # a column is empty and another holds two; the antidiagonals hold none more
    boards = torch.stack([solved, missing, added, moved]).flatten(1)
    found = violations([base, *groups], boards).tolist()
    assert found[0] == 0
    assert found[1] == 2
    assert all(count > 0 for count in found[2:])


def test_a_graph_s_answer_with_two_colours_on_a_vertex_is_broken() -> None:
    puzzle = colouring(5, 1.2, 0)
    base, *groups = laws_of(puzzle).values()
    signs = base.signs(200, torch.Generator().manual_seed(0))
    colours = signs.view(200, -1, 3).argmax(2)
    clashes = sum((colours[:, a] == colours[:, b]).long() for a, b in puzzle.edges)
    assert torch.equal(violations(groups, signs), clashes)
    signs[:, :3] = 1.0
    assert (violations([base], signs) == 1).all()


def test_groups_are_disjoint_and_hold_every_member() -> None:
    edges = colouring(12, 3.0, 1).edges
    groups = disjoint(edges)
    assert sorted(place for group in groups for place in group) == list(range(len(edges)))
    for group in groups:
        ends = [end for place in group for end in edges[place]]
        assert len(ends) == len(set(ends))


@pytest.mark.parametrize("make", [lambda: colouring(4, 9.0, 0), lambda: satisfiability(2, 1.0, 0), lambda: colouring(4, 0.01, 0)])
def test_a_puzzle_that_cannot_be_made_is_refused(make: object) -> None:
    with pytest.raises(CompbenchError, match=r"task\.size"):
        make()  # type: ignore[operator]


def test_a_law_that_misses_a_position_is_refused_and_so_is_a_composition_s_own_density() -> None:
    with pytest.raises(CompbenchError, match="each position once"):
        BlockLaw.of(3, [Lines(((0,), (1,)), ((1,), (-1,)), (1.0, 1.0))])
    oracle = BlockOracle(laws_of(queens(4)), torch.device("cpu"))
    with pytest.raises(CompbenchError, match="exact scores, not"):
        oracle.law((1, 1, 1, 1))


def test_repaired_answers_break_no_more_than_they_did_and_without_changes_they_are_the_base_s() -> None:
    oracle = BlockOracle(laws_of(satisfiability(12, 2.0, 0)), torch.device("cpu"))
    every = tuple(1 for _ in next(iter(oracle.laws)))
    drawn, repaired = (oracle.repaired(every, 40, most, torch.Generator().manual_seed(0)) for most in (0, 50))
    before, after = (violations(oracle.laws.values(), signs) for signs in (drawn, repaired))
    assert (after <= before).all()
    assert (after == 0).double().mean() > 0.5 > (before == 0).double().mean()


@pytest.mark.parametrize(("size", "known"), [(2, 0), (3, 0), (4, 2), (5, 10), (6, 4), (7, 40)])
def test_queens_have_as_many_answers_as_is_known(size: int, known: int) -> None:
    assert num_answers(queens(size), 1000) == known


@pytest.mark.parametrize("puzzle", [colouring(4, 2.0, 0), satisfiability(9, 3.0, 1)])
def test_answers_are_as_many_as_a_look_at_all_of_them_finds(puzzle: Puzzle) -> None:
    every = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * puzzle.dimension)
    valid = int((violations(list(laws_of(puzzle).values()), every) == 0).sum())
    assert num_answers(puzzle, 10_000) == valid > 2
    assert num_answers(puzzle, 2) == 2
    assert num_answers(puzzle, 10_000, most_steps=3) is None
