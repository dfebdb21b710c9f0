"""What a function may carry to a silo: plain values; a tensor where an author may leave one is found and named."""

import sys
from collections import UserList, deque
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy
import pytest
import torch
from torch import nn

from compbench.api.closures import refuse_tensors
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.interfaces import Event, Problem
from compbench.data.silo_shards import TensorSilo
from compbench.system.errors import Refused

WEIGHTS = torch.zeros(3)


@dataclass
class Box:
    inside: object


class Slotted:
    __slots__ = ("inside",)

    def __init__(self, inside: object) -> None:
        self.inside = inside


class Pair(NamedTuple):
    first: object
    second: object


class Worker:
    def __init__(self, inside: object) -> None:
        self.inside = inside

    def work(self, silo, received, ctx):
        return self.inside

    def __call__(self, silo, received, ctx):
        return self.inside


def carrying(inside: object):
    return lambda silo, received, ctx: inside


def yielding(inside: object):
    yield inside


def plain(silo, received, ctx):
    return {}


def with_default(silo, received, ctx, weights=WEIGHTS):
    return weights


def with_keyword(silo, received, ctx, *, weights=WEIGHTS):
    return weights


def problem() -> Problem:
    space = FactorSpace([Factor("a", 2)])
    silo = TensorSilo("one", torch.zeros(4, 2), torch.zeros(4, 1, dtype=torch.long))
    return Problem(space, Event("vector", (2,)), Federation([silo]), None, Holdout.empty(space))


@pytest.mark.parametrize(
    ("work", "place"),
    [
        (carrying(WEIGHTS), "closure 'inside' \\(Tensor\\)"),
        (carrying(nn.Linear(2, 2)), "closure 'inside' \\(Linear\\)"),
        (carrying(numpy.zeros(3)), "closure 'inside' \\(ndarray\\)"),
        (carrying(carrying({"peers": [WEIGHTS]})), "closure 'inside' -> closure 'inside' -> \\['peers'\\] -> \\[0\\]"),
        (carrying(Box(Slotted(Pair(1, WEIGHTS)))), "\\.inside -> \\.inside -> \\[1\\]"),
        (carrying(problem()), "\\.federation"),
        (with_default, "defaults -> \\[0\\]"),
        (with_keyword, "defaults -> \\['weights'\\]"),
        (partial(plain, WEIGHTS), "argument 0"),
        (partial(plain, received={WEIGHTS}), "argument 'received'"),
        (Worker(WEIGHTS).work, "bound object -> \\.inside"),
        (Worker((1, WEIGHTS)), "\\.inside -> \\[1\\]"),
        ([WEIGHTS].append, "bound object -> \\[0\\]"),
        (carrying(deque([1, WEIGHTS])), "closure 'inside' -> \\[1\\] \\(Tensor\\)"),
        (carrying({"a": WEIGHTS}.values()), "closure 'inside' -> \\[0\\]"),
        (carrying({"a": WEIGHTS}.items()), "closure 'inside' -> \\[0\\] -> \\[1\\]"),
        (carrying(UserList([WEIGHTS])), "closure 'inside' -> \\[0\\]"),
    ],
)
def test_a_tensor_is_found_wherever_it_is_carried(work, place: str) -> None:
    with pytest.raises(Refused, match="carries tensors with it: .*" + place):
        refuse_tensors(work)


@pytest.mark.parametrize("inside", [iter([WEIGHTS]), yielding(WEIGHTS), map(str, [1]), (one for one in [1])])
def test_an_iterator_is_refused_whatever_it_yields(inside) -> None:
    with pytest.raises(Refused, match="carries an iterator with it: .*closure 'inside' .* hand over a list"):
        refuse_tensors(carrying(inside))


def test_plain_values_may_be_carried() -> None:
    loop: list[object] = [1, "two", None, {"three": (4.0, range(10**12))}, torch.float32, torch.device("cpu"), torch]
    loop += [deque([5]), {"six": 7}.values(), nn.Linear, sys.stdout]
    loop.append(loop)
    refuse_tensors(plain)
    refuse_tensors(carrying([Box(loop), partial(plain, 1), Worker(2).work, FactorSpace([Factor("a", 2)])]))


def test_a_federation_refuses_it_before_any_silo_is_visited() -> None:
    visited = []
    peers = nn.Linear(2, 2)

    def work(silo, received, ctx):
        visited.append(silo.name)
        return peers.state_dict()

    whole = problem()
    with pytest.raises(Refused, match="work -> closure 'peers' \\(Linear\\)"):
        whole.federation.run(work, None, like=peers.state_dict(), stage="s")
    assert not visited
