"""The contract of a task, tested with samplers of known quality: real data, one real example repeated, and noise.

Only the task has held-out data, so the samplers use data of seen combinations.  A score of the seen split must rank real data
above noise, and not below a sampler that collapsed to one example of each combination.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import torch
from torch import Generator, Tensor

from compbench.api.factors import NULL
from compbench.api.interfaces import Score, Task
from compbench.api.schemas import RunRequest
from compbench.registry.declared import OTHERS, declared
from compbench.registry.registry import Registry
from compbench.registry.resolve import metrics_of, task_context
from compbench.system import devices
from compbench.system.errors import CompbenchError
from compbench.testing.verdicts import Finding, failed
from compbench.testing.watched import Broken, Skipped

DRAWS, DRAW = 40, 512
"""Number and size of the batches drawn from the silos to find real data of every combination."""


class TaskSubject:
    """A task, opened with its own embedded data at its smallest preset, and its scores of samplers."""

    def __init__(self, task: Task, registry: Registry, home: Path) -> None:
        self.task = task
        request = RunRequest(task=task.name, method="mono", preset="smoke", device="cpu", source="embedded", home=str(home))
        source = task.source(home / "data", "embedded")
        context = task_context(
            request,
            source,
            devices.resolve("cpu"),
            precision="fp32",
            cache=home / "references",
            metrics=metrics_of(task, registry),
        )
        self.opened = task.open(context)
        self.problem = self.opened.problem(task.budgets["smoke"])
        self.opened.prepare()
        self.generator = Generator().manual_seed(7)

    @cached_property
    def data(self) -> tuple[Tensor, Tensor]:
        """Real examples and their conditions."""
        silo = self.problem.federation.pooled()
        batches = [silo.batch(DRAW, self.generator) for _ in range(DRAWS)]
        return torch.cat([b.x1.cpu() for b in batches]), torch.cat([b.condition.cpu() for b in batches])

    def real(self, condition: Tensor) -> Tensor:
        """A random real example of each condition; if a condition has no data, an example of the nearest condition with data."""
        x1, conditions = self.data
        places: dict[tuple[int, ...], Tensor] = {}
        made = []
        for asked in condition.cpu():
            key = tuple(asked.tolist())
            if key not in places:
                places[key] = self._rows(asked, conditions)
            own = places[key]
            made.append(x1[own[int(torch.randint(len(own), (), generator=self.generator))]])
        return torch.stack(made)

    def collapsed(self, condition: Tensor) -> Tensor:
        """The median real example of each condition, repeated."""
        x1, conditions = self.data
        made, known = torch.empty(len(condition), *x1.shape[1:]), {}
        for row, asked in enumerate(condition.cpu()):
            key = tuple(asked.tolist())
            if key not in known:
                own = x1[self._rows(asked, conditions)]
                known[key] = own[(own - own.mean(0)).flatten(1).norm(dim=1).argmin()]
            made[row] = known[key]
        return made

    def noise(self, condition: Tensor) -> Tensor:
        """Noise, whatever the condition."""
        return torch.randn(len(condition), *self.task.event.shape, generator=self.generator)

    def _rows(self, asked: Tensor, conditions: Tensor) -> Tensor:
        """Rows of the real examples whose conditions agree most with the requested ones."""
        agree = ((asked == NULL) | (asked == conditions)).sum(1)
        return (agree == agree.max()).nonzero()[:, 0]

    def scores(self, sampler: Callable[[Tensor], Tensor]) -> dict[str, Score]:
        """The task's scores of a sampler, by name."""

        def answer(condition: Tensor, *, stream: str, known: Tensor | None = None, known_mask: Tensor | None = None) -> Tensor:
            made = sampler(condition)
            return made if known is None or known_mask is None else torch.where(known_mask, known, made)

        return {score.name: score for score in self.opened.evaluate(answer).scores}

    @cached_property
    def of_real(self) -> dict[str, Score]:
        return self.scores(self.real)

    @cached_property
    def of_noise(self) -> dict[str, Score]:
        return self.scores(self.noise)

    @cached_property
    def of_collapsed(self) -> dict[str, Score]:
        return self.scores(self.collapsed)


def primary(subject: TaskSubject) -> str:
    """Check that there is one primary score, with the name that the task declares, and with a floor or a ceiling."""
    ranks = [score for score in subject.of_real.values() if score.primary]
    if [score.name for score in ranks] != [subject.task.primary]:
        raise Broken(
            f"primary scores: {', '.join(score.name for score in ranks) or 'none'}; the task says '{subject.task.primary}'"
        )
    if ranks[0].value is not None and ranks[0].floor is None and ranks[0].ceiling is None:
        raise Broken(f"'{ranks[0].name}' has neither a ceiling nor a floor", "give Score(ceiling=...) or Score(floor=...)")
    return f"'{ranks[0].name}' of {ranks[0].metric}"


def ceiling(subject: TaskSubject) -> str:
    """Check that ceilings and floors of the ranked metric are better than the scores of noise.

    Its scores by factor and by the judge of the seen split do not count: that judge may not have learnt anything at `smoke`.
    """
    found, ranked = [], _ranked(subject)
    for name, score in subject.of_noise.items():
        for what, bound in (("ceiling", score.ceiling), ("floor", score.floor)):
            if bound is None or score.value is None or not _is_twin(score, ranked):
                continue
            if not _worse(score, score.value, bound) and not by_luck(score, score.value, bound):
                raise Broken(f"noise gets {score.value:.4g} in '{name}', whose {what} on real data is {bound:.4g}")
            found.append(f"{name}: noise {score.value:.4g}, {what} {bound:.4g}")
    return "; ".join(found)


def collapse(subject: TaskSubject) -> str:
    """Check that one repeated example does not beat real data in the primary metric on seen combinations."""
    if subject.problem.deterministic or subject.task.truth is not None:
        raise Skipped("a combination has one sample here, so this is not a collapse")
    ranked = _ranked(subject)
    twins = [score for score in subject.of_real.values() if _is_twin(score, ranked) and score.split in ("seen", "all")]
    if not twins:
        raise Skipped(f"no score of the seen combinations is of '{ranked.metric}'")
    found = []
    for score in twins:
        other = subject.of_collapsed[score.name]
        if score.value is None or other.value is None:
            continue
        bound = score.ceiling if score.ceiling is not None else score.floor
        best = score.value if bound is None or _worse(score, bound, score.value) else bound
        if _worse(score, best, other.value) and not by_luck(score, other.value, best):
            raise Broken(f"one example per combination gets {other.value:.4g} in '{score.name}', real data {score.value:.4g}")
        found.append(f"{score.name}: real data {score.value:.4g}, one example per combination {other.value:.4g}")
    return "; ".join(found)


def _is_twin(score: Score, ranked: Score) -> bool:
    """Whether a score is the ranked one, or that of another split."""
    return score.primary or score.name == ranked.name.replace(ranked.split, score.split, 1)


def by_luck(score: Score, other: float, real: float) -> bool:
    """Whether an unranked accuracy may be as good as that of real data by chance, because `smoke` requests few samples.

    Two accuracies of n samples each differ by at most two standard errors, 2 sqrt(2 p (1 - p) / n) with p their mean.
    """
    if score.primary or score.direction == "lower" or score.unit == "%" or not score.n:
        return False
    p = (other + real) / 2
    return other - real <= 2 * math.sqrt(2 * p * max(1 - p, 0.0) / score.n)


def _ranked(subject: TaskSubject) -> Score:
    return next(score for score in subject.of_real.values() if score.primary)


def _worse(score: Score, one: float, than: float) -> bool:
    return one > than if score.direction == "lower" else one < than


CHECKS: dict[str, Callable[[TaskSubject], str | None]] = {"primary": primary, "ceiling": ceiling, "collapse": collapse}


def _declared(task: Task, registry: Registry) -> Finding:
    """Check that the facts that `list` reads from the file equal those of the loaded task."""
    read = declared(registry.entry("tasks", task.name))._asdict()
    wrong = [
        f"{name} is {getattr(task, name)!r}, read is {value!r}" for name, value in read.items() if getattr(task, name) != value
    ]
    return failed("declared", "", "; ".join(wrong)) if wrong else Finding("declared", "", "ok", f"family {task.family or OTHERS}")


def of_task(task: Task, registry: Registry, *, only: Sequence[str] = ()) -> Iterator[Finding]:
    """The findings about a task, by the checks in `only`; () means all."""
    if not only or "declared" in only:
        yield _declared(task, registry)
    if list(only) == ["declared"]:
        return
    with tempfile.TemporaryDirectory(prefix="compbench-check-") as home:
        try:
            subject = TaskSubject(task, registry, Path(home))
        except CompbenchError as error:
            yield Finding("primary", "", "skipped", f"its embedded data is not available here: {error}")
            return
        for check, act in CHECKS.items():
            if not only or check in only:
                yield _attempt(check, act, subject)


def _attempt(check: str, act: Callable[[TaskSubject], str | None], subject: TaskSubject) -> Finding:
    try:
        return Finding(check, "", "ok", (act(subject) or "")[:1000])
    except Skipped as reason:
        return Finding(check, "", "skipped", str(reason))
    except Broken as broken:
        return failed(check, "", broken.found, fix=broken.fix)
    except Exception as error:
        return failed(check, "", f"{type(error).__name__}: {error}")
