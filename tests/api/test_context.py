"""What a purpose's chance is: the same in every version, or all records would be of other draws."""

import pytest
import torch

from compbench.api.context import generator_of, seed_of


@pytest.mark.parametrize(
    ("purpose", "num_bytes", "seed"),
    [("referee 0 ceiling heldout", 7, 55332913321204381), ("x0 3 seen", 7, 17070655349451490), ("reset 0 seen 5", 4, 2175254483)],
)
def test_a_purpose_keeps_the_seed_that_records_were_made_with(purpose, num_bytes, seed) -> None:
    assert seed_of(purpose, num_bytes=num_bytes) == seed


def test_purposes_draw_apart_and_leave_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    one, other = (torch.randn(3, generator=generator_of(purpose)) for purpose in ("a", "b"))
    assert torch.equal(one, torch.randn(3, generator=generator_of("a")))
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.get_rng_state())
