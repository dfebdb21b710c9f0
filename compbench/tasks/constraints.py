"""Composed constraints: each is learnt alone, all are requested at once, and each answer is checked exactly, without a judge.

queens-8    eight queens on a board; rows, columns, diagonals and antidiagonals are seen one at a time
queens-10   ten queens
colour-er   three colours of a random graph of 20 vertices; matchings of its edges are seen one at a time
sat-20      20 variables and 50 clauses of three; sets of clauses without a shared variable are seen one at a time

A factor is a group of constraints, on or off.  In the base p_0 all groups are off.  A method sees samples of p_0 and of each p_i,
which is p_0 given group i alone, and is asked for p_0 given all groups: p_0 prod_i (p_i / p_0).  The puzzles are those of
    Generalizable Reasoning through Compositional Energy Minimization (2025) as others report them; the sizes, densities and
    relaxation to numbers are ours.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from compbench.api.context import Batch
from compbench.api.factors import Factor, FactorSpace, Holdout
from compbench.api.federation import Federation
from compbench.api.hookspecs import hookimpl
from compbench.api.interfaces import Budget, Evaluation, Event, MethodSettings, Problem, Sampler, Source, Task, TaskContext
from compbench.data import puzzles
from compbench.data.puzzles import Puzzle
from compbench.flow.transfer import send
from compbench.system.errors import CompbenchError
from compbench.tasks.gaussian import BUDGETS as PLANE_BUDGETS

if TYPE_CHECKING:
    from torch import Generator

    from compbench.data.constraint_laws import BlockLaw, Combination

CITATION = "Generalizable Reasoning through Compositional Energy Minimization"
MOST_GROUPS = 12
"""Largest number G of groups of constraints: the lattice has 2^G cells."""


class Settings(MethodSettings):
    """Settings of these tasks, changed by `--set task.NAME=VALUE`."""

    size: int = Field(ge=4, le=64, description="queens, vertices or variables")
    train_points: int = Field(10_000, ge=1, le=1_000_000, description="N: training answers of each source, drawn once per seed")


class RandomSettings(Settings):
    """Settings of puzzles on a random graph or formula."""

    density: float = Field(gt=0, le=20, description="neighbours per vertex, or clauses per variable")
    puzzle_seed: int = Field(0, ge=0, le=2**31, description="seed of the graph or the formula, independent of the run's seed")


class Kind(NamedTuple):
    """A task's puzzle: what it is called, its settings, and its picture."""

    puzzle: Literal["queens", "colours", "clauses"]
    settings: Settings


KINDS = {
    "queens-8": Kind("queens", Settings(size=8)),
    "queens-10": Kind("queens", Settings(size=10)),
    "colour-er": Kind("colours", RandomSettings(size=20, density=3.0)),
    "sat-20": Kind("clauses", RandomSettings(size=20, density=2.5)),
}

QUICK = PLANE_BUDGETS["quick"].model_copy(update={"gradient_clip": 1.0})
BUDGETS = {
    "smoke": QUICK.model_copy(update={"train_steps": 60, "batch_size": 66, "width": 32, "ema_decay": 0.9, "sample_steps": 20}),
    "quick": QUICK,
    "standard": QUICK,
    "paper": QUICK.model_copy(update={"train_steps": 100_000, "width": 1024, "sample_steps": 500}),
}
"""`standard` trains like `quick`: of single groups, a fit four times as long learns hardly more
(docs/investigations/constraints-under-noise.md)."""


def puzzle_of(kind: Kind, settings: Settings) -> Puzzle:
    """The puzzle of a task's settings.  Raises CompbenchError if it cannot be made or has too many groups."""
    if not isinstance(settings, RandomSettings):
        return puzzles.queens(settings.size)
    make = puzzles.colouring if kind.puzzle == "colours" else puzzles.satisfiability
    made = make(settings.size, settings.density, settings.puzzle_seed)
    if len(made.groups) > MOST_GROUPS:
        raise CompbenchError(
            f"task.size={settings.size} with task.density={settings.density:g} needs {len(made.groups)} groups of constraints; "
            f"a task has at most {MOST_GROUPS}: lower task.density."
        )
    return made


def make_task(name: str, settings: Settings | None = None) -> Task:
    """A task of the family.  Raises CompbenchError if its puzzle cannot be made."""
    kind = KINDS[name]
    settings = settings or kind.settings
    puzzle = puzzle_of(kind, settings)
    space = FactorSpace([Factor(group, 2, ("off", "on")) for group in puzzle.groups])
    several = tuple(cell for cell in product((0, 1), repeat=len(space)) if sum(cell) > 1)
    holdout = Holdout(space, tuple(range(len(space))), several)
    event = Event("vector", (puzzle.dimension,))
    said = {"queens": "queens, lines seen one kind at a time", "colours": "vertices in three colours, edges seen in matchings"}
    return Task(
        name=name,
        summary=f"{settings.size} {said.get(kind.puzzle, 'variables, clauses seen in sets without a shared variable')}",
        family="constraints",
        core=True,
        space=space,
        holdout=holdout,
        event=event,
        budgets=BUDGETS,
        source=_source,
        open=partial(OpenPuzzle, kind, settings, puzzle, space, holdout, event),
        primary="heldout_validity",
        base=(0,) * len(space),
        offers=("scores",),
        guidance_weights=dict.fromkeys(BUDGETS, 1.0),
        settings=settings,
        version=3,
        configure=lambda changed: make_task(name, changed),
        metrics=(),
        paper_notes=(
            "chosen: all of this preset; we did not have the paper's text and know it only from others' reports.",
            "changed: constraints are learnt as distributions of whole answers with one group on, not as energies of one line.",
        ),
        citation=CITATION,
        notes=(
            "an answer is valid if it breaks no constraint; a number above 0 counts as 1.  unique counts each valid answer once.",
            "held-out scores are for all constraints together, and seen scores for each group alone.",
            "violations counts what is wrong in each group: a vertex without exactly one colour is wrong in each group of edges "
            "and once more, so it counts several times, and an edge between equal colours once.",
            "greedy_repair is not a score of the method: it is the validity of answers that are drawn without constraints and "
            "then repaired, one change at a time, by a search that knows the constraints.  A composition of models has to "
            "beat it.",
        ),
    )


class SourcePools:
    """N answers of each source, drawn once; a batch has equally many of each, in the sources' order."""

    name = "all"

    def __init__(self, laws: dict[Combination, BlockLaw], count: int, ctx: TaskContext) -> None:
        import torch

        generator = ctx.generator("training answers")
        self.points = torch.stack([law.sample(count, generator).float() for law in laws.values()]).to(ctx.device)  # (S, N, D)
        self.conditions = torch.tensor(list(laws), device=ctx.device)  # (S, F)
        self.size = len(laws) * count

    def batch(self, size: int, generator: Generator) -> Batch:
        """A batch of `size` rows; if the number of sources does not divide it, the first sources have one more."""
        import torch

        num_sources, count, _ = self.points.shape
        source = torch.arange(size) * num_sources // size
        place = torch.randint(count, (size,), generator=generator)
        source, place = send(source, self.points.device), send(place, self.points.device)
        return Batch(self.points[source, place], self.conditions[source])


class OpenPuzzle:
    """The task with its puzzle made."""

    def __init__(
        self, kind: Kind, settings: Settings, puzzle: Puzzle, space: FactorSpace, holdout: Holdout, event: Event, ctx: TaskContext
    ) -> None:
        self.kind, self.settings, self.puzzle, self.ctx = kind, settings, puzzle, ctx
        self.space, self.holdout, self.event = space, holdout, event

    def problem(self, budget: Budget) -> Problem:
        from compbench.data.constraint_laws import BlockOracle, laws_of

        laws = laws_of(self.puzzle)
        return Problem(
            space=self.space,
            event=self.event,
            federation=Federation([SourcePools(laws, self.settings.train_points, self.ctx)]),
            budget=budget,
            holdout=self.holdout,
            base=(0,) * len(self.space),
            composed=self.holdout.factors,
            oracle=BlockOracle(laws, self.ctx.device),
        )

    def prepare(self) -> None:
        """Do nothing: no judge is needed."""

    def evaluate(self, sampler: Sampler) -> Evaluation:
        from compbench.tasks.constraints_evaluation import evaluate

        return evaluate(sampler, self.puzzle, self.kind.puzzle, self.ctx)


def _source(folder: Path, asked: str) -> Source:
    if asked == "official":
        raise CompbenchError("puzzles are drawn from their own laws and have no official files; use --source embedded.")
    return Source("embedded", "exact sampler", "puzzles-1")


@hookimpl
def compbench_tasks() -> tuple[Task, ...]:
    return tuple(make_task(name) for name in KINDS)
