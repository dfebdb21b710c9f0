"""Kinds of conditions that a fit was trained on and that its samples request: counts in a record's notes, and phrases.

counted trained_null, trained_single, ...    training examples on whose condition of this kind the loss regressed
counted asked_null, asked_single, ...        evaluations of the network for one sample at conditions of this kind

A kind is the number of factors with a value: all ("whole"), none ("null"), one ("single"), two ("pair"), all but one
("all_but_one"), or another number ("some"); the first that fits counts.  A method with its own loss has no training counts,
unless it reports the conditions that it regresses on (`compbench.regressed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from compbench.store.counts import PREFIX

if TYPE_CHECKING:
    from compbench.api.schemas import Record

KINDS = {
    "whole": "the whole condition",
    "null": "NULL",
    "single": "single factors",
    "pair": "pairs of factors",
    "all_but_one": "all factors but one",
    "some": "some factors",
}
"""Each kind, and its name in text."""

RARE = 2e-3
"""A kind of condition with a smaller share of the training examples counts as hardly trained on."""

LEAST_EXAMPLES = 1_000
"""With fewer counted examples, missing kinds are not reported."""

UNCOUNTED = "trained conditions were not counted"
"""The remark on runs of a network whose training conditions were not counted: older records, or losses that report none."""


def kind_of(num_given: int, num_factors: int) -> str:
    """The kind of a condition that gives a value to `num_given` of `num_factors` factors."""
    if num_given == num_factors:
        return "whole"
    names = {0: "null", 1: "single", 2: "pair"}
    return names.get(num_given, "all_but_one" if num_given == num_factors - 1 else "some")


def by_kind(counts: Sequence[float]) -> dict[str, float]:
    """Counts n_0 ... n_F of conditions by their kinds; {} of ()."""
    found: dict[str, float] = {}
    for num_given, count in enumerate(counts):
        kind = kind_of(num_given, len(counts) - 1)
        found[kind] = found.get(kind, 0.0) + count
    return found


def noted(trained: Sequence[float], requested: Sequence[float]) -> dict[str, float]:
    """A record's notes from the counts n_0 ... n_F of training and of sampling; () means that nothing was counted."""
    parts = {"trained": by_kind(trained), "asked": by_kind(requested)}
    return {f"{PREFIX}{name}_{kind}": float(count) for name, own in parts.items() for kind, count in own.items()}


def untrained(trained: Mapping[str, float], requested: Mapping[str, float]) -> dict[str, float]:
    """Kinds that samples request but that the fit hardly saw, with their training counts; {} if either was not counted."""
    total = sum(trained.values())
    if total < LEAST_EXAMPLES:
        return {}
    return {kind: trained.get(kind, 0.0) for kind in KINDS if requested.get(kind) and trained.get(kind, 0.0) < RARE * total}


def of_record(record: Record, name: str) -> dict[str, float]:
    """A record's counts of "trained" or "asked", by kind; {} if they were not counted."""
    known = record.notes
    return {kind: count for kind in KINDS if isinstance(count := known.get(f"{PREFIX}{name}_{kind}"), float)}


def in_words(record: Record) -> tuple[str, ...]:
    """The kinds of conditions that a run was trained on and requested, one phrase each; () if it trained no network."""
    trained, requested = of_record(record, "trained"), of_record(record, "asked")
    found = [f"trained on {_listed(trained, 'examples')}"] if trained else [UNCOUNTED] if uncounted([record]) else []
    return (*found, f"asked a sample at {_listed(requested, 'evaluations')}") if requested else tuple(found)


def uncounted(records: Iterable[Record]) -> bool:
    """Whether a row's runs trained a network and none of them counted on which conditions."""
    runs = [run for run in records if run.status == "ok" and run.profile.parameters and not run.oracle and not run.samples_only]
    return bool(runs) and not any(of_record(run, "trained") for run in runs)


def untrained_in_words(records: Iterable[Record]) -> tuple[str, ...]:
    """Kinds that a row's samples request but its fits hardly saw, a phrase each: "asked at NULL, trained on 0 of 211,200"."""
    counts: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        trained = of_record(record, "trained")
        for kind, count in untrained(trained, of_record(record, "asked")).items():
            counts.setdefault(kind, []).append((count, sum(trained.values())))
    return tuple(f"asked at {KINDS[kind]}, trained on {_range(counts[kind])} examples" for kind in KINDS if kind in counts)


def _listed(counts: Mapping[str, float], unit: str) -> str:
    return ", ".join(f"{KINDS[kind]} ({count:,.0f} {unit})" for kind, count in counts.items() if count)


def _range(found: Sequence[tuple[float, float]]) -> str:
    """The range of the counts, and the largest number of examples."""
    low, high = min(count for count, _ in found), max(count for count, _ in found)
    of = max(total for _, total in found)
    return f"{low:,.0f}{'' if low == high else f' to {high:,.0f}'} of {of:,.0f}"
