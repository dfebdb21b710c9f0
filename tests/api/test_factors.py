import pytest
import torch

from compbench.api.factors import NULL, Factor, FactorSpace, Holdout, identifiability, minimum_coverage
from compbench.system.errors import CompbenchError

SPACE = FactorSpace([Factor("shape", 4), Factor("hue", 10), Factor("scale", 3)])


def heavy() -> Holdout:
    return Holdout.by_rule(SPACE, ["shape", "hue"], lambda a, b: (a + b) % 4 != 0)


def test_minimum_coverage_of_a_four_by_ten_lattice_is_thirteen_fortieths() -> None:
    assert minimum_coverage((4, 10)) == 13 / 40


def test_identifiability_of_the_heavy_pattern_is_refuted_by_coverage_components_and_rank() -> None:
    found = identifiability((4, 10), heavy().seen_cells)
    assert (found.num_seen, found.num_components, found.rank, found.full_rank) == (10, 4, 10, 13)
    assert not found.feasible


def test_identifiability_of_a_parity_pattern_sees_two_components_although_coverage_suffices() -> None:
    seen = [(a, b) for a in range(4) for b in range(10) if (a + b) % 2 == 0]
    found = identifiability((4, 10), seen)
    assert found.coverage > found.minimum_coverage
    assert (found.num_components, found.rank) == (2, 12)
    assert not found.feasible


def test_identifiability_of_a_cross_is_feasible_at_exactly_the_minimum_coverage() -> None:
    seen = [(a, 0) for a in range(4)] + [(0, b) for b in range(1, 10)]
    found = identifiability((4, 10), seen)
    assert found.coverage == found.minimum_coverage
    assert found.feasible


def test_marginal_coverage_names_the_factor_that_lacks_a_value() -> None:
    assert identifiability((2, 2), [(0, 0), (0, 1)]).marginal_coverage == (0.5, 1.0)


def test_draw_gives_seen_combinations_only_and_all_of_them() -> None:
    drawn = heavy().draw(4000, torch.Generator().manual_seed(0), heldout=False)
    assert not heavy().contains(drawn).any()
    assert len({tuple(row) for row in drawn[:, :2].tolist()}) == 10


def test_draw_of_the_holdout_gives_held_out_combinations_only() -> None:
    drawn = heavy().draw(500, torch.Generator().manual_seed(0), heldout=True)
    assert heavy().contains(drawn).all()


def test_frequencies_are_the_marginals_of_what_is_drawn() -> None:
    drawn = heavy().draw(40_000, torch.Generator().manual_seed(0), heldout=False)
    for column, expected in enumerate(heavy().frequencies()):
        found = torch.bincount(drawn[:, column], minlength=len(expected)) / len(drawn)
        assert torch.allclose(found, torch.tensor(expected), atol=0.01)


def test_check_accepts_null_and_names_the_factor_out_of_bounds() -> None:
    SPACE.check(torch.tensor([[NULL, 9, 2]]))
    with pytest.raises(CompbenchError, match="factor 'hue' takes -1 to 9, got 10"):
        SPACE.check(torch.tensor([[0, 10, 0]]))


def test_index_of_a_misspelt_factor_suggests_the_right_one() -> None:
    with pytest.raises(CompbenchError, match="Did you mean 'shape'"):
        SPACE.index("shap")


def test_an_empty_holdout_has_nothing_to_draw_from() -> None:
    with pytest.raises(CompbenchError, match="holds nothing out"):
        Holdout.empty(SPACE).draw(1, torch.Generator(), heldout=True)
