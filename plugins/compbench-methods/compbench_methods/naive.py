"""Composed scores used as if they were the score of the composition, without correction.

naive-ode         Probability flow of the summed scores, uncorrected: dx = (f x + g^2 / 2 sum_a w_a s_a) dt.
naive-sde         Reverse diffusion of the summed scores, uncorrected: dx = (f x + g^2 sum_a w_a s_a) dt + g dW.
naive-ode-oracle  naive-ode on the task's analytic scores.
naive-sde-oracle  naive-sde on the task's analytic scores.

Catastrophic Compositional Generation, section 3.2.  The sum of scores at t is not the score of the noised composition; for
Gaussians the flow's error is known (theorem 2).  Up to version 2, naive-ode and naive-sde also summed the scores in bf16 if the
networks ran in bf16.

Theirs: in the plane naive denoising is a diffusion of 500 steps, with a network of width 512 that was trained for 20,000
steps.  The flow is only analysed.
Ours: at `standard` there are 100 steps, and a width of 256 and 6,000 steps of training; `--preset paper` has the paper's numbers.
naive-ode takes Euler's steps of the flow.
Why: `standard` is limited to half an hour on two cores; the flow has the error that theorem 2 computes.

Theirs: in the plane the last step adds noise, too; on images it adds none.
Ours: it adds none with velocity networks; in the plane, with noise networks and oracles, it does.
Why: the noise would remain in every entry of a sample.

Theirs: perturbations of a base are composed, in the plane and in rooms.
Ours: if a task has no base, slices around NULL are composed, of a velocity network trained with masks (`compbench.flow.masking`).
Why: a factor grid has no base.

Figures: our copy of the paper has no numbers in its tables.  On gauss2d-nonfact-id the flow should end at a variance of 0.5
(theorem 2) and the diffusion at 0.845 (the limit of short steps); 1,500 samples of naive-ode-oracle and naive-sde-oracle have
0.502 and 0.844 after 100 steps (`plugins/compbench-methods/tests/test_scores.py`).

Size: on vectors with a base the score network is the paper's (appendix F): four hidden layers, here of the budget's width.  So it
has 0.14 of the parameters of `factored` in the plane and 0.09 to 0.15 on constraints.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from compbench import Context, Method, Problem, Request, hookimpl
from compbench.flow import score_models
from compbench.flow.score_models import ModelSettings, WeightSettings
from compbench.flow.smc import Settings as Swarms


@torch.no_grad()
def sample(settings: WeightSettings, model: nn.Module, request: Request, ctx: Context, *, noise: bool) -> Tensor:  # (B, *D)
    """Euler's steps of the flow, or Euler-Maruyama's of the diffusion; a swarm of one particle."""
    swarms = Swarms(num_steps=0, noise=noise)  # the steps are the budget's, which the model carries
    return score_models.draw_composition(model, request, ctx, settings=swarms, num_particles=1, weight=settings.weight).x


def evaluations(settings: WeightSettings, problem: Problem) -> int:
    """Every member of the composition at both ends of every step."""
    return score_models.num_members(problem) * (problem.budget.sample_steps + 1)


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    learned = partial(
        Method,
        settings=ModelSettings,
        fit=score_models.fit,
        build=score_models.build,
        evaluations=evaluations,
        shared_fit=score_models.fit_facts,
        version=3,
    )
    analytic = partial(Method, settings=WeightSettings, fit=score_models.oracle_of, evaluations=evaluations, oracle=True)
    ode, sde = partial(sample, noise=False), partial(sample, noise=True)
    return (
        learned(name="naive-ode", sample=ode),
        learned(name="naive-sde", sample=sde),
        analytic(name="naive-ode-oracle", sample=ode),
        analytic(name="naive-sde-oracle", sample=sde),
    )
