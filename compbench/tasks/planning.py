"""A robot arm carries a cube between quadrants of a table; two silos have play data, and diagonal moves are never seen.

planning-iid     plans of a robot arm; each recorded segment lies in a silo drawn uniformly
planning-noniid  plans of a robot arm; one silo has the moves TL-TR and TR-BR, the other TL-BL and BL-BR
planning-diagonal  plans of a robot arm; all segments lie in one silo, so that methods without silos compete

A second plan is given the cube's place at all frames at which it is known to lie still (0 to 3 at stride 4), and one stochastic
rule applies given entries to all methods' samples (`compbench.flow.inpainting`).  With one frame and each method's own solver,
second plans of ODE solvers missed the cube in 11 to 28 % of feasible plans, those of SDE solvers on the same network in 4 to 8 %.
A network that was trained for 2,000 steps on a fifth of the play has 0.83 of seen moves with an ODE solver (0.49 before) and 0.93
with an SDE solver, which is the ceiling.

Decentralized Compositional Flow Matching (DCFM), section 6.2, appendix B and table 2, on OGBench's `cube-single-play`
(Park et al. 2025).  A sample is a plan [states, targets]; the referee executes it in MuJoCo and scores the outcome.
"""

from __future__ import annotations

from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.api.federation import Federation
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Evaluation, Event, Problem, Sampler, Source, Task, TaskContext
from compbench.tasks.planning_rules import (
    FIRST_WEIGHT,
    HOLDOUT,
    NUM_CHANNELS,
    NUM_EPISODES,
    OWNERS,
    SECOND_WEIGHT,
    SPACE,
    TRIALS,
    VERSION,
    WINDOW,
    Settings,
    Split,
    still_frames,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Generator

    from compbench.data.cube_segments import Segments
    from compbench.tasks.planning_evaluation import PlanningEvaluation

CITATION = "Decentralized Compositional Flow Matching"

BUDGETS = {
    "paper": Budget(
        train_steps=50_000,
        batch_size=128,
        width=128,
        prediction="denoised",
        learning_rate=3e-4,
        final_learning_rate=1e-5,
        warmup_steps=1000,
        ema_decay=0.999,
        sample_steps=100,
    ),
    "quick": Budget(
        train_steps=1500,
        batch_size=64,
        width=16,
        prediction="denoised",
        learning_rate=2e-3,
        warmup_steps=50,
        ema_decay=0.99,
        sample_steps=20,
    ),
    "smoke": Budget(
        train_steps=15,
        batch_size=16,
        width=16,
        prediction="denoised",
        learning_rate=2e-3,
        ema_decay=0.9,
        sample_steps=3,
    ),
}
BUDGETS["standard"] = BUDGETS["quick"].model_copy(
    update={
        "train_steps": 6000,
        "width": 32,
        "learning_rate": 7e-4,
        "warmup_steps": 100,
        "ema_decay": 0.997,
        "sample_steps": 40,
    }
)
"""Steps are counted per silo, over all its stages together; the paper states no budget."""


def inpainting(model: object, generator: Generator) -> AbstractContextManager[None]:
    """Second plans: one stochastic rule for all methods, at the guidance weight of second plans."""
    from compbench.flow.inpainting import stochastic

    return stochastic(model, generator, weight=SECOND_WEIGHT)


def make_task(split: Split, settings: Settings | None = None) -> Task:
    """A task of the family."""
    settings = settings or Settings()
    how = {
        "iid": "two silos (segments shared out evenly)",
        "noniid": "two silos (each has other moves)",
        "diagonal": "all in one place",
    }
    return Task(
        name=f"planning-{split}",
        family="planning",
        core=split == "noniid",
        files=("cube-single-play-v0.npz",),
        extra="planning",
        summary=f"plans of a robot arm, {how[split]}; diagonal moves never seen",
        space=SPACE,
        holdout=HOLDOUT,
        event=Event("trajectory", (NUM_CHANNELS, WINDOW // settings.stride)),
        budgets=BUDGETS,
        source=_source,
        open=partial(OpenPlanning, split, settings),
        primary="heldout_success_rate",
        silos=1 if split == "diagonal" else 2,
        guidance_weights=dict.fromkeys(BUDGETS, FIRST_WEIGHT),
        settings=settings,
        configure=lambda changed: make_task(split, changed),
        citation=CITATION + ", section 6.2 and table 2",
        version=VERSION,
        inpaint=inpainting,
        notes=[
            "a plan has 96 control steps; it begins and ends with the arm raised over the table and has one pick and place",
            "success: the plan is feasible, and the cube ends within 4 cm of the plan's goal after an ordinary reset and a "
            "second plan, which is given the cube's position and the goal",
            "success_rate_whole_state: the second plan is also given the arm's pose; success_rate_direct: the first plan is "
            "executed from its own start; ceilings: recorded segments executed in the same way",
            f"a second plan is given the cube's place at its first frames ({still_frames(settings.stride)} of them); guidance "
            f"weight {FIRST_WEIGHT:g} for first plans and {SECOND_WEIGHT:g} for second ones; one stochastic rule applies given "
            "entries to all methods' samples",
        ],
        paper_notes=[
            "follows section 6.2, appendix B and table 2: quadrants, 12 of 16 pairs seen, two silos with figure 8's moves, the "
            "test of feasibility, execution with Janner et al.'s inpainting, three groups of 100 trials, population deviation",
            "chosen: the second plan is given the cube while it lies still (in a second score also the arm at first); the "
            "paper says only that plans are inpainted",
            "chosen: horizon (96 steps of 50 ms in 24 frames), how play is cut into segments, tolerance on the floor (1 cm), "
            "success (4 cm, the environment's own), and which silo has moves within a quadrant: the paper states none of them",
            "chosen: targets instead of relative actions; networks that predict the denoised plan; network, steps, batches, "
            "rates, solver, and every weight and mask of the methods: the paper states none of them",
            "without the official file, 1000 episodes of play are generated with OGBench's oracle",
        ],
    )


def _source(folder: Path, asked: str) -> Source:
    from compbench.data.cube_trajectories import choose

    return choose(folder, asked)


class OpenPlanning:
    """The task with its segments loaded."""

    def __init__(self, split: Split, settings: Settings, ctx: TaskContext) -> None:
        import torch

        from compbench.data.cube_segments import segments
        from compbench.data.cube_trajectories import load

        self.split, self.settings, self.ctx = split, settings, ctx
        episodes = settings.episodes or NUM_EPISODES[ctx.preset]
        trajectories = load(
            ctx.source,
            ctx.data,
            ctx.cache,
            episodes=episodes,
            seed=settings.data_seed,
            num_workers=torch.get_num_threads(),
            progress=lambda done, total: ctx.progress("play of the oracle", done, total),
        )
        self.segments: Segments = segments(trajectories, stride=settings.stride, episodes=episodes)

    def problem(self, budget: Budget) -> Problem:
        """The seen segments, in two silos or in one."""
        import torch

        from compbench.data.cube_segments import normalised
        from compbench.data.silo_shards import TensorSilo, check_marginals, iid_owners

        seen = [row for row, cell in enumerate(self.segments.cells.tolist()) if tuple(cell) not in HOLDOUT.cells]
        plans = torch.from_numpy(normalised(self.segments.plans[seen])).to(self.ctx.device)
        condition = torch.from_numpy(self.segments.cells[seen])
        if self.split == "diagonal":
            owner = torch.zeros(len(seen), dtype=torch.long)
        elif self.split == "iid":
            owner = iid_owners(len(seen), 2, torch.Generator().manual_seed(self.settings.data_seed + 17))
        else:
            cells = [tuple(cell) for cell in condition.tolist()]
            owner = torch.tensor([OWNERS[cell][row % len(OWNERS[cell])] for row, cell in enumerate(cells)], dtype=torch.long)
        silos = [
            TensorSilo(f"silo {number + 1}", plans[owner == number], condition[owner == number].to(self.ctx.device))
            for number in range(1 if self.split == "diagonal" else 2)
        ]
        check_marginals([silo.condition for silo in silos], SPACE)
        return Problem(
            SPACE,
            Event("trajectory", tuple(self.segments.plans.shape[1:])),
            Federation(silos),
            budget,
            HOLDOUT,
            composed=(0, 1),
            guidance_weight=FIRST_WEIGHT,
        )

    def prepare(self) -> None:
        self.evaluation.prepare()

    def evaluate(self, sampler: Sampler) -> Evaluation:
        return self.evaluation.evaluate(sampler)

    @cached_property
    def evaluation(self) -> PlanningEvaluation:
        """Judges and scores; created on first use, which happens only in the referee."""
        from compbench.tasks.planning_evaluation import PlanningEvaluation

        trials, frames = TRIALS[self.ctx.preset], still_frames(self.settings.stride)
        return PlanningEvaluation(self.segments, self.settings, HOLDOUT, self.ctx, trials=trials, frames=frames)


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return make_task("iid"), make_task("noniid"), make_task("diagonal")
