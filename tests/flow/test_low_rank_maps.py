import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from reference.low_rank import decode_plainly
from support.stand_in import needs_newer_torch
from torch import Tensor

from compbench.api.context import Batch, Context, NoCheckpoints
from compbench.api.factors import NULL
from compbench.api.interfaces import Budget
from compbench.data.bumps import TableSilo
from compbench.flow import decoders
from compbench.flow import low_rank_maps as low_rank
from compbench.flow.decoders import penalised, regress
from compbench.flow.low_rank_maps import (
    LowRankDecoder,
    LowRankMaps,
    PatchConvolution,
    RankSettings,
    band_of,
    banded_convolution,
    effective_rank,
    neighbours,
)
from compbench.system.errors import Refused

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
    torch.testing.assert_close(decoder(CONDITION), decode_plainly(decoder, CONDITION), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(decoder.render(decoder.encoding(CONDITION).double()), decoder(CONDITION), rtol=1e-5, atol=1e-6)
    a, b = (
        torch.autograd.grad(forward(CONDITION).square().sum(), decoder.maps.column)[0]
        for forward in (decoder.forward, partial(decode_plainly, decoder))
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
    made = banded_convolution(x, band_of(weight, neighbours(7)))
    torch.testing.assert_close(made, torch.nn.functional.conv2d(x, weight, padding=1), rtol=1e-4, atol=1e-5)


def test_sums_over_patches_are_the_convolution_and_its_gradients() -> None:
    x, weight = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 2, 5, 7), (4, 2, 3, 3)))
    made, expected = PatchConvolution.apply(x, weight), torch.nn.functional.conv2d(x, weight, padding=1)
    torch.testing.assert_close(made, expected)
    gradient = torch.randn_like(made)
    for own, other in zip(*(torch.autograd.grad(y, (x, weight), gradient) for y in (made, expected)), strict=True):
        torch.testing.assert_close(own, other)


def refused_if_compiling(banded, *words: Tensor) -> Tensor:
    assert not torch.compiler.is_compiling()
    return banded(*words)


@needs_newer_torch
def test_a_compiled_step_uses_patches_and_its_gradients_are_the_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced as for a real compiler and run by torch's eager backend."""
    monkeypatch.setattr(low_rank, "banded_convolution", partial(refused_if_compiling, low_rank.banded_convolution))
    torch.manual_seed(1)
    net = LowRankDecoder((6, 5), (1, 8, 8), RankSettings())
    batch = Batch(torch.randn(4, 1, 8, 8), CONDITION)
    gradients = []
    for loss in (penalised, torch.compile(penalised, backend="eager", dynamic=False)):
        net.zero_grad()
        loss(net, batch).backward()
        gradients.append([parameter.grad.clone() for parameter in net.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def fitted(steps: int, **changes: float) -> tuple[Tensor, dict[str, object]]:
    """What a decoder fitted to noise draws, and the notes of its fit."""
    torch.manual_seed(0)
    net, known = LowRankDecoder((6, 5), (1, 8, 8), RankSettings(**changes)), CONDITION[:2]
    budget = Budget(train_steps=steps, batch_size=8, width=4, learning_rate=1e-3, sample_steps=1)
    ctx = Context(torch.device("cpu"), "fp32", torch.Generator().manual_seed(0), NoCheckpoints())
    regress(net, TableSilo("noise", torch.randn(2, 1, 8, 8), known), SimpleNamespace(budget=budget), ctx)
    return net(known).detach(), ctx.notes


@pytest.mark.parametrize("works", [True, False])
def test_a_long_fit_of_a_fusing_network_compiles_its_step_where_that_works(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    monkeypatch.setattr(decoders, "FUSED_FROM", 3)
    monkeypatch.setattr(decoders, "compiles", lambda device: works)
    monkeypatch.setattr(decoders, "fused", lambda loss: compiled.append(loss) or loss)
    assert fitted(2)[1] == {}
    assert fitted(3)[1] == {"compiled": float(works)}
    assert compiled == ([penalised] if works else [])


@pytest.mark.slow
def test_a_compiler_makes_of_each_fit_what_a_fit_without_one_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of other penalties and sizes follow each other in one process, as in a chained sweep: none has another's step."""
    if not decoders.compiles("cpu"):
        pytest.skip("no C++ compiler here, or no headers of Python")
    variants = ({}, {"entropy_weight": 0.0, "variance_weight": 1.0}, {"rank": 2}, {})
    plain = [fitted(20, **changes) for changes in variants]
    monkeypatch.setattr(decoders, "FUSED_FROM", 1)
    for changes, (expected, notes) in zip(variants, plain, strict=True):
        found, noted = fitted(20, **changes)
        assert (notes, noted) == ({}, {"compiled": 1.0})
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
