"""Laws of masks: closed shares against counts, and what they say of NULL."""

import pytest
import torch
from torch import Generator

from compbench.api.factors import NULL
from compbench.flow.masking import (
    Dropout,
    DropoutSettings,
    Law,
    Masking,
    draw_kept,
    draw_masks,
    masked,
    size_shares,
    sub_conditions,
)

COUNT = 60_000
LAWS = (Masking(0.7, 0.2, 0.1), Dropout(0.1), Dropout(0.5), DropoutSettings().law, Dropout(0.3, even=1.0))


@pytest.mark.parametrize("num_factors", [2, 3, 6])
@pytest.mark.parametrize("law", LAWS)
def test_null_each_single_and_the_whole_have_the_shares_that_the_law_says(law: Law, num_factors: int) -> None:
    shares = size_shares(law, num_factors)
    kept = draw_kept(law, COUNT, num_factors, Generator().manual_seed(0))
    sizes = kept.sum(1)
    expected = {"NULL": (sizes == 0, shares[0]), "whole": (sizes == num_factors, shares[-1])}
    expected |= {f"factor {k}": (kept[:, k] & (sizes == 1), shares[1] / num_factors) for k in range(num_factors)}
    for name, (rows, share) in expected.items():
        error = 4.5 * (share * (1 - share) / COUNT) ** 0.5 + 1e-9
        assert abs(rows.float().mean().item() - share) < error, name
    counts = torch.bincount(sizes, minlength=num_factors + 1) / COUNT
    assert torch.allclose(counts, torch.tensor(shares), atol=0.012)
    assert sum(shares) == pytest.approx(1)


@pytest.mark.parametrize("num_factors", [2, 3, 6, 20])
def test_even_masks_keep_every_number_of_factors_equally_often(num_factors: int) -> None:
    assert size_shares(Dropout(0.3, even=1.0), num_factors) == pytest.approx([1 / (num_factors + 1)] * (num_factors + 1))


def test_a_share_of_even_masks_bounds_null_s_share_below_where_dropout_alone_loses_it() -> None:
    assert size_shares(Dropout(0.1), 6)[0] * 211_200 == pytest.approx(0.2112)  # examples of a fit of Shapes3D at `standard`
    for num_factors in (2, 6, 20):
        assert size_shares(Dropout(0.1, even=0.5), num_factors)[0] >= 0.5 / (num_factors + 1)


@pytest.mark.parametrize(("num_factors", "null", "alone"), [(2, 0.21, 0.19), (6, 0.072, 0.013), (12, 0.038, 0.003)])
def test_shares_of_the_default_masks_fall_with_the_number_of_factors_as_the_module_says(
    num_factors: int, null: float, alone: float
) -> None:
    shares = size_shares(DropoutSettings().law, num_factors)
    assert shares[0] == pytest.approx(null, rel=0.03)
    assert shares[1] / num_factors == pytest.approx(alone, rel=0.08)
    assert shares[0] > 0.5 / (num_factors + 1)
    assert shares[1] / num_factors > 0.5 / (num_factors * (num_factors + 1))


def test_pure_dropout_draws_what_a_threshold_of_uniform_numbers_draws() -> None:
    condition = torch.randint(0, 4, (50, 3), generator=Generator().manual_seed(1))
    dropped = torch.rand(50, 3, generator=Generator().manual_seed(0)) < 0.4
    assert torch.equal(masked(condition, Dropout(0.4), Generator().manual_seed(0)), condition.masked_fill(dropped, NULL))


def test_sub_conditions_are_the_whole_nothing_and_each_alone() -> None:
    found = sub_conditions(torch.tensor([[3, 5]]))
    assert found[:, 0].tolist() == [[3, 5], [NULL, NULL], [3, NULL], [NULL, 5]]


def test_equation_7_masks_are_the_sub_conditions_that_it_draws() -> None:
    law, condition = Masking(0.5, 0.3, 0.2), torch.randint(0, 4, (200, 3), generator=Generator().manual_seed(1))
    kind = draw_masks(200, 3, law, Generator().manual_seed(0))
    chosen = sub_conditions(condition)[kind, torch.arange(200)]
    assert torch.equal(masked(condition, law, Generator().manual_seed(0)), chosen)


def test_masks_have_the_shares_of_equation_7() -> None:
    kind = draw_masks(100_000, 2, Masking(0.7, 0.2, 0.1), Generator().manual_seed(0))
    shares = torch.bincount(kind, minlength=4) / 100_000
    assert torch.allclose(shares, torch.tensor([0.7, 0.1, 0.1, 0.1]), atol=0.006)
