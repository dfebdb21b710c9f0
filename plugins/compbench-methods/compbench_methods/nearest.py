"""A real sample of the closest seen cell: nothing is learnt, nothing is new.

    x(c) = x_n,    n in argmax_n #{k told by c : c_nk = c_k}

A row that learns nothing, and no paper's: what it has, a method has to beat.  Every sample is a training example, one that
shares as many factors with the request as any kept example does.  Ties, and examples of one cell, are picked by the request's
noise; where entries are given, the example that is nearest in these is taken, and they are put in its place.  A factor that is
left open fits any value.  With several silos the data are pooled: a centralised reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compbench import Context, Method, Request, hookimpl
from compbench.flow.examples import Examples, KeepingSettings, closest, keep, with_given


@torch.no_grad()
def sample(settings: KeepingSettings, examples: Examples, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """The closest kept example of each request."""
    return with_given(examples.take(closest(examples, request)), request)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (Method(name="nearest", settings=KeepingSettings, fit=keep, sample=sample, evaluations=lambda settings, problem: 0),)
