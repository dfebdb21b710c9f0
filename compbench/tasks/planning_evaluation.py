"""Scores of planned trajectories: the shares that are feasible and that succeed when executed, next to recorded segments.

The referee executes a feasible plan in three ways, each with its own score (`EXECUTIONS`):

    success_rate              ranks.  The environment is reset to the plan's start and goal as in any evaluation, so the arm has
                              another pose and the cube lies a centimetre off and rotated.  The method then plans again, given the
                              cube's position while it lies still and the goal at the end.  The arm's pose is not given; the arm
                              first moves to where the second plan begins.
    success_rate_whole_state  uses the same reset and also gives the arm's pose, as Janner et al. 2022 give the whole first state.
    success_rate_direct       puts arm and cube where the plan begins and makes no second plan.

DCFM, section 6.2.  The ceilings are recorded segments executed in the same ways (`planning_recorded`).
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy
import torch
from torch import Tensor

from compbench.api.context import seed_of
from compbench.api.interfaces import Evaluation, Sampler, Score, TaskContext
from compbench.data.cube_segments import CUBE, NUM_STATE_CHANNELS, REST_HEIGHT, Segments, feasible, in_metres, normalised
from compbench.data.process_pool import Failed, Workers
from compbench.registry.meaning import of_definitions
from compbench.system.files import held
from compbench.tasks.planning_execution import THRESHOLD, Outcome, Trial, carry_out
from compbench.tasks.planning_picture import panels
from compbench.tasks.planning_recorded import RecordedPlans
from compbench.tasks.split_scores import count_cells

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compbench.api.factors import Holdout
    from compbench.tasks.planning_rules import Settings

NUM_GROUPS = 3
REPLAYS = {"smoke": 4, "quick": 100, "standard": 100, "paper": 300}
"""Number of recorded segments of a split that are executed for the ceilings."""


EXECUTIONS: dict[str, slice | None] = {"": CUBE, "_whole_state": slice(0, NUM_STATE_CHANNELS), "_direct": None}
"""Channels of the first frame that the second plan is given, by the score's suffix; None: the first plan is executed."""


class TrialResults(NamedTuple):
    """The N trials of one split.

    Attributes:
        cells: the requested pairs, (N, 2).
        plans: first plans in metres, (N, 17, frames).
        feasible, trivial: bool (N,).
        outcomes: the outcomes of each of `EXECUTIONS`, None where a plan is not feasible.
    """

    cells: numpy.ndarray
    plans: numpy.ndarray
    feasible: numpy.ndarray
    trivial: numpy.ndarray
    outcomes: dict[str, list[Outcome | Failed | None]]


class PlanningEvaluation:
    """Judges plans of the seen and the held-out pairs.

    Args:
        trials: number of trials of one group and split.
        frames: number of first frames of a second plan in which the cube's place is given.
    """

    def __init__(
        self, segments: Segments, settings: Settings, holdout: Holdout, ctx: TaskContext, *, trials: int, frames: int
    ) -> None:
        self.segments, self.settings, self.holdout, self.preset, self.ctx = segments, settings, holdout, ctx.preset, ctx
        self.trials, self.frames = trials, frames
        self.cells = {"heldout": holdout.cells, "seen": holdout.seen_cells}

    def prepare(self) -> None:
        """Execute recorded segments for the ceilings, or load their outcomes from the cache."""
        self._ceilings()

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Rates of both splits, and a picture of the executed plans from above."""
        ceilings, scores, judged = self._ceilings(), [], {}
        with Workers(carry_out, torch.get_num_threads()) as workers:
            for split, cells in self.cells.items():
                asked = _in_turn(cells, NUM_GROUPS, self.trials)
                judged[split] = self._judge(split, asked, sampler, workers, seed=self.ctx.seed)
                scores += self._scores(split, judged[split], ceilings[split])
        picture = panels(
            numpy.concatenate([part.cells for part in judged.values()]),
            numpy.concatenate([part.plans for part in judged.values()]),
            [outcome for part in judged.values() for outcome in part.outcomes[""]],
            heldout=self.holdout.cells,
        )
        return Evaluation(tuple(scores), {"samples": picture})

    def _judge(self, split: str, cells: numpy.ndarray, sampler: Sampler, workers: Workers, *, seed: int) -> TrialResults:
        """Request plans of pairs (N, 2), and execute the feasible ones in all three ways."""
        condition = torch.from_numpy(cells)
        plans = in_metres(sampler(condition, stream=split).numpy())
        able = feasible(plans, cells, tolerance=self.settings.tolerance)
        rows = numpy.flatnonzero(able)
        trivial = able & (numpy.linalg.norm(plans[:, CUBE, -1] - plans[:, CUBE, 0], axis=1) <= THRESHOLD)
        direct = [self._trial(plans[row], None) for row in rows]
        reset = [self._trial(plans[row], seed_of(f"reset {seed} {split} {row}", num_bytes=4)) for row in rows]
        states = workers.map([trial._replace(plan=None) for trial in reset])
        outcomes = {}
        for suffix, channels in EXECUTIONS.items():
            stream = f"{split}{suffix} inpaint"
            trials = direct
            if channels is not None:
                trials = _planned_again(stream, channels, self.frames, condition[rows], reset, states, sampler)
            outcomes[suffix] = _spread(self._run(f"{split}{suffix}", trials, workers), rows, len(able))
        return TrialResults(cells, plans, able, trivial, outcomes)

    def _trial(self, plan: numpy.ndarray, seed: int | None) -> Trial:
        goal = numpy.array([*plan[CUBE, -1][:2], REST_HEIGHT])
        return Trial(plan, goal=goal, start=plan[CUBE, 0].copy(), seed=seed, stride=self.settings.stride)

    def _run(self, stage: str, trials: list[Trial], workers: Workers) -> list[Outcome | Failed]:
        return workers.map(trials, progress=lambda done, total: self.ctx.progress(f"execute {stage}", done, total))

    def _scores(self, split: str, judged: TrialResults, ceilings: dict[str, float]) -> list[Score]:
        groups = _successes(judged.outcomes[""]).reshape(NUM_GROUPS, -1).mean(axis=1)
        failed = [outcome for part in judged.outcomes.values() for outcome in part if isinstance(outcome, Failed)]
        why = f"{len(failed)} executions failed in the simulator: {failed[0].reason}"[:500] if failed else ""
        rates = [
            self._score(split, "success_rate", _successes(part).mean(), suffix, ceiling=ceilings.get(suffix), reason=why)
            for suffix, part in judged.outcomes.items()
        ]
        counts = count_cells(torch.from_numpy(judged.cells), torch.from_numpy(_successes(judged.outcomes[""]) > 0))
        rates[0] = rates[0].model_copy(update={"by_cell": counts})
        replayed = [
            self._score(split, "execution_ceiling", ceilings[suffix], suffix, n=int(ceilings["n"]))
            for suffix in EXECUTIONS
            if suffix in ceilings
        ]
        return [
            *rates,
            self._score(split, "success_spread", groups.std()),
            self._score(split, "feasibility", judged.feasible.mean(), ceiling=ceilings.get("feasible")),
            self._score(split, "trivial_rate", judged.trivial.mean()),
            *replayed,
        ]

    def _score(
        self,
        split: str,
        metric: str,
        share: float,
        suffix: str = "",
        *,
        n: int = 0,
        ceiling: float | None = None,
        reason: str = "",
    ) -> Score:
        known = self.ctx.metrics.get(metric)
        return Score(
            name=f"{split}_{metric}{suffix}",
            metric=metric,
            metric_version=known.version if known else 1,
            split="heldout" if split == "heldout" else "seen",
            value=100 * float(share),
            n=n or NUM_GROUPS * self.trials,
            unit="%",
            direction="lower" if metric in ("success_spread", "trivial_rate") else "higher",
            ceiling=None if ceiling is None else 100 * ceiling,
            primary=split == "heldout" and metric == "success_rate" and not suffix,
            reason=reason,
        )

    def _ceilings(self) -> dict[str, dict[str, float]]:
        """For each split, the share of recorded segments that are feasible, and of those that succeed in each of `EXECUTIONS`."""
        facts = [of_definitions(type(self)), self.ctx.source.fingerprint, self.settings.model_dump(), self.preset, self.frames]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
        path = self.ctx.cache / f"planning-ceilings-{digest}.json"
        with held(path):
            if path.is_file():
                try:
                    return json.loads(path.read_text("ascii"))
                except ValueError:
                    path.unlink()  # a damaged cache file is written again
            with Workers(carry_out, torch.get_num_threads()) as workers:
                found = {split: self._replayed(split, workers) for split in self.cells}
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps(found), "ascii")
            os.replace(part, path)
            return found

    def _replayed(self, split: str, workers: Workers) -> dict[str, float]:
        """Scores of recorded segments in place of a method's plans; only {"n": 0} if there are no segments."""
        recorded = RecordedPlans(self.segments)
        cells = recorded.cells(self.cells[split])
        if not cells:
            return {"n": 0}
        asked = _in_turn(cells, 1, REPLAYS[self.preset])
        judged = self._judge(f"recorded {split}", asked, recorded, workers, seed=0)  # the task's ceilings, not a run's
        rates = {suffix: float(_successes(outcomes).mean()) for suffix, outcomes in judged.outcomes.items()}
        return {"n": len(judged.cells), "feasible": float(judged.feasible.mean()), **rates}


def _in_turn(cells: Sequence[tuple[int, ...]], groups: int, count: int) -> numpy.ndarray:
    """Pairs of all trials, group after group; each group cycles through the cells, (groups * count, 2)."""
    return numpy.array([cells[place % len(cells)] for _ in range(groups) for place in range(count)])


def _planned_again(
    stream: str,
    channels: slice,
    frames: int,
    condition: Tensor,
    trials: list[Trial],
    states: list[numpy.ndarray | Failed],
    sampler: Sampler,
) -> list[Trial]:
    """The trials with second plans that are given the state after the reset and the goal; one request asks for all of them.

    Args:
        stream: the request's stream.
        channels: the channels of the first frame that are given.
        frames: number of first frames in which the cube's position is given, while it lies still.
        condition: pairs, (N, 2).
        trials: trials to execute after a reset.
        states: the state after each reset, (11,); if a reset failed, the first state of its plan (the execution then fails too).
        sampler: the contestant.
    """
    if not trials:
        return []
    known = numpy.stack([_plan_of(trial) for trial in trials])
    for row, (trial, state) in enumerate(zip(trials, states, strict=True)):
        if not isinstance(state, Failed):
            known[row, channels, 0] = state[channels]
            known[row, CUBE, :frames] = state[CUBE, None]
        known[row, CUBE, -1] = trial.goal
    mask = torch.zeros(known.shape, dtype=torch.bool)
    mask[:, channels, 0] = mask[:, CUBE, :frames] = mask[:, CUBE, -1] = True
    given = torch.from_numpy(normalised(known)).float()
    plans = in_metres(sampler(condition, stream=stream, known=given, known_mask=mask).numpy())
    return [trial._replace(plan=plan) for trial, plan in zip(trials, plans, strict=True)]


def _plan_of(trial: Trial) -> numpy.ndarray:
    """The plan of a trial; the trial must have one."""
    assert trial.plan is not None
    return trial.plan


def _successes(outcomes: list[Outcome | Failed | None]) -> numpy.ndarray:
    """Which trials succeeded, float (N,); plans that are infeasible or failed in the simulator count as failures."""
    return numpy.array([float(isinstance(outcome, Outcome) and outcome.succeeded) for outcome in outcomes])


def _spread(outcomes: list[Outcome | Failed], rows: numpy.ndarray, count: int) -> list[Outcome | Failed | None]:
    """The outcomes at the rows of their trials, None elsewhere."""
    places: list[Outcome | Failed | None] = [None] * count
    for row, outcome in zip(rows, outcomes, strict=True):
        places[row] = outcome
    return places
