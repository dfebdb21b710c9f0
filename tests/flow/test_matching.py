import pytest
import torch
from torch import nn

from compbench.flow.matching import matched_width, parameters_of
from compbench.system.errors import CompbenchError


def square(width: int) -> nn.Module:
    """width^2 parameters."""
    return nn.Linear(width, width, bias=False)


def test_parameters_are_counted_without_drawing_a_random_number() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert parameters_of(lambda: square(1 << 20)) == 1 << 40  # 4 TB, were they stored
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("target", "width"), [(100, 10), (1_000_000, 1000), (109, 10), (111, 11), (125, 11), (1, 1)])
def test_the_nearest_width_is_found(target: int, width: int) -> None:
    assert matched_width(square, target, step=1) == width


def test_widths_are_multiples_of_the_step() -> None:
    assert matched_width(square, 100**2 + 900, step=8) == 104


def test_a_network_that_is_too_large_at_its_narrowest_is_refused() -> None:
    with pytest.raises(CompbenchError, match="no network of this shape has as few as 100 parameters: 256 at width 16"):
        matched_width(square, 100, step=16)
