"""Shots: N real examples of each held-out cell join the training data, `--set task.shots=N`.

    p(x, c) = 1 / (S + H) (sum over S seen cells of p_cell + sum over H held-out cells of (1/N) sum_i delta(x_i, c_i))

Each cell is drawn equally often, whatever its number of examples: with a share of N / (all examples), a few examples might never
be drawn in a fit.  The run's seed draws the examples; those of a smaller N are the first of a larger N; the record names them.
Everything else in the task stays as it is.  The same judges score the same cells, and never depend on a run's training data.  A
method gets the same `Problem.holdout`, so it composes as it does without shots.  Distances leave the shots out of their real
examples, unless no others are left.

`task.shots` is among the task's settings only if it is not 0, so the identity of a run without shots does not change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model

from compbench.api.context import Batch, Silo
from compbench.api.federation import Federation
from compbench.api.interfaces import (
    Budget,
    Evaluation,
    MethodSettings,
    Metric,
    OpenTask,
    Problem,
    SamplePair,
    Sampler,
    Score,
    Task,
    TaskContext,
    Value,
)
from compbench.api.schemas import MOST_NAMED_SHOTS, Shots
from compbench.system.errors import CompbenchError

if TYPE_CHECKING:
    from torch import Generator, Tensor

SETTING = "shots"
"""The setting's name, `--set task.shots=N`, and a key of `RunSpec.task_settings`."""
MEANING = "real examples of each held-out cell that join the training data, drawn by the run's seed (docs/shots.md)"
MOST = 1000
"""Largest number of examples of a cell."""
BLOCK = 8
"""Number of examples of a cell drawn at a time; it is fixed, so that the first ones do not depend on the requested number."""
TRIES = 32
"""Number of draws for each requested example: 32 K draws find all K examples of a cell except with probability K exp(-32)."""

Examples = Callable[["Tensor", "Generator"], "Tensor"]
"""(full conditions (B, F), generator) -> a real example of each, uint8 images (B, C, H, W) or samples (B, *D)."""


def refused(task: Task) -> str:
    """Why a task takes no shots, as a clause; "" if it takes some.  How many it can take is known only once its data is open."""
    if task.extends or not task.holdout.cells:
        return "it holds nothing out"
    if task.silos > 1:
        return f"its data lies in {task.silos} silos, and nothing says whose an example of an unseen combination would be"
    if task.negates:
        return "it asks for any value but one, which is no cell that has examples"
    if "scores" in task.offers:
        return "its held-out distributions are formulas or rules, and no data of them is given to anybody"
    if task.real_pictures is None and task.truth is None:
        return "it has no real examples of held-out combinations"
    return ""


def with_shots(task: Task, asked: object) -> Task:
    """The task with some real examples of each held-out cell in its training data; 0 changes nothing.

    Args:
        task: the task with its other settings.
        asked: the value of `task.shots`.

    Raises:
        CompbenchError: `asked` is not a number of examples, or the task takes no shots.
    """
    if isinstance(asked, bool) or not isinstance(asked, int) or not 0 <= asked <= MOST:
        raise CompbenchError(f"--set task.{SETTING}={asked}: use a whole number of examples of each held-out cell, 0 to {MOST}.")
    if asked == 0:
        return task
    if why := refused(task):
        raise CompbenchError(f"--set task.{SETTING}={asked}: '{task.name}' takes no shots: {why}.")
    settings = _settings_class(type(task.settings))(**task.settings.model_dump(), **{SETTING: asked})
    configure, pictures = task.configure, task.real_pictures
    return replace(
        task,
        settings=settings,
        real_pictures=None if pictures is None else lambda opened, *asked: pictures(opened.task, *asked),
        open=WithShots(task, asked),
        configure=None if configure is None else lambda changed: _configured(configure, type(task.settings), changed),
    )


@cache
def _settings_class(base: type[MethodSettings]) -> type[MethodSettings]:
    """The class of a task's settings with the number of shots added."""
    shots: Any = (int, Field(ge=1, le=MOST, description=MEANING))
    return create_model(f"{base.__name__}WithShots", __base__=base, **{SETTING: shots})


def _configured(configure: Callable[[Any], Task], base: type[MethodSettings], changed: MethodSettings) -> Task:
    own = changed.model_dump(exclude={SETTING})
    return with_shots(configure(base.model_validate(own)), getattr(changed, SETTING))


@dataclass(frozen=True)
class WithShots:
    """`Task.open` of a task with some shots of each held-out cell."""

    task: Task
    count: int

    def __call__(self, ctx: TaskContext) -> OpenWithShots:
        return OpenWithShots(self.task, self.count, ctx)


class OpenWithShots:
    """A task with its data open and the shots drawn.

    Attributes:
        task: the task without shots, open.
        shots: the record's entry for them.
        examples: the shots themselves, as training data.
    """

    def __init__(self, task: Task, count: int, ctx: TaskContext) -> None:
        others = OtherExamples(task.event.shape)
        metrics = {name: among_others(metric, others) for name, metric in ctx.metrics.items()}
        self.task: OpenTask = task.open(replace(ctx, metrics=metrics))
        plain = self.task.problem(task.budgets[ctx.preset])
        self.shots, self.examples, others.shots = _drawn(task, self.task, plain, count, ctx)

    def problem(self, budget: Budget) -> Problem:
        """The task's problem, with the shots among the training data of its silo."""
        plain = self.task.problem(budget)
        silo = SiloWithShots(plain.federation.pooled(), self.examples, len(plain.holdout.seen_cells), self.shots.num_cells)
        return replace(plain, federation=Federation([silo]))

    def prepare(self) -> None:
        self.task.prepare()

    def evaluate(self, sampler: Sampler) -> Evaluation:
        return self.task.evaluate(sampler)


class SiloWithShots:
    """A silo in which the held-out cells have a few examples each; every cell is drawn equally often.

    Args:
        silo: silo of the seen cells, which draws all of them equally often.
        shots: equally many examples of each held-out cell.
        num_seen, num_held: numbers of seen and of held-out cells.
    """

    def __init__(self, silo: Silo, shots: Batch, num_seen: int, num_held: int) -> None:
        import torch

        self._silo, self._shots, self._share = silo, shots, num_held / (num_seen + num_held)
        self.name, self.size = silo.name, silo.size + len(shots.x1)
        listed: Tensor | None = getattr(silo, "condition", None)
        if listed is not None:
            self.condition = torch.cat([listed, shots.condition.to(listed.device)])

    def batch(self, size: int, generator: Generator) -> Batch:
        """Examples drawn with replacement; each row is a shot with probability H / (S + H)."""
        import torch

        given = torch.rand(size, generator=generator) < self._share  # (B,)
        num_given = int(given.sum())
        rows = torch.randint(len(self._shots.x1), (num_given,), generator=generator).to(self._shots.x1.device)
        own = Batch(self._shots.x1[rows], self._shots.condition[rows])
        if num_given == size:
            return own
        seen = self._silo.batch(size - num_given, generator)
        place = torch.empty(size, dtype=torch.long)
        place[~given], place[given] = torch.arange(size - num_given), torch.arange(size - num_given, size)
        place = place.to(seen.x1.device)
        return Batch(torch.cat([seen.x1, own.x1])[place], torch.cat([seen.condition, own.condition])[place])


def _drawn(task: Task, opened: OpenTask, problem: Problem, count: int, ctx: TaskContext) -> tuple[Shots, Batch, frozenset[str]]:
    """`count` different examples of each held-out cell: the record's entry, the examples, and the hashes of their bytes.

    Raises:
        CompbenchError: a cell has fewer examples.
    """
    import torch

    examples = examples_of(task, opened)
    assert examples is not None  # `refused` has checked this
    found: list[Tensor] = []
    conditions: list[Tensor] = []
    hashes: list[str] = []
    for cell in problem.holdout.cells:
        generator = ctx.generator(f"shots {cell}")
        own: dict[str, tuple[Tensor, Tensor]] = {}
        for _ in range(max(1, TRIES * count // BLOCK)):
            asked = problem.space.uniform(BLOCK, generator)
            asked[:, list(problem.holdout.factors)] = torch.tensor(cell)
            drawn = examples(asked, generator)
            for name, condition, x1 in zip(hashes_of(drawn, problem.event.shape), asked, drawn, strict=True):
                own.setdefault(name, (condition, x1))
            if len(own) >= count:
                break
        if len(own) < count:
            said = ", ".join(
                f"{problem.space.names[place]} {value}" for place, value in zip(problem.holdout.factors, cell, strict=True)
            )
            raise CompbenchError(
                f"--set task.{SETTING}={count}: '{task.name}' has {len(own)} example{'s' if len(own) > 1 else ''} of {said}; "
                f"ask for {len(own)} at most."
            )
        for name, (condition, x1) in list(own.items())[:count]:
            hashes.append(name)
            conditions.append(condition)
            found.append(x1)
    names = [f"{'.'.join(map(str, row.tolist()))}#{name[:8]}" for row, name in zip(conditions, hashes, strict=True)]
    x1 = torch.stack(found).to(ctx.device)
    if x1.dtype == torch.uint8:
        x1 = x1.float().div_(127.5).sub_(1)
    said_of = Shots(
        per_cell=count,
        num_cells=len(problem.holdout.cells),
        digest=digest_of(names),
        examples=tuple(names) if len(names) <= MOST_NAMED_SHOTS else (),
    )
    return said_of, Batch(x1, torch.stack(conditions).to(ctx.device)), frozenset(hashes)


def digest_of(names: list[str] | tuple[str, ...]) -> str:
    """SHA-256 of the names of all shots, in order."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def hashes_of(pictures: Tensor, shape: tuple[int, ...]) -> list[str]:
    """SHA-256 of the bytes of each example (B, *D), without the extra channels of a judge's pictures."""
    rows = pictures[:, : shape[0]] if len(shape) == 3 else pictures
    return [hashlib.sha256(row.contiguous().numpy().tobytes()).hexdigest() for row in rows.cpu()]


def examples_of(task: Task, opened: Any) -> Examples | None:
    """A task's source of real examples of any combination: its real pictures, or the true sample of each; None without one."""
    if (pictures := task.real_pictures) is not None:
        return lambda condition, generator: pictures(opened, condition, generator)
    truth = task.truth
    return None if truth is None else lambda condition, generator: truth(condition)


class OtherExamples:
    """Pairs of real and generated samples without the real examples that were given as shots.

    Attributes:
        shots: hashes of the shots' bytes, once they are drawn.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.shots = shape, frozenset[str]()
        self._last: tuple[SamplePair, SamplePair] | None = None

    def of(self, pair: SamplePair) -> SamplePair:
        """`without_shots`, found once for the metrics of one pair."""
        if self._last is None or self._last[0] is not pair:
            self._last = pair, without_shots(pair, self.shots, self.shape)
        return self._last[1]


@dataclass(frozen=True)
class _AmongOthers(Metric):
    """A metric that compares only with real examples that are not shots, and whose score counts only the compared samples."""

    others: OtherExamples = field(kw_only=True)
    lost: list[int] = field(default_factory=list)

    def computed(self, plain: Callable[..., Value], pair: SamplePair, generator: object) -> Value:
        kept = self.others.of(pair)
        self.lost.append(len(pair.generated) - len(kept.generated))
        return plain(kept, generator)

    def score(self, split: str, value: float | None, *, n: int, suffix: str = "", **known: object) -> Score:
        lost = sum(self.lost)
        self.lost.clear()
        return super().score(split, value, n=n - lost, suffix=suffix, **known)


def among_others(metric: Metric, others: OtherExamples) -> Metric:
    """The metric, computed only with real examples that are not shots."""
    if metric.compute is None:
        return metric
    known = {one.name: getattr(metric, one.name) for one in fields(metric)}
    made = _AmongOthers(**known, others=others)
    return replace(made, compute=partial(made.computed, metric.compute))


def without_shots(pair: SamplePair, shots: frozenset[str], shape: tuple[int, ...]) -> SamplePair:
    """The pair without the real examples whose hashes are among `shots`; all three sets stay equally large.

    A pair with no shot among its real examples, or with nothing but shots, is returned unchanged.
    """
    kept = {
        which: [row for row, name in enumerate(hashes_of(block, shape)) if name not in shots]
        for which, block in (("real", pair.real), ("floor", pair.floor))
    }
    most = min(map(len, kept.values()))
    if not most or most == len(pair.real) == len(pair.floor):
        return pair
    rows = {which: own[:most] for which, own in kept.items()} | {"generated": list(range(min(most, len(pair.generated))))}
    return SamplePair(
        pair.real[rows["real"]],
        pair.generated[rows["generated"]],
        pair.floor[rows["floor"]],
        lambda extractor, which: pair.features(extractor, which)[rows[which]],
        {which: conditions[rows[which]] for which, conditions in pair.conditions.items()},
    )
