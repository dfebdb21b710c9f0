"""Counts that the harness keeps in a record's notes, and budget violations in words.

counted optimiser_steps, counted examples                what the fit took
counted granted_steps, counted granted_examples          what the budget grants
counted reported_steps                                   what the method reported about its steps
counted early_steps, counted early_examples, counted early_backward_passes
                                                         what was used before the fit began, including the plugin's import
counted earlier_steps, ..._examples, ..._backward_passes
                                                         what earlier processes of a resumed run took, from its checkpoints
counted backward_passes, counted granted_backward_passes what the fit took, and the budget's steps x passes of a probed step
counted late_steps, counted late_examples                what was used after the fit, in `sample`, where nothing is granted
counted late_backward_passes                             passes beyond those that such requests take in the probe
counted extension_steps, ..._examples, ..._backward_passes
                                                         what the second stage took; with `granted_`, what it is granted
counted evaluations                                      evaluations of the network per sample, if matrix products show them
counted beyond_budget                                    1 or 0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compbench.api.schemas import Record

PREFIX = "counted "

SLACK = 1.25
"""Counted evaluations may exceed the declared ones by this factor, because work done once per request is spread over its rows."""


AGAIN = 2.0
"""All processes of a resumed run may together take this many times the budget, because work after a checkpoint is repeated."""
WORDS = {"steps": "optimiser steps", "examples": "examples drawn", "backward_passes": "backward passes"}
"""The counted quantities in words, by the part of a count's name after its prefix, as in `granted_steps`."""
TAKEN, KINDS = ("optimiser_steps", "examples", "backward_passes"), tuple(WORDS)
"""Names of a fit's counts, and the corresponding names after a prefix."""


def fit_excess(counts: Mapping[str, float]) -> str:
    """What a fit took beyond the budget or its own report, by the names above without their prefix; "" if nothing."""
    steps, examples = counts["optimiser_steps"], counts["examples"]
    if early := _listed(counts, "early_"):
        return f"{early} before the fit began"
    if steps > counts["granted_steps"]:
        return f"{steps:.0f} optimiser steps, of {counts['granted_steps']:.0f} that the budget grants"
    if steps > counts["reported_steps"]:
        return f"{steps:.0f} optimiser steps, of which {counts['reported_steps']:.0f} were reported"
    if examples > counts["granted_examples"]:
        return f"{examples:.0f} examples drawn, of {counts['granted_examples']:.0f} that the budget grants"
    passes = counts.get("backward_passes", 0.0)
    if passes > counts.get("granted_backward_passes", passes):
        return (
            f"{passes:.0f} backward passes in {steps:.0f} optimiser steps, where the budget's steps take "
            f"{counts['granted_backward_passes']:.0f} at most"
        )
    return ""


def earlier_excess(counts: Mapping[str, float]) -> str:
    """What all processes of a resumed run took beyond the budget; "" if nothing, or if that is not known.

    Work after a checkpoint is repeated, so somewhat more than the budget is granted.
    """
    for name, (kind, what) in zip(TAKEN, WORDS.items(), strict=True):
        granted = counts.get(f"granted_{kind}", 0.0)
        whole = counts.get(name, 0.0) + counts.get(f"earlier_{kind}", 0.0)
        if granted and whole > AGAIN * granted:
            return f"{whole:.0f} {what} in all processes of a resumed run, of {granted:.0f} that the budget grants"
    return ""


def late_excess(counts: Mapping[str, float]) -> str:
    """Training after the fit, during answers to requests; "" if there was none."""
    found = _listed(counts, "late_")
    return f"{found} after the fit, where no training is granted" if found else ""


def extension_excess(counts: Mapping[str, float]) -> str:
    """What a second stage took beyond the budget; "" if nothing, or if there is no second stage."""
    for kind, what in WORDS.items():
        taken = counts.get(f"extension_{kind}", 0.0)
        granted = counts.get(f"granted_extension_{kind}", taken if kind != "steps" else 0.0)
        if taken > granted:
            return f"{taken:.0f} {what} of the extension, of {granted:.0f} that the budget grants"
    return ""


def _listed(counts: Mapping[str, float], prefix: str) -> str:
    """The counts of a prefix that are not zero, in words."""
    named = ((counts.get(prefix + kind), what) for kind, what in WORDS.items())
    return ", ".join(f"{count:.0f} {what}" for count, what in named if count)


def evaluations_excess(found: float | None, declared: int | None) -> str:
    """How many evaluations a sample takes if they exceed the declared number; "" otherwise."""
    if found is None or declared is None or found <= SLACK * declared + 0.5:
        return ""
    return f"about {found:.0f} evaluations of the network for a sample, of which {declared} were declared"


def excess(counts: Mapping[str, float], declared: int | None) -> tuple[str, ...]:
    """All counts that exceed the granted or declared ones, one phrase each.

    Args:
        counts: by the names above without their prefix.
        declared: the method's declared evaluations per sample.
    """
    found = (
        fit_excess(counts) or earlier_excess(counts),
        late_excess(counts),
        extension_excess(counts),
        evaluations_excess(counts.get("evaluations"), declared),
    )
    return tuple(filter(None, found))


def noted(counts: Mapping[str, float], declared: int | None) -> dict[str, float]:
    """Counts as notes of a record, and whether they exceed the budget; empty if compbench did not observe the fit."""
    beyond = float(bool(counts and excess(counts, declared)))
    return {PREFIX + name: value for name, value in {**counts, "beyond_budget": beyond}.items()} if counts else {}


def counted(record: Record) -> dict[str, float]:
    """The harness's counts of a run, by the names above without their prefix."""
    own = {name.removeprefix(PREFIX): value for name, value in record.notes.items() if name.startswith(PREFIX)}
    return {name: value for name, value in own.items() if isinstance(value, float)}


def in_words(record: Record) -> tuple[str, ...]:
    """Each quantity that a run took, next to what its budget grants or its method declares, as phrases; () without counts."""
    counts, found = counted(record), []
    for what, name, granted in (
        ("optimiser steps", "optimiser_steps", "granted_steps"),
        ("examples drawn", "examples", "granted_examples"),
        ("optimiser steps of the extension", "extension_steps", "granted_extension_steps"),
    ):
        if name in counts:
            budget = f" (budget {counts[granted]:,.0f})" if granted in counts else ""
            found.append(f"{counts[name]:,.0f} {what}{budget}")
    if counts.get("reported_steps") and not counts.get("optimiser_steps"):
        passes = counts.get("backward_passes", 0.0)
        found.append(f"none of {counts['reported_steps']:,.0f} reported steps seen, {passes:,.0f} backward passes")
    if "evaluations" in counts:
        declared = record.profile.evaluations_per_sample
        of = "" if declared is None else f" ({declared:,} declared)"
        found.append(f"operations of {counts['evaluations']:,.4g} evaluations a sample{of}")
    return tuple(found)


def beyond_budget(record: Record) -> tuple[str, ...]:
    """What a run took beyond its budget, or beyond what its method declares, one phrase each; () if nothing."""
    if not record.notes.get(f"{PREFIX}beyond_budget"):  # most records end here, without a look at other counts
        return ()
    counts = counted(record)
    if "granted_steps" not in counts:  # the record has no more detail
        used = f"{counts.get('optimiser_steps', 0):.0f} optimiser steps and {counts.get('examples', 0):.0f} examples"
        return (f"{used}, more than it grants or than was reported",)
    return excess({**dict.fromkeys(FIT, 0.0), **counts}, record.profile.evaluations_per_sample)


FIT = (
    "optimiser_steps",
    "examples",
    "granted_steps",
    "granted_examples",
    "reported_steps",
    "early_steps",
    "early_examples",
)
"""Names of the counts that belong to a fit."""


def beyond_by_phrase(records: Iterable[Record]) -> tuple[str, ...]:
    """Budget violations, each phrase once, with the seeds concerned."""
    seeds: dict[str, list[int]] = {}
    for record in records:
        for phrase in beyond_budget(record):
            seeds.setdefault(phrase, []).append(record.spec.seed)
    return tuple(f"{phrase} (seed {', '.join(map(str, sorted(own)))})" for phrase, own in sorted(seeds.items()))
