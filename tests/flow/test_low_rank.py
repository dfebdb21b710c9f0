import math

import pytest
import torch

from compbench.errors import Refused
from compbench.factors import NULL
from compbench.flow.low_rank import (
    LowRankDecoder,
    LowRankMaps,
    RankSettings,
    band_of,
    banded_convolution,
    effective_rank,
    neighbours,
)

CONDITION = torch.tensor([[0, 4], [3, 1], [NULL, 2], [3, NULL]])


def maps(**changes) -> LowRankMaps:
    torch.manual_seed(0)
    return LowRankMaps((6, 5), (8, 8), RankSettings(**changes))


def test_maps_have_the_bounded_rank_and_open_factors_none() -> None:
    rendered = maps(rank=2)
    ranks = torch.linalg.matrix_rank(rendered.all_maps().double(), rtol=1e-6)
    assert ranks.tolist() == [2] * 11
    chosen = rendered(CONDITION)
    assert torch.equal(chosen[1, 0], rendered.all_maps()[3])
    assert torch.equal(chosen[1, 1], rendered.all_maps()[6 + 1])
    assert not chosen[2, 0].any()
    assert not chosen[3, 1].any()


def test_penalties_of_known_coefficients_and_vectors() -> None:
    rendered = maps(rank=4)
    with torch.no_grad():
        rendered.coefficient.fill_(-0.3)  # four equal shares
        rendered.column.fill_(0.5)  # flat: no variance
        rendered.row.zero_()
        rendered.row[..., 0] = 1.0  # one of eight entries: sample variance 1/8
    entropy, variance = rendered.penalties()
    assert entropy.item() == pytest.approx(math.log(4), rel=1e-6)
    assert variance.item() == pytest.approx(1 / 16, rel=1e-6)


def test_each_penalty_is_switched_off_by_its_weight() -> None:
    one, other, both = (
        maps(**weights).penalty().item()
        for weights in ({"variance_weight": 0}, {"entropy_weight": 0}, {"entropy_weight": 0.1, "variance_weight": 0.01})
    )
    assert one + other == pytest.approx(both)
    assert maps(entropy_weight=0, variance_weight=0).penalty().item() == 0
    assert min(one, other) > 0


def test_unit_variance_does_not_see_the_vectors_length() -> None:
    raw, unit = maps(variance_of="raw"), maps(variance_of="unit")
    before = raw.penalties().variance.item(), unit.penalties().variance.item()
    with torch.no_grad():
        for rendered in (raw, unit):
            rendered.column.mul_(0.5)
            rendered.row.mul_(0.5)
    assert raw.penalties().variance.item() == pytest.approx(before[0] / 4, rel=1e-5)
    assert unit.penalties().variance.item() == pytest.approx(before[1], rel=1e-5)


def test_token_images_once_a_step_give_the_plain_forward() -> None:
    torch.manual_seed(1)
    decoder = LowRankDecoder((6, 5), (1, 8, 8), RankSettings()).double()
    torch.testing.assert_close(decoder(CONDITION), decoder.plainly(CONDITION), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(decoder.render(decoder.encoding(CONDITION).double()), decoder(CONDITION), rtol=1e-5, atol=1e-6)
    a, b = (
        torch.autograd.grad(forward(CONDITION).square().sum(), decoder.maps.column)[0]
        for forward in (decoder.forward, decoder.plainly)
    )
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rank", [9, 4096])
def test_a_rank_bound_above_the_size_is_refused(rank: int) -> None:
    with pytest.raises(Refused, match=f"--set rank={rank}: a map of 8 x 8 pixels has a rank of 1 to 8"):
        maps(rank=rank)


def test_effective_rank_counts_equal_singular_values() -> None:
    outer = torch.outer(torch.randn(8), torch.randn(8))
    assert effective_rank(torch.stack([outer, torch.eye(8)])).tolist() == pytest.approx([1, 8], rel=1e-4)


def test_a_banded_product_is_the_convolution() -> None:
    x, weight = torch.randn(3, 2, 5, 7), torch.randn(4, 2, 3, 3)
    rows = banded_convolution(x.transpose(1, 2).flatten(2), band_of(weight, neighbours(7)))
    made = rows.unflatten(2, (4, 7)).transpose(1, 2)
    torch.testing.assert_close(made, torch.nn.functional.conv2d(x, weight, padding=1), rtol=1e-4, atol=1e-5)
