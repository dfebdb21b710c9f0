"""What `run` prints at its end: the ranked score and its meaning, the cost, and where the files are, in one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compbench.api.factors import identifiability
from compbench.board.notation import WORSE, count, duration, operations
from compbench.board.row import CONSTANT
from compbench.board.scale import real_of, zero_of
from compbench.board.timing import train_flops
from compbench.cli import cell_map as lattice
from compbench.cli import output, show
from compbench.registry.registry import Registry

if TYPE_CHECKING:
    from compbench.api.interfaces import Score
    from compbench.api.schemas import Record

SPLITS = {"heldout": "combinations never trained on", "seen": "combinations trained on", "all": "all combinations"}


def show_result(record: Record, path: Path, *, reused: bool, verbose: bool = False, plugins: Sequence[Path] = ()) -> None:
    """Print a run's result in a screenful; a run that failed, and `verbose`, print the whole record (`show`)."""
    if verbose or record.status != "ok":
        show.show_record(record, path, reused=reused, verbose=verbose, plugins=plugins)
        return
    console = output.console()
    show.print_head(console, record, reused=reused)
    show.print_named(console, lines(record, plugins))
    show.print_lattice(console, record)
    show.print_files(console, record, path)
    output.say(
        console, "more     ", f"`compbench show {record.name}`: all {len(record.scores)} scores, settings, machine, losses"
    )


def lines(record: Record, plugins: Sequence[Path] = ()) -> Iterator[tuple[str, str]]:
    """(name, text) of each line: the ranked score and its meaning, the seen one, warnings, and cost."""
    primary = record.primary
    if primary is not None:
        yield "result", _value(primary, record)
        yield "", _meaning(primary)
        seen = record.score(primary.name.replace("heldout", "seen", 1)) if primary.split == "heldout" else None
        if seen is not None and seen.value is not None:
            yield "seen", f"{_value(seen)}: the same on {SPLITS['seen']}, {seen.n} samples"
    if (why := _not_identified(record)) and primary is not None:
        yield "note", why
    missing = [score for score in record.scores if score.value is None and not score.primary]
    if missing:
        reasons = dict.fromkeys(score.reason for score in missing if score.reason)
        names = ", ".join(score.name for score in missing)
        yield "optional", f"{names}: not computed, and not used for ranks; {'; '.join(reasons)}"
    yield from (
        line
        for line in show.circumstances(record, plugins=plugins)
        if line[0] in ("changed", "note", "budget", "warning", "resumed", "doubted", "scored")
    )
    yield from (line for line in show.counts(record, verbose=False) if line[0] == "unstable")
    yield "cost", cost(record)


def _value(score: Score, record: Record | None = None) -> str:
    """`heldout_accuracy 0.53 (higher is better); best constant answer 0.033, real data 1`; then a warning if it is worse."""
    if score.value is None:
        return f"{score.name} has no value: {score.reason}"

    beside, worse = [], ""
    if record is not None and (zero := zero_of(record, score)) is not None:
        beside.append(f"best constant answer {zero:.4g}")
        below = score.value < zero if score.direction == "higher" else score.value > zero
        is_constant = (record.spec.method, record.plugin.distribution) == CONSTANT  # it ignores the request itself
        worse = f"; {WORSE}" if below and not is_constant else ""
    if (real := real_of(score)) is not None:
        beside.append(f"real data {real:.4g}" + (" (can be a little below 0)" if real < 0 else ""))
    unit = f" {score.unit}" if score.unit else ""
    side = f" ({score.direction} is better)" if record is not None else ""
    return f"{score.name} {score.value:.4g}{unit}{side}{'; ' if beside else ''}{', '.join(beside)}{worse}"


def _meaning(score: Score) -> str:
    """One sentence: what the metric measures, of which combinations, and of how many samples."""
    entries = {entry.name: entry.summary for entry in Registry().entries("metrics")}
    what = entries.get(score.metric, score.metric.replace("_", " "))
    of = SPLITS.get(score.split)
    return f"{what}; of {score.n} samples" + (f" of {of}" if of else "") + "; the board ranks by it"


def _not_identified(record: Record) -> str:
    """A warning if the seen cells do not determine the held-out ones, even when each factor acts independently."""
    task = lattice.task_of(record)
    if task is None or record.spec.task_settings or not task.holdout.cells:
        return ""
    if identifiability(task.holdout.pattern_space.sizes, task.holdout.seen_cells).feasible:
        return ""
    return (
        "the seen cells of this task do not determine the held-out ones; what a score has above the best constant answer comes "
        f"from the method or from other factors (`compbench info {record.spec.task}`)"
    )


def cost(record: Record) -> str:
    """What a run cost, in one line: longest stages (or the time between stages), parameters, operations, memory, speed."""
    profile = record.profile
    parts = [*((stage.name, stage.seconds) for stage in profile.stages), ("between stages", show.between(record))]
    long = sorted((part for part in parts if part[1] >= 1), key=lambda part: -part[1])[:3] if profile.stages else []
    stages = ", ".join(f"{name} {duration(seconds)}" for name, seconds in long)
    facts = [duration(record.seconds) + (f" ({stages})" if stages else "")]
    if profile.parameters is not None:
        facts.append(f"{count(profile.parameters)} parameters")
    if (flops := train_flops(record)) is not None:
        facts.append(f"{operations(flops)} to train")
    if profile.evaluations_per_sample is not None:
        facts.append(f"{profile.evaluations_per_sample} evaluations a sample")
    if (speed := profile.sample_samples_per_second) is not None:
        rate = count(speed) if speed >= 1000 else f"{speed:.3g}"
        facts.append(f"{rate} samples/s")
    return ", ".join(facts)
