"""Every method that claims trajectories: fits on two silos of them, and draws around entries that are given."""

import pytest
import torch
from compbench_methods import centralised, dcfm, ddm, dfd, driftlite, factored, fedflow, fkc, low_rank, mcmc, mono, rne, slice_cfg
from problems import SPACE, context
from support.seldom import seldom
from torch import Generator

from compbench.api.factors import Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Budget, Event, Method, Problem, Request
from compbench.data.silo_shards import TensorSilo

MODULES = (centralised, dcfm, ddm, dfd, driftlite, factored, fedflow, fkc, low_rank, mcmc, mono, rne, slice_cfg)
METHODS: dict[str, Method] = {
    method.name: method for module in MODULES for method in module.compbench_methods() if not method.oracle
}
SHAPE = (3, 8)
"""Channels and frames."""


def problem() -> Problem:
    """Ramps along the frames whose slope and offset the two factors say."""
    generator = Generator().manual_seed(0)
    silos = []
    for number, cells in enumerate((((0, 0), (0, 1)), ((0, 1), (1, 1)))):
        condition = torch.tensor(cells).repeat_interleave(20, 0)
        ramp = condition[:, :1] * torch.linspace(-1, 1, SHAPE[1]) + condition[:, 1:]
        x1 = ramp[:, None] + 0.1 * torch.randn(len(condition), *SHAPE, generator=generator)
        silos.append(TensorSilo(f"silo {number}", x1, condition))
    budget = Budget(train_steps=4, batch_size=8, width=8, prediction="denoised", learning_rate=1e-3, sample_steps=3)
    return Problem(
        SPACE, Event("trajectory", SHAPE), Federation(silos), budget, Holdout(SPACE, (0, 1), ((1, 0),)), composed=(0, 1)
    )


@pytest.mark.parametrize("name", seldom(METHODS, but=["centralised", "dcfm-a", "factored", "fkc", "mono", "slice-cfg"]))
def test_trajectories_are_drawn_around_what_is_known(name: str) -> None:
    method = METHODS[name]
    torch.manual_seed(0)
    settings = method.settings(**({"num_levels": 3} if name == "mcmc" else {}))  # the budget has no say in its levels
    model = method.fit(settings, problem(), context())
    x0, known = torch.randn(2, 5, *SHAPE, generator=Generator().manual_seed(1))
    condition = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 1], [-1, 1]])
    mask = torch.zeros(5, *SHAPE, dtype=torch.bool)
    mask[:, :, 0] = mask[:, 0, -1] = True
    free = method.sample(settings, model, Request(condition, x0), context())
    bound = method.sample(settings, model, Request(condition, x0, known, mask), context())
    assert free.shape == bound.shape == (5, *SHAPE)
    assert torch.isfinite(bound).all()
    assert torch.equal(bound[mask], known[mask])
    assert not torch.equal(free[mask], known[mask])
