"""A baseline that returns a real sample of the closest seen cell: it learns nothing and draws nothing new.

    x(c) = x_n,    n in argmax_n #{k given by c : c_nk = c_k}

A method has to beat the scores of this row.  Every sample is the kept training example that shares the most factor values with
the request; the request's noise picks among several such examples.  If a request gives entries, the answer is the example nearest
to them, with the given entries put in.  A factor that is left open matches any value.  With several silos the data are pooled:
the row is a centralised reference.

Own: this baseline is compbench's own and comes from no paper, so there is no authors' code from which it could deviate.
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
