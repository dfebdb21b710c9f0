"""What the runs of a row cost, on one machine type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compbench.board.statistics import mean
from compbench.devices import SPARE_CORES
from compbench.schemas import Record


class SiloCosts(NamedTuple):
    """What one silo sent, received and computed during a fit: means over silos, then over runs; of `slowest` the largest."""

    num_silos: int
    rounds: float
    bytes_out: float
    bytes_in: float
    seconds: float
    slowest: float


class Timing(NamedTuple):
    """Means over the runs on one machine type; if not `clean`, others shared the machine and speeds are lower bounds."""

    hardware: str
    clean: bool
    num_runs: int
    train_steps_per_second: float | None
    sample_samples_per_second: float | None
    latency_p50_ms: float | None
    peak_memory_bytes: float | None
    seconds: float
    silos: SiloCosts | None = None


def timing(ok: Sequence[Record]) -> Timing | None:
    """Speeds of the machine type with the most clean runs (by name if equal): machine types are never averaged."""
    machines: dict[str, list[Record]] = defaultdict(list)
    for record in ok:
        machines[_hardware(record)].append(record)
    if not machines:
        return None
    clean = {name: [run for run in runs if _undisturbed(run)] for name, runs in machines.items()}
    hardware = min(machines, key=lambda name: (-len(clean[name]), -len(machines[name]), name))
    runs = clean[hardware] or machines[hardware]
    return Timing(
        hardware=hardware,
        clean=bool(clean[hardware]),
        num_runs=len(runs),
        train_steps_per_second=known_mean(run.profile.train_steps_per_second for run in runs),
        sample_samples_per_second=known_mean(run.profile.sample_samples_per_second for run in runs),
        latency_p50_ms=known_mean(run.profile.latency_p50_ms for run in runs),
        peak_memory_bytes=known_mean(run.profile.peak_memory_bytes for run in runs),
        seconds=mean([run.seconds for run in runs]),
        silos=silo_costs(runs),
    )


def silo_costs(runs: Sequence[Record]) -> SiloCosts | None:
    """Costs a silo, of the runs that were metered; None on a centralised task, or where the silos' data were pooled."""
    metered = [run.profile.silos for run in runs if run.profile.silos]
    if not metered:
        return None

    def each(name: str) -> float:
        return mean([mean([getattr(silo, name) for silo in silos]) for silos in metered])

    return SiloCosts(
        num_silos=max(map(len, metered)),
        rounds=each("rounds"),
        bytes_out=each("bytes_out"),
        bytes_in=each("bytes_in"),
        seconds=each("seconds"),
        slowest=mean([max(silo.seconds for silo in silos) for silos in metered]),
    )


def _undisturbed(record: Record) -> bool:
    """Whether neither another run nor, as far as is known, another process took what this one could have used."""
    where = record.environment
    if where.slots > 1 or record.spec.device_class != "cpu" or where.other_cores is None:
        return where.slots == 1
    return where.threads + where.other_cores <= where.cores + SPARE_CORES


def _hardware(record: Record) -> str:
    """What speeds may be averaged over: a GPU's name, or a CPU model with its number of threads."""
    where = record.environment
    if record.spec.device_class != "cpu":
        return record.spec.device_class
    threads = f"{where.threads} thread{'' if where.threads == 1 else 's'}" if where.threads else ""
    return ", ".join(part for part in (where.cpu or "cpu", threads) if part)


def known_mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None
