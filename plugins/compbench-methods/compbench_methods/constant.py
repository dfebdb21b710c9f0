"""A baseline that ignores the request: every answer is a random real sample of the seen data.

    x(c) = x_n,    n uniform over the kept examples

This row is the zero of the board's scale (`compbench/board/scale.py`: a model that ignores what is requested).  The distances of
its samples are those of the seen data to the target, which the scale calls chance.  Its accuracies are those of random seen
cells, so they are 0 on held-out cells if the judge makes no mistake.  If a request gives entries, the answer is the example
nearest to them, with the given entries put in.  With several silos the data are pooled: the row is a centralised reference.

Own: this baseline is compbench's own and comes from no paper, so there is no authors' code from which it could deviate.
"""

from __future__ import annotations

import torch
from torch import Tensor

from compbench import Context, Method, Request, hookimpl
from compbench.flow.examples import Examples, KeepingSettings, anyone, keep, with_given


@torch.no_grad()
def sample(settings: KeepingSettings, examples: Examples, request: Request, ctx: Context) -> Tensor:  # (B, *D)
    """A kept example for each request, picked by the request's noise."""
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
