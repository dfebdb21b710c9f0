"""Silos that are trained side by side end where each alone would."""

from __future__ import annotations

import pytest
import torch
from stacked_silos import train_silos
from support.seldom import slow
from torch import Generator

from compbench.api.context import Context, NoCheckpoints
from compbench.flow.independence import decentralised_loss
from compbench.flow.masking import Masking
from compbench.flow.nets import monolithic_net
from compbench.flow.train import train
from compbench.testing.tiny_problems import PROBLEMS

CPU = torch.device("cpu")
MASKING = Masking(0.7, 0.2, 0.1)


def context(seed: int, *, compile: bool = False) -> Context:
    return Context(CPU, "fp32", Generator().manual_seed(seed), NoCheckpoints(), compile=compile)


@pytest.mark.parametrize(("independence", "compile"), [(0.0, False), (2.0, False), slow((2.0, True))])
def test_silos_side_by_side_end_where_each_alone_does(independence: float, compile: bool) -> None:
    torch.compiler.reset()
    problem = next(tiny for tiny in PROBLEMS if tiny.name == "silos").make(CPU)
    silos = problem.federation._silos
    nets: list[torch.nn.Module] = []
    alone: list[torch.nn.Module] = []
    for made in (nets, alone):
        torch.manual_seed(0)
        made += [monolithic_net(problem) for _ in silos]
    ctx = context(99, compile=compile)
    generators = [Generator().manual_seed(seed) for seed in range(len(silos))]
    train_silos(nets, silos, problem.budget, ctx, masking=MASKING, independence=independence, generators=generators)
    assert ctx.notes == ({"compiled": 1.0} if compile else {})
    for seed, (net, silo) in enumerate(zip(alone, silos, strict=True)):
        train(net, decentralised_loss(MASKING, independence), silo, problem.budget, context(seed))
        for name, weight in net.state_dict().items():
            torch.testing.assert_close(nets[seed].state_dict()[name], weight, rtol=0, atol=2e-5)
    torch.compiler.reset()
