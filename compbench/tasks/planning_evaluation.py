"""Scores of planned trajectories: which are feasible, which succeed when they are carried out, and what recorded ones do.

`direct` puts arm and cube where a plan begins.  `inpaint`, which ranks, resets the environment to the plan's start and goal
as any evaluation would (another arm pose, the cube a centimetre off), asks for all plans once more around the state that
was found and the goal, in one batch, and carries those out.  DCFM, section 6.2, after Janner et al. 2022.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, NamedTuple

import numpy
import torch
from torch import Generator, Tensor

from compbench.data.cube_segments import CUBE, NUM_STATE_CHANNELS, REST_HEIGHT, Segments, feasible, in_metres, normalised
from compbench.data.processes import Failed, Workers
from compbench.files import held
from compbench.interfaces import Evaluation, Sampler, Score, TaskContext
from compbench.tasks.planning_execution import THRESHOLD, Outcome, Trial, carry_out
from compbench.tasks.planning_picture import panels

if TYPE_CHECKING:
    from compbench.factors import Holdout
    from compbench.tasks.planning_settings import Settings

NUM_GROUPS = 3
TRIALS = {"smoke": 4, "quick": 24, "paper": 100}
"""Trials of one group and split, spread over the split's cells; three integer percentages fit every figure of table 2."""

REPLAYS = {"smoke": 4, "quick": 24, "paper": 100}
"""Recorded segments of a split that are carried out for the ceilings."""

CEILING_VERSION = 1
"""Goes up when the execution of plans changes."""


class Judged(NamedTuple):
    """The trials of one split; arrays of N.

    Attributes:
        cells: what was asked, (N, 2).
        plans: first plans in metres, (N, 17, frames).
        feasible, trivial: bool.
        direct, inpainted: outcomes, None where a plan is not feasible.
    """

    cells: numpy.ndarray
    plans: numpy.ndarray
    feasible: numpy.ndarray
    trivial: numpy.ndarray
    direct: list[Outcome | Failed | None]
    inpainted: list[Outcome | Failed | None]


class PlanningReferee:
    """Judges plans of the seen and the held-out pairs."""

    def __init__(self, segments: Segments, settings: Settings, holdout: Holdout, preset: str, ctx: TaskContext) -> None:
        self.segments, self.settings, self.holdout, self.preset, self.ctx = segments, settings, holdout, preset, ctx
        self.cells = {"heldout": holdout.cells, "seen": holdout.seen_cells}

    def prepare(self) -> None:
        """Carry out recorded segments for the ceilings, or find what came of them in the cache."""
        self._ceilings()

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Rates of both splits, and the executed plans from above."""
        ceilings, scores, judged = self._ceilings(), [], {}
        with Workers(carry_out, torch.get_num_threads()) as workers:
            for split in self.cells:
                judged[split] = self._judge(split, sampler, workers)
                scores += self._scores(split, judged[split], ceilings[split])
        picture = panels(
            numpy.concatenate([part.cells for part in judged.values()]),
            numpy.concatenate([part.plans for part in judged.values()]),
            [outcome for part in judged.values() for outcome in part.inpainted],
            heldout=self.holdout.cells,
        )
        return Evaluation(tuple(scores), {"samples": picture})

    def _judge(self, split: str, sampler: Sampler, workers: Workers) -> Judged:
        cells = self._asked(split)
        condition = torch.from_numpy(cells)
        plans = in_metres(sampler(condition, stream=split).numpy())
        able = feasible(plans, cells, tolerance=self.settings.tolerance)
        rows = numpy.flatnonzero(able)
        trivial = able & (numpy.linalg.norm(plans[:, CUBE, -1] - plans[:, CUBE, 0], axis=1) <= THRESHOLD)
        trials = [self._trial(plans[row], None) for row in rows]
        direct = self._run(f"{split} direct", trials, workers)
        trials = [self._trial(plans[row], self._seed(f"{split} {row}")) for row in rows]
        trials = self._inpainted(split, condition[rows], trials, sampler, workers)
        inpainted = self._run(f"{split} inpaint", trials, workers)
        return Judged(cells, plans, able, trivial, _spread(direct, rows, len(able)), _spread(inpainted, rows, len(able)))

    def _inpainted(self, split: str, condition: Tensor, trials: list[Trial], sampler: Sampler, workers: Workers) -> list[Trial]:
        """The trials with plans from the state that their reset leads to, to their goal: one batch."""
        if not trials:
            return []
        starts = workers.map([trial._replace(plan=None) for trial in trials])
        known = numpy.stack([trial.plan for trial in trials])
        for row, (trial, start) in enumerate(zip(trials, starts, strict=True)):
            if not isinstance(start, Failed):  # else the trial will fail too
                known[row, :NUM_STATE_CHANNELS, 0] = start
            known[row, CUBE, -1] = trial.goal
        mask = torch.zeros(known.shape, dtype=torch.bool)
        mask[:, :NUM_STATE_CHANNELS, 0] = True
        mask[:, CUBE, -1] = True
        given = torch.from_numpy(normalised(known)).float()
        plans = in_metres(sampler(condition, stream=f"{split} inpaint", known=given, known_mask=mask).numpy())
        return [trial._replace(plan=plan) for trial, plan in zip(trials, plans, strict=True)]

    def _asked(self, split: str) -> numpy.ndarray:
        """Cells of all trials, group after group, each group through the split's cells in turn, (N, 2)."""
        cells = self.cells[split]
        count = TRIALS[self.preset]
        return numpy.array([cells[place % len(cells)] for _ in range(NUM_GROUPS) for place in range(count)])

    def _trial(self, plan: numpy.ndarray, seed: int | None) -> Trial:
        goal = numpy.array([*plan[CUBE, -1][:2], REST_HEIGHT])
        return Trial(plan, goal=goal, start=plan[CUBE, 0].copy(), seed=seed, stride=self.settings.stride)

    def _run(self, stage: str, trials: list[Trial], workers: Workers) -> list[Outcome | Failed]:
        return workers.map(trials, progress=lambda done, total: self.ctx.progress(f"execute {stage}", done, total))

    def _scores(self, split: str, judged: Judged, ceilings: dict[str, float]) -> list[Score]:
        groups = _successes(judged.inpainted).reshape(NUM_GROUPS, -1).mean(axis=1)
        failed = [outcome for outcome in (*judged.direct, *judged.inpainted) if isinstance(outcome, Failed)]
        why = f"{len(failed)} executions failed in the simulator: {failed[0].reason}"[:500] if failed else ""
        able, trivial = judged.feasible.mean(), judged.trivial.mean()
        return [
            self._score(split, "success_rate", groups.mean(), ceiling=ceilings["inpaint"], reason=why),
            self._score(split, "success_rate", _successes(judged.direct).mean(), "_direct", ceiling=ceilings["direct"]),
            self._score(split, "success_spread", groups.std()),
            self._score(split, "feasibility", able, ceiling=ceilings["feasible"]),
            self._score(split, "trivial_rate", trivial),
            self._score(split, "execution_ceiling", ceilings["direct"], n=int(ceilings["n"])),
            self._score(split, "execution_ceiling", ceilings["inpaint"], "_reset", n=int(ceilings["n"])),
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
            n=n or NUM_GROUPS * TRIALS[self.preset],
            unit="%",
            direction="lower" if metric in ("success_spread", "trivial_rate") else "higher",
            ceiling=None if ceiling is None else 100 * ceiling,
            primary=split == "heldout" and metric == "success_rate" and not suffix,
            reason=reason,
        )

    def _ceilings(self) -> dict[str, dict[str, float]]:
        """Of each split: the share of recorded segments that are feasible, and that succeed `direct` and after a reset.

        After a reset nothing is inpainted: the recorded plan is followed from another arm pose, its first target held.
        """
        facts = [CEILING_VERSION, self.ctx.source.fingerprint, self.settings.model_dump(), self.preset]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
        path = self.ctx.cache / f"planning-ceilings-{digest}.json"
        with held(path):
            if path.is_file():
                try:
                    return json.loads(path.read_text("ascii"))
                except ValueError:
                    path.unlink()  # damaged: a cache is made anew
            with Workers(carry_out, torch.get_num_threads()) as workers:
                found = {split: self._replayed(split, workers) for split in self.cells}
            part = path.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps(found), "ascii")
            os.replace(part, path)
            return found

    def _replayed(self, split: str, workers: Workers) -> dict[str, float]:
        own = {tuple(cell) for cell in self.cells[split]}
        rows = [row for row, cell in enumerate(self.segments.cells.tolist()) if tuple(cell) in own]
        generator = Generator().manual_seed(0)  # the ceilings are the task's, not a run's
        chosen = [rows[place] for place in torch.randperm(len(rows), generator=generator)[: REPLAYS[self.preset]].tolist()]
        plans, cells = self.segments.plans[chosen], self.segments.cells[chosen]
        direct = self._run(f"recorded {split}", [self._trial(plan, None) for plan in plans], workers)
        after_reset = self._run(f"recorded {split} reset", [self._trial(plan, row) for row, plan in enumerate(plans)], workers)
        return {
            "n": float(len(chosen)),
            "feasible": float(feasible(plans, cells, tolerance=self.settings.tolerance).mean()) if chosen else 0.0,
            "direct": float(_successes(direct).mean()) if chosen else 0.0,
            "inpaint": float(_successes(after_reset).mean()) if chosen else 0.0,
        }

    def _seed(self, purpose: str) -> int:
        """A seed of the environment's reset, the same for every method."""
        return int.from_bytes(hashlib.sha256(f"reset {self.ctx.seed} {purpose}".encode()).digest()[:4], "big")


def _successes(outcomes: list[Outcome | Failed | None]) -> numpy.ndarray:
    """Which trials succeeded, float (N,): not those that were not feasible or failed in the simulator."""
    return numpy.array([float(isinstance(outcome, Outcome) and outcome.succeeded) for outcome in outcomes])


def _spread(outcomes: list[Outcome | Failed], rows: numpy.ndarray, count: int) -> list[Outcome | Failed | None]:
    """Outcomes at their trials' places, None elsewhere."""
    places: list[Outcome | Failed | None] = [None] * count
    for row, outcome in zip(rows, outcomes, strict=True):
        places[row] = outcome
    return places
