"""Check whether a record is plausible: its location, its scores and costs, and its agreement with installed tasks and metrics."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

from compbench.api.interfaces import Metric, Score, Task
from compbench.api.schemas import Record
from compbench.api.shots import SETTING, digest_of
from compbench.registry.registry import Entry, Kind, Registry
from compbench.system.errors import CompbenchError

SHARES = frozenset({"mode_share", "precision", "recall", "success_rate", "feasibility", "trivial_rate", "execution_ceiling"})
"""These metrics count samples, k of n.  Each metric whose name ends with `accuracy` does so too."""
ROUNDING = 1e-3
"""Largest difference between n times a share and the count k: a share is a float32 mean of n zeros and ones, n up to 10,000."""
RATE_FACTOR, RATE_SECONDS = 4.0, 1.0
"""How far (steps) / (steps/s) may differ from the fit's seconds: the rate is a median over windows, but the seconds cover all.
In 640 honest records from a busy machine the ratio was between 0.32 and 1.45."""
BURST_FACTOR, BURST_SECONDS = 2.0, 5.0
"""In a fit that is not short, the steps take at least half of the fit's seconds, as in all published CPU records.  A method that
reports its steps in one burst after long silent work therefore gets no speed."""
SPEEDS = (
    "train_steps_per_second",
    "train_samples_per_second",
    "sample_samples_per_second",
    "sample_batch",
    "latency_p50_ms",
    "latency_p95_ms",
    "latency_batch",
    "share_of_peak_training",
    "share_of_peak_sampling",
    "energy_joules",
)
"""Fields of a profile that are removed from a record if its costs contradict each other."""
SUM_SHARE, SUM_SECONDS = 1.02, 1.0
"""Slack for the sum of all stages.  Stages follow each other, so together they take no longer than the run, up to clock error."""


def check_place(record: Record, path: Path) -> None:
    """Raise CompbenchError unless identity, file name and artifact names agree; in renamed copies and forgeries they do not."""
    try:
        identity = record.spec.identity
    except (ValueError, RecursionError) as error:  # NaN, or nesting without end, in settings
        raise CompbenchError(f"has settings that are not plain JSON: {str(error)[:120]}.") from error
    if record.identity != identity:
        raise CompbenchError("has an identity that is not the hash of its spec.")
    if path.stem != record.name:
        raise CompbenchError(f"is the record {record.name} under another name.")
    if any(not artifact.name.startswith(f"{record.name}.") for artifact in record.artifacts):
        raise CompbenchError("names artifacts of another record.")


def check_scores(record: Record) -> None:
    """Raise CompbenchError if two scores have one name, or if a share of n samples is not k / n for any count k."""
    if len({score.name for score in record.scores}) < len(record.scores):
        raise CompbenchError("has two scores with the same name.")
    for score in record.scores:
        if score.metric in SHARES or score.metric.endswith("accuracy"):
            _check_share(score)
        if score.by_cell:
            _check_cells(score)


def check_costs(record: Record) -> None:
    """Raise CompbenchError if the costs contradict each other but the record does not say so, or if it says so but has speeds."""
    profile = record.profile
    if not profile.distrust:
        if doubt := doubt_of(record):
            raise CompbenchError(f"{doubt}.")
    elif any(getattr(profile, name) is not None for name in SPEEDS):
        raise CompbenchError("has speeds, although it says that they cannot be true.")


def judged(record: Record) -> Record:
    """Prepare a record for writing: if its costs contradict each other, the record notes that, and its speeds are removed.

    `check_costs` applies the same test, so a record that is written here is not refused later.
    """
    if record.profile.distrust or not (doubt := doubt_of(record)):
        return record
    profile = record.profile.model_copy(update={**dict.fromkeys(SPEEDS), "distrust": f"it {doubt}"})
    return record.model_copy(update={"profile": profile})


def doubt_of(record: Record) -> str:
    """Which costs of a record contradict each other; "" if none do."""
    profile = record.profile
    for name in ("share_of_peak_training", "share_of_peak_sampling"):
        if (share := getattr(profile, name) or 0.0) > 1:
            return f"has a {name.replace('_', ' ')} of {share:.3g}, but a share of the peak is at most 1"
    rate, seconds = profile.train_steps_per_second, profile.seconds("fit")
    if rate and seconds:
        counts: set[float] = {profile.train_steps or record.spec.budget.train_steps, sum(silo.steps for silo in profile.silos)}
        if record.resumed:  # clock and counts cover only the last process
            taken = record.notes.get("counted optimiser_steps")
            counts = {taken} if isinstance(taken, float) else set()
        counts -= {0}
        if counts and not any(_agree(count / rate, seconds, compiles=record.spec.device_class != "cpu") for count in counts):
            return f"says {rate:.4g} training steps/s, and {max(counts):.0f} steps in a fit of {seconds:.4g} s"
    shared = seconds if "fit shared" in record.notes else 0.0  # another run's seconds
    stages = sum(stage.seconds for stage in profile.stages) - shared
    if record.seconds and stages > SUM_SHARE * record.seconds + SUM_SECONDS:
        return f"has stages of {stages:.4g} s in a run of {record.seconds:.4g} s"
    return ""


def check_shots(record: Record) -> None:
    """Raise CompbenchError unless a record names as many shots of each held-out cell as its settings ask for.

    The seed determines which examples they are: `compbench reproduce` draws them again.
    """
    num_shots, given = record.spec.task_settings.get(SETTING), record.shots
    if given is None:
        if num_shots and record.status == "ok" and _takes_shots(record):
            raise CompbenchError(
                f"was trained on {num_shots} shots of each held-out cell by its settings, and does not name them."
            )
        return
    if num_shots != given.per_cell:
        raise CompbenchError(f"names {given.per_cell} shots of each held-out cell; its settings ask for {num_shots or 'none'}.")
    if not given.examples:
        return
    if len(set(given.examples)) != given.per_cell * given.num_cells or digest_of(given.examples) != given.digest:
        raise CompbenchError(f"does not name {given.per_cell} different shots of each of its {given.num_cells} held-out cells.")
    task = _shipped_task(record.spec.task)
    scored = {one.cell for score in record.scores if score.split == "heldout" for one in score.by_cell}
    if task is None or not scored:
        return
    conditions = (list(map(int, name.partition("#")[0].split("."))) for name in given.examples)
    cells = Counter(tuple(condition[place] for place in task.holdout.factors) for condition in conditions)
    if cells != dict.fromkeys(scored, given.per_cell):
        raise CompbenchError("names shots of other cells than those that it scored as held out.")


def check_known(record: Record) -> None:
    """Raise CompbenchError if a record names a version or direction that differs from our own tasks and metrics.

    Such a record would displace honest ones.  Tasks and metrics of other packages are not checked, because no board depends on
    them.
    """
    task = _shipped_task(record.spec.task)
    if task is not None and record.spec.task_version > task.version:
        raise CompbenchError(f"has version {record.spec.task_version} of '{task.name}', which is at {task.version} here: update.")
    for score in record.scores:
        metric = shipped_metric(score.metric)
        if metric is None:
            continue
        if score.metric_version > metric.version:
            version = score.metric_version
            raise CompbenchError(f"has version {version} of metric '{metric.name}', which is at {metric.version} here: update.")
        if score.direction != metric.direction:
            raise CompbenchError(
                f"says that {score.direction} is better for '{metric.name}'; for this metric, {metric.direction} is better."
            )


def _takes_shots(record: Record) -> bool:
    """Whether `task.shots` is the harness's setting; a task of another package may have its own setting of that name."""
    task = _shipped_task(record.spec.task)
    return task is not None and SETTING not in type(task.settings).model_fields


def _check_share(score: Score) -> None:
    whole = 100.0 if score.unit == "%" else 1.0
    for what, value in (("", score.value), (" ceiling of", score.ceiling)):
        if value is not None and not 0 <= value <= whole * (1 + 1e-6):
            raise CompbenchError(f"has a{what} {score.name} of {value:g}, but a share lies between 0 and {whole:g}.")
    if score.value is not None and score.n:
        count = score.value / whole * score.n
        if abs(count - round(count)) > ROUNDING * max(1.0, score.n / 10_000):
            raise CompbenchError(f"has a {score.name} of {score.value:.10g}, which no count of {score.n} samples gives.")


def _check_cells(score: Score) -> None:
    """Check that counts by cell add up to the score, name each cell once, and do not count more correct samples than samples."""
    whole = 100.0 if score.unit == "%" else 1.0
    right, n = (sum(getattr(count, name) for count in score.by_cell) for name in ("right", "n"))
    once = len({count.cell for count in score.by_cell}) == len(score.by_cell)
    possible = all(0 <= count.right <= count.n for count in score.by_cell)
    adds_up = score.value is not None and n == score.n and abs(score.value / whole * n - right) <= ROUNDING * max(1.0, n / 10_000)
    if not (once and possible and adds_up):
        raise CompbenchError(f"has counts by cell that do not match its {score.name}.")


def _agree(claimed: float, measured: float, *, compiles: bool) -> bool:
    """Whether the seconds that a rate implies agree with the clock; they may be far fewer if the fit compiles first."""
    least = max(measured / RATE_FACTOR - RATE_SECONDS, measured / BURST_FACTOR - BURST_SECONDS)
    enough = compiles or claimed >= least
    return enough and claimed <= RATE_FACTOR * measured + RATE_SECONDS


@cache
def _shipped_task(name: str) -> Task | None:
    """The task of this name if it is compbench's own, else None."""
    entry = _shipped("tasks", name)
    found: Task | None = None if entry is None else _registry().attempt(entry).value
    return found


@cache
def shipped_metric(name: str) -> Metric | None:
    """The metric of this name if it is compbench's own, else None."""
    entry = _shipped("metrics", name)
    found: Metric | None = None if entry is None else _registry().attempt(entry).value
    return found


def _shipped(kind: Kind, name: str) -> Entry | None:
    entry = next((entry for entry in _registry().entries(kind) if entry.name == name), None)
    return entry if entry is not None and entry.distribution == "compbench" else None


_registry = cache(Registry)
