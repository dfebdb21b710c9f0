"""Coloured digits in any colour but one: CoInD's NOT conditions, for which the right answer is known.

cmnist-not  coloured digits, requested as digit d and not colour c, for all pairs; seen: digit d in colours d and d + 1

The right answer is uniform over the nine other colours.  The digits, colours and seen pairs are those of cmnist-diagonal.  CoInD
(Gaudi et al. 2025, arXiv 2503.01145) scores whether a sample conforms; we also score whether all nine colours occur.
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
"""The judge trains for at least this many steps, even at `smoke`: a judge that confuses most digits makes the shares
meaningless."""


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
            "all_total_variation ranks: it compares the shares of wrong digits, of excluded colours and of each other colour, "
            "counted from the digit, with the exact shares 0, 0 and a tenth each; real images give its floor",
            "a model that ignores NOT scores 0.1, one that gives only the two seen colours scores 0.8, and one that gives only "
            "the excluded colour scores 1",
            "all_accuracy is conformity: the digit is right and the colour is not the excluded one; a model that ignores NOT "
            "already scores 0.9",
        ],
        paper_notes=[
            *plain.paper_notes,
            "chosen: the score; the paper has only conformity, which a model that always gives one colour could satisfy",
        ],
        negates=True,
    )


class OpenNot(cmnist.OpenDigits):
    """The digits of cmnist-diagonal, requested in any colour but one."""

    @cached_property
    def evaluation(self) -> NotEvaluation:
        """Judge and scores; created on first use, which happens only in the referee."""
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
