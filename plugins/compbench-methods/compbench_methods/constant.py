"""The answer that ignores the request: a real sample of the seen data, whatever is asked.

    x(c) = x_n,    n uniform over the kept examples

The zero of the board's scale as a row (`compbench/board/scale.py`: a model that ignores what it is asked for).  A distance to
this row's samples is the distance of the seen data to the target, which is that scale's chance; its accuracies are those of
seen cells at random, so 0 on held-out ones where the judge makes no mistake.  Where entries are given, the example that is
nearest in these is taken, and they are put in its place.  With several silos the data are pooled: a centralised reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compbench import Context, Method, Request, hookimpl
from compbench.flow.examples import Examples, KeepingSettings, anyone, keep, with_given


@torch.no_grad()
def sample(settings: KeepingSettings, examples: Examples, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """A kept example for each request, picked by its noise."""
    return with_given(examples.take(anyone(examples, request)), request)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="constant",
            settings=KeepingSettings,
            fit=keep,
            sample=sample,
            evaluations=lambda settings, problem: 0,
            ignores_condition=True,
        ),
    )
