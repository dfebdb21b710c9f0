"""Decentralized Compositional Flow Matching: experts made independent across silos (A), or one student of them (B).

dcfm-a  Experts with a conditional-independence penalty across silos: sampled as a mixture (equations 11 to 13).
dcfm-b  One student of the silos' experts, made conditionally independent: taught on their paths (equations 14 to 16).

Both start from experts that know only their own silo (equations 7 to 10).  A sends every expert to all peers, and later to the
server that samples from them.  B sends each expert once, with labels as bytes.  Its server then trains the student for as many
steps as one silo has, in addition to the silos' steps; the record notes the number (`fit server_steps`).

Theirs: the paper states neither the lengths of the stages nor lambda.
Ours: the first stage has three quarters of A's steps, and in every stage lambda grows linearly from 0 to 1.
Why: peers are frozen when they are sent, and the penalty pulls an expert towards their answers, so an expert should follow its
own data first; the values were chosen on seen combinations (experiments/dcfm_stages.py).

Theirs: a peer answers for every condition (equation 11).
Ours: it does not answer for a value that its silo never saw; `ask_strangers=True` is the paper's.
Why: an untrained embedding has no meaning.

Theirs: the paper states no shares of the masks (equation 7).
Ours: the shares are 0.7 whole conditions, 0.2 single factors and 0.1 NULL.
Why: some values had to be chosen; all silo rows have these.

Size: dcfm-a samples from the experts of all silos, and each is as large as `mono`: with two silos there are 2.0 times the
parameters of `factored`, with ten 10.0 times.  A silo cannot see the data of others, so its expert has to be a whole network.
dcfm-b samples from one student of the size of `mono`.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Generator, Tensor

from compbench import Context, LentSilo, Method, Problem, hookimpl
from compbench.api.context import Steps
from compbench.flow.experts import Experts
from compbench.flow.independence import Ramp, TeacherBatch, peer_loss, student_loss
from compbench.flow.masking import draw_masks
from compbench.flow.mixture import Mixture
from compbench.flow.nets import VelocityNet
from compbench.flow.silos import (
    NUM_LABELS,
    DecentralisedSettings,
    evaluations_of_experts,
    evaluations_of_network,
    first_stage,
    known_values,
    label_router,
    local_experts,
    network,
    network_of,
    sample_experts,
    sample_network,
    split,
    untrained_mixture,
)
from compbench.flow.teachers import TeachersPaths
from compbench.flow.train import train


class Settings(DecentralisedSettings):
    local_ci: bool = Field(True, description="local conditional-independence penalty in stage I (eq. 9)")
    ramp: float = Field(
        1.0, ge=0, le=1, description="share of each stage over which lambda grows from 0 to ci_weight (not in the paper)"
    )


class PeerSettings(Settings):
    second_share: float = Field(
        0.25, gt=0, lt=1, description="share of a silo's steps with peers; experiments/dcfm_stages.py (not in the paper)"
    )
    peer_weight: float = Field(1.0, ge=0, le=20, description="w of the peer composition (eq. 11)")
    ask_strangers: bool = Field(
        False, description="also use a peer's answer for a value that its silo never saw, as eq. 11 is written"
    )


def fit_experts(settings: PeerSettings, problem: Problem, ctx: Context) -> Mixture:
    """Stage I, an all-gather, then more training of every silo's expert with frozen peers; the stages share the silo's steps."""
    silos, sizes = len(problem.federation), problem.space.sizes
    first, second = split(problem.budget, settings.second_share)
    steps = Steps(ctx.progress, silos * (first.train_steps + second.train_steps))
    alone = {"local_ci": settings.local_ci, "ramp": settings.ramp}
    make, _ = first_stage(settings, problem, ctx, budget=first, steps=steps, recipients=max(1, silos - 1), **alone)

    def beside_peers(expert: VelocityNet, silo: LentSilo, received: dict[str, Tensor], own: Context) -> None:
        peers = Experts(make(), [network_of(received, k) for k in range(silos)]).to(own.device)
        counts = torch.stack([received[f"{k}.counts"] for k in range(silos)])
        ramp = Ramp(silo, round(settings.ramp * second.train_steps))
        loss = peer_loss(
            settings.masking,
            settings.ci_weight,
            own=silo.number,
            peers=peers,
            knows=None if settings.ask_strangers else known_values(counts, sizes).to(own.device),
            weight=settings.peer_weight,
            ramp=ramp.share,
        )
        train(expert, loss, ramp, second, own)

    trained = local_experts(make, beside_peers, problem, ctx, stage="peers", steps=steps, goes_on=True)
    experts = Experts(make(), trained.states)
    return Mixture(experts, label_router(trained, problem), sample_steps=problem.budget.sample_steps).to(ctx.device)


def build_experts(settings: PeerSettings, problem: Problem) -> Mixture:
    """The untrained mixture."""
    return untrained_mixture(network(settings, problem), problem)


def fit_student(settings: Settings, problem: Problem, ctx: Context) -> VelocityNet:
    """Stage I, one transfer of each expert, and a student that the server trains with the budget of one silo."""
    budget = problem.budget
    steps = Steps(ctx.progress, (len(problem.federation) + 1) * budget.train_steps)
    alone = {"local_ci": settings.local_ci, "ramp": settings.ramp}
    make, trained = first_stage(settings, problem, ctx, budget=budget, steps=steps, num_labels=NUM_LABELS, **alone)
    student = make()
    teachers = Experts(student, trained.states).to(ctx.device)
    sizes = torch.tensor(problem.federation.sizes, dtype=torch.float32)
    paths = TeachersPaths(teachers, sizes, trained.labels, shape=problem.event.shape, num_points=budget.sample_steps, ctx=ctx)
    ramp = Ramp(paths, round(settings.ramp * budget.train_steps))
    ctx.notes["server_steps"] = budget.train_steps

    def loss(student, taught: TeacherBatch, generator: Generator) -> Tensor:
        kind = draw_masks(len(taught.t), taught.condition.shape[1], settings.masking, generator)
        return student_loss(student, taught, ramp.share() * settings.ci_weight, kind)

    return train(student, loss, ramp, budget, ctx.part("student", progress=steps.part()))


@hookimpl
def compbench_methods() -> tuple[Method, ...]:
    return (
        Method(
            name="dcfm-a",
            settings=PeerSettings,
            fit=fit_experts,
            sample=sample_experts,
            build=build_experts,
            evaluations=evaluations_of_experts,
            pools_silos=False,
            version=3,
        ),
        Method(
            name="dcfm-b",
            settings=Settings,
            fit=fit_student,
            sample=sample_network,
            build=network,
            evaluations=evaluations_of_network,
            pools_silos=False,
            version=4,
        ),
    )
