"""Clauses on problems with known answers: does a method learn and follow conditions, in the precision that runs use?

One fit serves all clauses.  A method that does not follow conditions after the problem's steps gets up to five times as many
before it fails; on kinds of events other than its cheapest one it only needs to be half trained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from compbench.api.interfaces import Method
from compbench.runner import counted
from compbench.runner.cost_probe import fit_flops
from compbench.store.conditions import KINDS, LEAST_EXAMPLES, by_kind, untrained
from compbench.store.counts import evaluations_excess, fit_excess
from compbench.system import devices
from compbench.testing.known_answers import Fault, KnownAnswer
from compbench.testing.long_requests import middle_obeys, obeys_long
from compbench.testing.watched import FEWEST_STEPS, FIT_SEED, SAMPLE_SEED, Broken, Progress, Skipped, Subject

LONGER = (2, 5)
"""A method that learns slowly gets these multiples of the steps, one after the other, before it fails."""

ALONE = (slice(0, 1), slice(3, 5), slice(6, 15))
"""Rows of a mixed request that are requested again without the others: one, two, and an odd number."""

ROUNDING = 2e-3
"""Largest change of a row if other rows change, relative to its largest entry; sums in another order cause it at each step."""

TWINS = 16
"""Number of rows with equal condition and noise in a request to a sampler with its own random numbers."""

SHARED = 0.05
"""If rows with equal condition and noise differ by less than this share of the change by another seed, it is only rounding."""

PROBE_STEPS = 2
"""Number of steps of a fit whose FLOPs are counted, or which only has to end in a precision."""


class Learner(Subject):
    """A method on a problem with known answers, in the precision of published runs on the device.

    Attributes:
        known: the problem's answers.
        asked: conditions with every combination many times, in random order.
    """

    def __init__(self, method: Method, known: KnownAnswer, device: torch.device, room: Path) -> None:
        super().__init__(method, known.tiny, device, room)
        if self.fitted_on.event.kind == first_kind(method):
            self.settings = method.settings()
        self.known = known
        self.precision = precision_of_runs(device)
        self.asked = known.conditions().to(device)

    def fits_in_fp32(self) -> bool:
        """Whether the same fit succeeds in fp32."""
        self.fit_precision = "fp32"
        try:
            made = self.samples(model=self.fit(steps=PROBE_STEPS), precision="fp32")
        except Exception:  # if the plugin raises there too, precision is not the cause
            return False
        finally:
            self.fit_precision = ""
        return bool(made.isfinite().all())

    def noise(self, rows: int) -> Tensor:
        """Pairs of opposite noise, whose mean is 0, so that samples of a symmetric law have the law's mean."""
        half = super().noise(-(-rows // 2))
        return torch.cat([half, -half])[:rows]

    def samples(self, *, model: object = None, precision: str = "") -> Tensor:
        """Samples of all combinations, in random order."""
        return self.sample(self.asked, self.noise(len(self.asked)), model=model, precision=precision)

    def longer(self, times: int, precision: str) -> Tensor:
        """Samples of a model trained for `times` times the steps."""
        self.fit_precision = precision
        try:
            model = self.fit(steps=times * self.fitted_on.budget.train_steps)
        finally:
            self.fit_precision = ""
        return self.samples(model=model, precision=precision)

    def is_half_learnt(self, samples: Tensor) -> bool:
        """Whether samples are good enough for a kind of events other than the method's cheapest one."""
        own = self.fitted_on.event.kind == first_kind(self.method)
        return not own and self.known.half_learnt(self.asked, samples)

    @cached_property
    def verdict(self) -> Fault | None:
        """What is wrong with the samples."""
        return self.judged(self.first_samples)

    @cached_property
    def first_samples(self) -> Tensor:
        """Samples after the problem's steps."""
        return self.samples()

    def judged(self, samples: Tensor) -> Fault | None:
        return self.known.fault(self.asked, samples, spread=not self.method.regresses)


def learns(learner: Learner) -> str | None:
    """Check samples of every seen combination, after the problem's steps or a multiple of them."""
    if learner.method.ignores_condition:
        raise Skipped("it declares that it ignores the condition")
    if learner.verdict is None:
        return None
    if learner.method.oracle:
        raise Broken(*learner.verdict)
    if learner.is_half_learnt(learner.first_samples):
        return f"half trained after the problem's steps, and improving: {learner.verdict.found}"
    for times in LONGER:
        samples = learner.longer(times, learner.precision)
        fault = learner.judged(samples)
        if fault is None or learner.is_half_learnt(samples):
            return f"after {times} times the steps; before: {learner.verdict.found}"
    assert fault is not None
    if learner.precision == "fp32" or learner.judged(learner.longer(LONGER[-1], "fp32")):
        raise Broken(*fault)
    raise Broken(f"in {learner.precision}, which published runs use, {fault.found}; in fp32 it works", PRECISION, "precision")


def left_open(learner: Learner) -> str | None:
    """Check vectors with one factor open, and with all factors open, by the model after the problem's steps."""
    if learner.method.ignores_condition:
        raise Skipped("it declares that it ignores the condition")
    if learner.method.oracle or learner.fitted_on.event.kind != "vector":
        return None
    condition = learner.known.open_conditions.to(learner.device)
    fault = learner.known.open_fault(condition, learner.sample(condition, learner.noise(len(condition))))
    if fault is not None:
        raise Broken(*fault)
    return None


def precision_of_runs(device: torch.device) -> Literal["bf16", "fp32"]:
    """The precision of published runs: bf16 on every CPU; on a GPU the precision that `run` chooses there."""
    return "bf16" if device.type == "cpu" or devices.precision("auto", device) == "bf16" else "fp32"


PRECISION = "keep in fp32 what bf16's three digits or its products cannot carry: `with torch.autocast(..., enabled=False)`"


def precision(subject: Subject) -> str | None:
    """Check samples in the precision of published runs, and in fp32 from the same model."""
    device, own = subject.device, precision_of_runs(subject.device)
    if own == "fp32":
        raise Skipped("runs take fp32 on this device")
    if isinstance(subject, Learner):
        try:
            subject.first_samples  # noqa: B018 - samples
        except Broken:
            raise
        except Exception as error:
            if subject.fits_in_fp32():
                raise
            raise Broken(f"sample raised {type(error).__name__}: {error}", clause="shape") from error
        bad = int((~subject.first_samples.isfinite()).sum())
        if bad and subject.fits_in_fp32():
            raise Broken(f"in {own}, which published runs take, {bad} entries are not finite; in fp32 all are", PRECISION)
        few = slice(0, 9)
        condition, noise = subject.asked[few], subject.noise(len(subject.asked))[few]
        made = subject.sample(condition, noise, precision="fp32")
        share = subject.known.own_share
        if share(condition, made) < share(condition, subject.first_samples[few]) - 0.5:
            raise Broken(f"a model that follows conditions in {own} does not in fp32", PRECISION)
        return None
    subject.fit_precision = own
    try:
        made = subject.sample(subject.condition, subject.x0, model=subject.fit(steps=PROBE_STEPS), precision=own)
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"in {own}, which published runs take, on {device}: {type(error).__name__}: {error}", PRECISION) from error
    finally:
        subject.fit_precision = ""
    bad = int((~made.isfinite()).sum())
    if bad:
        raise Broken(f"in {own}, which published runs take, {bad} of {made.numel()} entries are not finite", PRECISION)
    return None


def mixed(subject: Subject) -> str | None:
    """Check requests with different conditions in their rows: the same rows alone or with other rows, and long requests."""
    if subject.method.couples_rows:
        return "it declares that rows of a request share something; `learns` checks their law"
    own = subject.fitted_on.event.kind == first_kind(subject.method)
    with subject.shortened(subject.few if own else FEWEST_STEPS):  # rows are compared with rows
        return _mixed(subject)


def _mixed(subject: Subject) -> str | None:
    condition, noise = _mixed_request(subject)
    sample = partial(subject.sample, precision="fp32")
    whole = sample(condition, noise)
    rounding = ROUNDING if subject.device.type == "cpu" else 5 * ROUNDING
    long = subject if isinstance(subject, Learner) and subject.fitted_on.event.kind == "vector" else None
    change = middle_obeys(subject, whole, condition, noise)
    reseeded = whole if change == 0 else sample(condition, noise, seed=SAMPLE_SEED + 1)
    if subject.alike(whole, reseeded):
        for rows in ALONE:
            alone = sample(condition[rows], noise[rows])
            _same(
                subject, alone, whole[rows], f"rows {rows.start} to {rows.stop - 1} of {len(noise)} change when requested alone"
            )
        if not change <= rounding * float(whole.abs().max()):
            raise Broken(f"rows change with the conditions and the noise of other rows, by up to {change:.3g}")
        if long is not None:
            obeys_long(long, long.known, draws=False, rounding=rounding)
        return None
    if long is not None:
        obeys_long(long, long.known, draws=True, rounding=rounding)
    _twins_differ(subject, condition, noise, (whole - reseeded).abs().flatten(1).amax(1))
    return _in_other_company(subject, condition, noise, whole)


def _twins_differ(subject: Subject, condition: Tensor, noise: Tensor, changes: Tensor) -> None:
    """Check that rows with equal condition and noise differ as two seeds do, at the row with the median change by a new seed."""
    changed = changes.nonzero()[:, 0]
    row = changed[changes[changed].argsort()[len(changed) // 2]]
    twins = subject.sample(
        condition[row].expand(TWINS, *condition[row].shape), noise[row].expand(TWINS, *noise[row].shape), precision="fp32"
    )
    gap = float((twins - twins[:1]).abs().max())
    if gap < SHARED * float(changes[row]):
        raise Broken(
            f"rows share their random numbers: {TWINS} of one condition and one x0 differ by up to {gap:.3g}, and by"
            f" {float(changes[row]):.3g} between two seeds",
            "draw for each row, torch.randn(x.shape, generator=ctx.generator); or declare Method(couples_rows=True)",
        )


def _in_other_company(subject: Subject, condition: Tensor, noise: Tensor, whole: Tensor) -> str | None:
    """Check a sampler with its own random numbers: some rows are kept in place, and the others change."""
    for rows in ALONE[:2]:
        subject.sample(condition[rows], noise[rows], precision="fp32")
    stay = (condition == condition[0]).all(1)
    others = (~stay).nonzero()[:, 0]
    changed, other = condition.clone(), noise.clone()
    changed[others] = condition[others.roll(1)]
    other[others] *= -1
    made = subject.sample(changed, other, precision="fp32")
    _same(subject, made[stay], whole[stay], "rows change with the conditions and the noise of other rows")
    return "it draws its own random numbers: rows are compared in place"


def _mixed_request(subject: Subject) -> tuple[Tensor, Tensor]:
    """Seen combinations in random order, and noise."""
    if isinstance(subject, Learner):
        return subject.asked, subject.noise(len(subject.asked))
    generator = torch.Generator().manual_seed(FIT_SEED)
    cells = torch.tensor(subject.fitted_on.holdout.seen_cells)
    condition = cells[torch.randint(len(cells), (33,), generator=generator)].to(subject.device)
    return condition, subject.noise(33)


def _same(subject: Subject, one: Tensor, other: Tensor, what: str) -> None:
    gap = float((one - other).abs().max())
    if not gap <= (ROUNDING if subject.device.type == "cpu" else 5 * ROUNDING) * float(other.abs().max()):
        raise Broken(f"{what}, by up to {gap:.3g}")


def count(learner: Learner) -> str | None:
    """Check optimiser steps, drawn examples and network evaluations against the budget and the method's own report."""
    method, settings, problem = learner.method, learner.settings, learner.fitted_on
    before = counted.Tally()
    early = counted.counted(learner.fresh(), before)
    with before.counting_steps():
        declared = method.evaluations(settings, early) if method.evaluations is not None else None
        for ask in (method.shared_fit, method.build):
            if ask is not None:
                ask(settings, early)
    reports = learner.progress.reports
    reported = max((done for done, _ in reports), default=0)
    excess = fit_excess(counted.counts(problem, learner.used, before=before, reported=reported))
    if excess:
        raise Broken(excess)
    if method.oracle or declared is None or problem.event.kind != first_kind(method):
        return None
    excess = evaluations_excess(_evaluations(learner, declared), declared)
    if excess:
        raise Broken(excess, "count every evaluation of the network for one sample: each step, member and particle")
    return None


def _evaluations(learner: Learner, declared: int) -> float | None:
    """Evaluations per sample, by the FLOPs of some training steps and of some samples."""
    tally = counted.Tally()
    problem = counted.counted(learner.fresh(), tally)
    problem = replace(problem, budget=problem.budget.model_copy(update={"train_steps": PROBE_STEPS}))
    progress, models = Progress(), []
    with tally.counting_steps():
        flops, _ = fit_flops(lambda: models.append(learner.fit(problem=problem, progress=progress)), problem.federation)

    def sample(rows: int) -> None:
        learner.sample(learner.asked[:1].expand(rows, -1), learner.noise(rows), model=models[0])

    examples = min(tally.examples, tally.optimiser_steps * problem.budget.batch_size)
    return counted.evaluations(sample, 2, flops.forward, examples, declared)


def first_kind(method: Method) -> str:
    """The kind of event on which a method is cheapest."""
    return next(kind for kind in ("vector", "trajectory", "image") if kind in method.kinds)


def asked(learner: Learner) -> str | None:
    """Check that the fit was trained on the kinds of conditions that samples request."""
    problem, size = learner.fitted_on, len(learner.space)
    learner.first_samples  # noqa: B018 - fits
    trained = by_kind(counted.regressed(learner.regressed, problem, learner.used))
    if trained:
        missing = untrained(trained, by_kind(learner.asked_for().of(size)))
        never = [KINDS[kind] for kind, count in missing.items() if not count]
        if never:
            raise Broken(f"asked at {' and '.join(never)}, trained on 0 of {sum(trained.values()):,.0f} examples")
        return "; ".join(f"asked at {KINDS[kind]}, trained on {count:,.0f} examples" for kind, count in missing.items()) or None
    trained, called = by_kind(learner.trained.of(size)), by_kind(learner.called_for().of(size))
    if sum(trained.values()) < LEAST_EXAMPLES or not any(called.values()):
        raise Skipped("not counted: its losses do not report what they regress on (compbench.regressed), or it has none")
    never = [KINDS[kind] for kind, count in called.items() if count and not trained.get(kind)]
    if never:
        raise Broken(f"its network is evaluated at {' and '.join(never)}, and fit never called it there with gradients")
    return "counted by calls of its networks, because its losses do not report what they regress on (compbench.regressed)"


LEARNER_CHECKS: dict[str, Callable[[Learner], str | None]] = {
    "precision": precision,
    "learns": learns,
    "mixed": mixed,
    "null": left_open,
    "counted": count,
    "asked": asked,
}
"""Checks of a method on a problem with known answers, in the order in which they run."""
