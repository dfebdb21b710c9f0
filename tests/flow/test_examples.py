"""Kept examples: what is kept, and which of them answers a request, against a search row by row."""

from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor

from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.api.factors import NULL, Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Problem, Request
from compbench.flow.examples import DRAWN, LOOKS, Examples, KeepingSettings, anyone, closest, decoded, keep, with_given
from compbench.system.errors import Cancelled

SPACE = FactorSpace([Factor("a", 3), Factor("b", 4), Factor("c", 2)])
SMALL_BUDGET = Budget(train_steps=50, batch_size=100, width=8, learning_rate=1e-3, sample_steps=4)


class Silo:
    """Pictures of a few levels, or numbers, of random conditions."""

    name = "all"

    def __init__(self, size: int, *, levels: int = 256) -> None:
        self.size, self.levels = size, levels

    def batch(self, size: int, generator: Generator) -> Batch:
        x1 = torch.randint(self.levels, (size, 1, 4, 4), generator=generator).float().div_((self.levels - 1) / 2).sub_(1)
        return Batch(x1, SPACE.uniform(size, generator))


def problem(silo: Silo, kind: str = "image") -> Problem:
    return Problem(SPACE, Event(kind, (1, 4, 4)), Federation([silo]), SMALL_BUDGET, Holdout.empty(SPACE))


def context(**changes: object) -> Context:
    return Context(torch.device("cpu"), "fp32", Generator().manual_seed(0), NoCheckpoints(), **changes)


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=Generator().manual_seed(seed))


def numbered(count: int) -> Examples:
    return Examples(torch.arange(count).float()[:, None].expand(count, 2), SPACE.uniform(count, Generator().manual_seed(3)))


@pytest.mark.parametrize(("levels", "kept"), [(256, torch.uint8), (1000, torch.float32)])
def test_pictures_are_kept_bit_for_bit_and_in_bytes_where_they_have_256_levels(levels: int, kept: torch.dtype) -> None:
    found, again = keep(KeepingSettings(), problem(Silo(10_000, levels=levels)), context()), context()
    drawn = torch.cat([Silo(10_000, levels=levels).batch(DRAWN, again.generator).x1 for _ in range(2)])
    assert found.x1.dtype == kept
    assert torch.equal(decoded(found.x1)[: 2 * DRAWN], drawn)


@pytest.mark.parametrize(("size", "asked", "count"), [(10, 65536, LOOKS * 10), (10**6, 65536, 5000 + 4096), (10**6, 700, 700)])
def test_no_more_is_kept_than_the_data_the_budget_and_the_settings_have(size: int, asked: int, count: int) -> None:
    found = keep(KeepingSettings(num_examples=asked), problem(Silo(size)), context())
    assert (len(found.x1), len(found.condition)) == (count, count)


def test_keeping_stops_when_it_is_asked_to() -> None:
    with pytest.raises(Cancelled):
        keep(KeepingSettings(), problem(Silo(10**6)), context(cancelled=lambda: True))


def told_alike(one: list[int], other: list[int]) -> int:
    return sum(mine == theirs for mine, theirs in zip(one, other, strict=True) if mine != NULL)


def test_the_closest_example_is_that_of_a_search_row_by_row() -> None:
    examples = numbered(15)
    condition = torch.cat([SPACE.uniform(200, Generator().manual_seed(4)), torch.tensor([[NULL, 1, NULL], [NULL] * 3])])
    rows = closest(examples, Request(condition, normal(len(condition), 2)))
    cells = examples.condition.tolist()
    for asked, row in zip(condition.tolist(), rows.tolist(), strict=True):
        assert told_alike(asked, cells[row]) == max(told_alike(asked, cell) for cell in cells)


def test_ties_are_picked_evenly_by_the_noise_of_their_own_row() -> None:
    examples = Examples(torch.arange(4.0)[:, None], torch.tensor([[0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 1, 1]]))
    request = Request(torch.zeros(4000, 3, dtype=torch.long), normal(4000, 5))
    rows = closest(examples, request)
    assert (rows.bincount(minlength=4) / 4000).tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0], abs=0.03)
    alone = closest(examples, Request(request.condition[7:8], request.x0[7:8]))
    assert torch.equal(alone, rows[7:8])


def test_anyone_ignores_the_condition() -> None:
    examples, x0 = numbered(50), normal(300, 2)
    found = [anyone(examples, Request(torch.full((300, 3), value), x0)) for value in (0, 1)]
    assert torch.equal(*found)
    assert len(found[0].unique()) > 40


def test_where_entries_are_given_the_nearest_in_them_answers_and_keeps_them() -> None:
    examples = Examples(normal(60, 3, 5), SPACE.uniform(60, Generator().manual_seed(3)))
    mask = torch.zeros(20, 3, 5, dtype=torch.bool)
    mask[:, :, 0] = True
    known = normal(20, 3, 5, seed=5)
    request = Request(SPACE.uniform(20, Generator().manual_seed(6)), normal(20, 3, 5, seed=7), known, mask)
    rows, cells = closest(examples, request), examples.condition.tolist()
    for place, row in enumerate(rows.tolist()):
        shared = [told_alike(request.condition[place].tolist(), cell) for cell in cells]
        apart = (examples.x1[:, :, 0] - known[place, :, 0]).square().sum(1)
        best = min((k for k in range(60) if shared[k] == max(shared)), key=lambda k: float(apart[k]))
        assert row == best
    made = with_given(examples.take(rows), request)
    assert torch.equal(made[mask], known[mask])
    assert torch.equal(made[~mask], examples.take(rows)[~mask])


def test_examples_are_the_same_whatever_the_number_of_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    examples, request = numbered(40), Request(SPACE.uniform(30, Generator().manual_seed(4)), normal(30, 2))
    whole = closest(examples, request)
    monkeypatch.setattr("compbench.flow.examples.PAIRS", 80)
    assert torch.equal(closest(examples, request), whole)


def test_all_silos_are_drawn_from() -> None:
    """Two silos of one level each, 0 and 1."""

    class Level(Silo):
        def batch(self, size: int, generator: Generator) -> Batch:
            return Batch(torch.full((size, 1, 4, 4), float(self.levels)), SPACE.uniform(size, generator))

    silos = [Level(500, levels=0), Level(500, levels=1)]
    silos[1].name = "other"
    asked = replace(problem(silos[0]), federation=Federation(silos))
    found = decoded(keep(KeepingSettings(), asked, context()).x1)
    assert asked.federation.was_pooled
    assert found.mean().item() == pytest.approx(0.5, abs=0.05)
