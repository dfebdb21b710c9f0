"""Coloured digits in any colour but one: what CoInD asks with NOT, where the right answer is known.

cmnist-not  asked: digit d and not colour c, for all 100 pairs; seen: digit d in colours d and d + 1, one silo

The right answer is uniform over the nine other colours.  Digits, colours and what is seen of them are cmnist-diagonal's;
CoInD (Gaudi et al. 2025, arXiv 2503.01145) scores whether a sample conforms, we also whether all nine colours come back.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Task
from compbench.tasks import cmnist, cmnist_diagonal, coverage

if TYPE_CHECKING:
    from compbench.tasks.cmnist_not_evaluation import NotEvaluation


FEWEST_STEPS = 400
"""Of the judge's training, at `smoke` too: shares of outcomes say nothing under a judge that takes most digits for others."""


def make_task(settings: cmnist.Settings | None = None) -> Task:
    """The task.  Raises CompbenchError for a coverage that no design has."""
    plain = cmnist_diagonal.make_task(settings)
    assert isinstance(plain.settings, cmnist.Settings)
    return replace(
        plain,
        name="cmnist-not",
        family="images",
        core=False,
        files=("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        extra="digits",
        extra_for="embedded",
        summary="coloured digits in any colour but one; "
        + coverage.said(plain.settings, "each digit seen in two of ten colours"),
        open=partial(OpenNot, "iid", plain.settings, plain.holdout),
        primary="all_total_variation",
        configure=make_task,
        citation="CoInD: Enabling Logical Compositions in Diffusion Models, coloured MNIST, NOT",
        metrics=("accuracy", "total_variation", "fid", "fd_judge", "kid", "precision", "recall"),
        notes=[
            "a condition has -2 - c for 'any colour but c' (compbench.api.factors.excluding)",
            "all_total_variation ranks: distance of the shares of wrong digits, excluded colours and each other colour, counted "
            "from the digit, from the exact 0, 0 and a tenth each; its floor is the same of real images",
            "who ignores NOT has 0.1; who gives the two seen colours alone 0.8; who gives the excluded colour alone 1",
            "all_accuracy is conformity: digit right and colour not the excluded one; who ignores NOT has 0.9 of it already",
        ],
        paper_notes=[
            *plain.paper_notes,
            "chosen: the score; the paper has conformity alone, which one colour for all would satisfy",
        ],
        negates=True,
    )


class OpenNot(cmnist.OpenDigits):
    """The same digits, asked for in any colour but one."""

    @cached_property
    def evaluation(self) -> NotEvaluation:
        """Judge and scores; made when first asked for, which a contestant never does."""
        from compbench.tasks.cmnist_not_evaluation import NotEvaluation

        plain = super().evaluation
        return NotEvaluation(
            real=plain.real,
            space=plain.space,
            holdout=plain.holdout,
            judge=replace(plain.settings, num_steps=max(plain.settings.num_steps, FEWEST_STEPS)),
            sizes=plain.sizes,
            dataset=plain.dataset,
            ctx=plain.ctx,
        )


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return (make_task(),)
