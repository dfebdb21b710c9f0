"""Coloured digits in one silo, each digit seen in two colours: CoInD's partial support.

cmnist-diagonal  coloured digits, 20 of 100 (digit, colour) pairs seen: digit d in colours d and d + 1; one silo

CoInD (Gaudi et al. 2025, arXiv 2503.01145), coloured MNIST.  The settings, data and judges are those of the other cmnist tasks.
"""

from __future__ import annotations

from dataclasses import replace

from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Task
from compbench.tasks import cmnist, coverage

BUDGETS = {
    **cmnist.BUDGETS,
    "quick": cmnist.BUDGETS["quick"].model_copy(update={"train_steps": 2000, "warmup_steps": 50, "sample_steps": 20}),
    "paper": cmnist.BUDGETS["paper"].model_copy(
        update={
            "train_steps": 50_000,
            "batch_size": 64,
            "learning_rate": 1e-3,
            "final_learning_rate": 0.0,
            "warmup_steps": 2000,
            "ema_decay": 0.9999,
        }
    ),
}
"""At `quick` the one silo gets the steps that ten silos share in the other tasks.  At 2,000 steps 0.96 of the composed samples of
seen pairs are right (`cmnist.GUIDANCE`)."""


def make_task(settings: cmnist.Settings | None = None) -> Task:
    """The task.  Raises CompbenchError for a coverage that no design has."""
    settings = settings or cmnist.Settings(seen_colours=2, silos=1)
    return replace(
        cmnist.make_task("iid", settings),
        name="cmnist-diagonal",
        family="images",
        core=False,
        files=("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
        extra="digits",
        extra_for="embedded",
        summary="coloured digits in one silo, " + coverage.said(settings, "each seen in two of ten colours"),
        budgets=BUDGETS,
        version=1,
        configure=make_task,
        citation="CoInD: Enabling Logical Compositions in Diffusion Models, coloured MNIST with partial support",
        notes=[
            "20 of 100 pairs are seen, one more than C_min: the seen pairs form a chain, which determines an additive model",
            "colours are cyclic: digit 9 is seen in colours 9 and 0, but in the authors' code only in colour 9",
        ],
        paper_notes=[
            "follows the paper and its code: digit d in colours d and d + 1, 50,000 steps (its code's default is 20,000), "
            "batches of 64, AdamW at 1e-3 with 2,000 steps of warm-up and a cosine, average 0.9999",
            "chosen: FVF's network (theirs is a UNet with attention); the ten colours of the cmnist tasks",
            "changed: flow matching and Euler steps in place of DDPM and DDIM; colours are cyclic, so each digit has two",
        ],
    )


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return (make_task(),)
