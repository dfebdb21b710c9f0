"""Measure what a sample and a training step of a fitted method cost, with torch's FLOP formulas for matrix products.

The number of network evaluations per sample is the FLOPs of a sample divided by those of one example's forward pass in the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from compbench.api.interfaces import Method, MethodSettings, Problem, Request
from compbench.runner import counted
from compbench.runner.asked_conditions import watched
from compbench.store.counts import evaluations_excess
from compbench.system import profiling
from compbench.system.profiling import Flops

if TYPE_CHECKING:
    from torch import Tensor

    from compbench.api.context import Context
    from compbench.api.federation import Federation, LentSilo, ModelState, Work

STEPS = 4
"""Number of training steps of the probe if there are several silos, whose stages take turns; otherwise it takes one step."""


class Probed(NamedTuple):
    """FLOPs of a sample, of a training step (0 if a fit takes none), and evaluations per sample (None if they cannot be derived).

    What a fit does once, after its steps, is divided among all of them.  `asked` counts a sample's evaluations at conditions with
    values of 0 ... F factors, in a request of a few rows, pilots included; it is () if no network takes conditions.  Backward
    passes are given per training step and for the whole request.
    """

    per_sample: float
    per_train_step: float
    evaluations: float | None
    asked: tuple[float, ...] = ()
    step_passes: float = 1.0
    request_passes: int = 0


def probed(
    method: Method,
    settings: MethodSettings,
    model: object,
    problem: Problem,
    asked: Request,
    context: Callable[[], Context],
    *,
    trained: int,
) -> Probed:
    """Measure the costs of a method.

    Args:
        method, settings, model: the fitted method.
        problem: the problem that it was fitted on; a training step is the mean over silos and stages of a short fit.
        asked: a request with some rows.
        context: makes a new context each time.
        trained: number of training steps of the whole fit.
    """
    sampling = context()

    def sample(rows: int) -> object:
        if rows <= len(asked.x0):
            part = Request(asked.condition[:rows], asked.x0[:rows])
        else:
            part = Request(asked.condition.expand(rows, -1), asked.x0.expand(rows, *asked.x0.shape[1:]))
        return method.sample(settings, model, part, sampling)

    asking = counted.Tally()
    with watched(model) as conditions, asking.counting_steps():
        per_sample = profiling.count_flops(lambda: method.sample(settings, model, asked, sampling)) / len(asked.x0)
    tally, fitting = counted.Tally(), context()
    federation = problem.federation
    steps = min(problem.budget.train_steps, STEPS if len(federation) > 1 else 1)
    budget = problem.budget.model_copy(update={"train_steps": steps})
    short = counted.counted(replace(problem, budget=budget, federation=federation.unmetered()), tally)

    reported = 0

    def progress(done: int, total: int) -> None:
        nonlocal reported
        reported = max(reported, done)

    fitting.progress = progress
    with tally.counting_steps():
        flops, once = fit_flops(lambda: method.fit(settings, short, fitting), short.federation)
    examples = min(tally.examples, tally.optimiser_steps * budget.batch_size)
    found, declared = None, method.evaluations and method.evaluations(settings, problem)
    if declared is not None and flops.forward and examples:
        found = per_sample / (flops.forward / examples)
        if evaluations_excess(found, declared):  # perhaps part of the work is done once per request
            found = counted.evaluations(sample, max(2, len(asked.x0)), flops.forward, examples, declared)
    trains = reported > 0 or tally.optimiser_steps > 0
    by_size = conditions.of(asked.condition.shape[1])
    scale = declared / sum(by_size) if declared and by_size else 1 / len(asked.x0)
    per_step = flops.total / max(steps, reported) + once / max(1, trained) if trains else 0.0
    each = tally.backward_passes / max(1, tally.optimiser_steps, reported)
    return Probed(per_sample, per_step, found, tuple(scale * count for count in by_size), each, asking.backward_passes)


def fit_flops(fit: Callable[[], object], federation: Federation) -> tuple[Flops, float]:
    """Floating point operations of a fit's steps, and those of the forward passes that it makes once, after them.

    A density, for example, is centred on its silo's data.  Such passes follow the last step of a silo's work, or of the fit, and
    no backward pass is among them.  What precedes a step counts with the steps.

    Args:
        fit: a whole fit.
        federation: of the fitted problem; its silos' work is watched meanwhile.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    last: Flops | None = None
    once = 0.0
    run = federation.run

    def step(*_: object) -> None:
        nonlocal last
        last = so_far()

    def ended() -> None:
        nonlocal last, once
        if last is not None:
            now = so_far()
            more = now.total - last.total
            once += more if more == now.forward - last.forward else 0.0
            last = now

    def watched_run(work: Work, *given: Any, **named: Any) -> list[dict[str, Tensor]]:
        def watched_work(silo: LentSilo, received: dict[str, Tensor], own: Context) -> ModelState:
            state = work(silo, received, own)
            ended()
            return state

        return run(watched_work, *given, **named)

    handle = register_optimizer_step_post_hook(step)
    vars(federation)["run"] = watched_run  # of this federation alone
    try:
        with profiling.counting_flops() as so_far:
            fit()
    finally:
        handle.remove()
        del vars(federation)["run"]
    ended()
    found = so_far()
    return Flops(found.total - once, found.forward - once), once
