"""Clauses about how a fit, and the process around it, behaves: stopping, resuming, silos, memory, global state, imports."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import torch
from torch import Tensor

from compbench.api.federation import _contains
from compbench.api.interfaces import Problem
from compbench.system.errors import Cancelled
from compbench.testing import side_effects
from compbench.testing.watched import CUTS, FEWEST_STEPS, MAX_LATE_STEPS, Broken, Progress, Skipped, Subject

LEAST_BYTES = 2**13
"""Smallest size of a request, in bytes, for the check that a method keeps nothing of its requests."""

BLOCK = 1024
"""Memory blocks of at least this many bytes count as samples.  Smaller ones, which Python reuses, count only in large numbers."""


def cancellation(subject: Subject) -> None:
    """Ask the fit to stop before its first step, and in the middle."""
    if subject.method.oracle:
        raise Skipped("an oracle has nothing to fit")
    if not subject.trains:
        raise Skipped("a fit in closed form is over at once")
    start = time.perf_counter()
    before = Progress(0)
    try:
        subject.fit(progress=before)
    except Cancelled:
        pass
    else:
        raise Broken(f"asked to stop before its first step, fit went on to its end ({time.perf_counter() - start:.2f} s)")
    stop = subject.stopped(CUTS[0])
    if stop.went_on:
        raise Broken(f"asked to stop after {len(stop.progress.reports) - stop.progress.late} steps, fit went on to its end")
    late = max(before.late, stop.progress.late)
    if late > MAX_LATE_STEPS:
        raise Broken(f"fit went on for {late} steps after it was asked to stop")


def resume(subject: Subject) -> str | None:
    """Compare a fit that was stopped after some steps and resumed in a fresh problem with the undisturbed fit."""
    if subject.method.oracle:
        raise Skipped("an oracle has nothing to fit")
    if not subject.trains:
        raise Skipped("a fit in closed form has nothing to resume")
    stored = False
    for cut in CUTS if len(subject.fitted_on.federation) > 1 else CUTS[:1]:
        if subject.stopped(cut).went_on:
            raise Skipped("fit does not stop when asked; see the check 'cancellation'")
        found = subject.resumed(cut)
        stored |= found.stored
        if not subject.alike(found.samples, subject.first):
            raise Broken(f"stopped at {cut:.0%} and resumed, the samples differ by {gap(found.samples, subject.first)}")
    return None if stored else "it keeps no checkpoints: a resumed fit starts again"


def silos(subject: Subject) -> None:
    """Check where the silos' data was drawn, and that neither sent states nor the model contain an example."""
    problem = subject.fitted_on
    if len(problem.federation) == 1:
        raise Skipped("there is one silo here")
    subject.first  # noqa: B018 - fits, and samples
    if subject.method.pools_silos:
        if not problem.federation.was_pooled:
            raise Broken(*_unpooled(problem))
        return
    if problem.federation.was_pooled:
        raise Broken("the fit pooled the silos' data")
    outside = sum(silo.num_outside for silo in problem.federation._silos)  # type: ignore[attr-defined]
    if outside:
        raise Broken(f"{outside} batches were drawn outside Federation.run")
    rows = torch.cat(subject.drawn(problem)).flatten(1)
    sent = getattr(problem.federation, "sent", [])
    for what, state in [*(("what a silo sent", state) for state in sent), ("the model", weights(subject.model))]:
        for name, value in state.items():
            if _contains(value, rows):
                raise Broken(f"{what} contains a training example, in '{name}'")


def _unpooled(problem: Problem) -> tuple[str, str]:
    """What a method did instead of pooling the silos, which it declares to do, and the advice for it."""
    found = "it declares that it pools the silos, but it did not"
    if any(account.rounds for account in problem.federation.accounts):
        return f"{found}: it works through Federation.run", "a decentralised method says Method(pools_silos=False)"
    drawn = [silo.name for silo in problem.federation._silos if silo.num_outside]  # type: ignore[attr-defined]
    if not drawn:
        return f"{found}: it saw no data", "train on problem.federation.pooled()"
    missing = len(problem.federation) - len(drawn)
    return f"{found}: it drew from {', '.join(drawn)}, not from {missing} other silos", "train on problem.federation.pooled()"


def memory(subject: Subject) -> None:
    """Repeat requests and fits: the memory that they leave behind must not grow each time."""
    rows = -(-LEAST_BYTES // (4 * subject.x0[0].numel()))
    condition, noise = subject.condition[:1].expand(rows, -1), subject.noise(rows)

    def sampled() -> None:
        subject.sample(condition, noise)

    def fitted() -> None:
        if not subject.method.oracle:
            subject.fit(steps=2)

    with side_effects.frozen_heap(), subject.shortened(FEWEST_STEPS):
        grown = _growth(fitted, lambda: (side_effects.tensor_bytes(subject.device),))
        if grown[0] > 0:
            raise Broken(f"each fit leaves {grown[0]} bytes of tensors behind")
        tracemalloc.start()
        try:
            grown = _growth(sampled, lambda: (side_effects.tensor_bytes(subject.device), *side_effects.python_bytes(BLOCK)))
        finally:
            tracemalloc.stop()
    for left, bound, what in zip(grown, (1, LEAST_BYTES // 2, 4 * LEAST_BYTES), ("tensors", "samples", "objects"), strict=True):
        if left >= bound:
            raise Broken(f"each sample leaves {left} bytes of {what} behind")


def _growth(act: Callable[[], None], measure: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
    """The growth of each measure per call: the smaller of the growths of two calls, after a first call."""
    sizes = []
    for _ in range(3):
        act()
        sizes.append(measure())
    return tuple(min(second - first, third - second) for first, second, third in zip(*sizes, strict=True))


def globals_(subject: Subject) -> None:
    """Check that no fit or sample so far has changed global state."""
    subject.first  # noqa: B018 - fits, and samples
    if subject.changes:
        raise Broken("; ".join(subject.changes))


def imports(subject: Subject) -> None:
    """Check that no fit or sample so far has imported anything."""
    subject.first  # noqa: B018 - fits, and samples
    late = subject.imports.late
    if late:
        listed = ", ".join(f"{name} (by {who})" for name, who in late[:5])
        raise Broken(f"imported late: {listed}" + (f" and {len(late) - 5} more" if len(late) > 5 else ""))


def weights(model: object) -> dict[str, Tensor]:
    """A copy of a model's tensors; empty if the model is not a module."""
    if not isinstance(model, torch.nn.Module):
        return {}
    return {name: value.detach().clone() for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def gap(one: Tensor, other: Tensor) -> str:
    """The largest difference of two tensors, in words."""
    return f"up to {float((one - other).abs().max()):.3g}" if one.shape == other.shape else "their shapes"
