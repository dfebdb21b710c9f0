"""The costs of a row: speeds come only from `compbench profile`, other costs from the row's runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from compbench.api.schemas import Record
from compbench.board.cells import known_mean
from compbench.board.statistics import mean
from compbench.registry.equal_code import equal_code
from compbench.store.profiles import Cost, Costs

NONE = Costs()

SERVER_STEPS = "fit server_steps"
"""The note of a record in which a method says how many training steps its server took."""


class SiloCosts(NamedTuple):
    """What one silo sent, received and computed during a fit: means over silos, then over runs; `slowest` is a maximum.

    `server_steps` are training steps that the server took in addition to the silos', mean over runs; None if no record notes any.
    """

    num_silos: int
    rounds: float
    bytes_out: float
    bytes_in: float
    seconds: float
    slowest: float
    server_steps: float | None = None


class Timing(NamedTuple):
    """What a row costs.  Speeds, latency and memory come from a profile; None means unknown.

    Attributes:
        hardware: the machine of the profile; "" without a profile.
        clean: whether no other process used the machine during the profile; if not, its speeds are lower bounds.
        remark: "of other code" if the row's runs on that device had other code, "measured version N on TASK" for a task of the
            same kind, or "".
        num_runs: number of runs behind `seconds`; they are those on the machine type with the most runs.
        latency_p50_ms, latency_p95_ms: latency of a request of one sample.
        seconds: mean duration of a whole run, including the full cost of a shared fit; None if all runs were resumed.
        shared: whether some of these runs loaded a shared fit.
        train_flops, sample_flops: FLOPs of the whole fit, over all silos, and of one sample.
        train_steps: training steps of the whole fit, over all silos, stages and rounds.
        silos: what the silos sent, received and computed.
    """

    hardware: str
    clean: bool
    remark: str
    num_runs: int
    train_steps_per_second: float | None
    sample_samples_per_second: float | None
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    peak_memory_bytes: float | None
    seconds: float | None
    shared: bool
    train_flops: float | None
    sample_flops: float | None
    silos: SiloCosts | None = None
    train_steps: float | None = None

    def flops(self, samples: int) -> float | None:
        """FLOPs of training and of `samples` samples; None where one of these is not known."""
        if self.train_flops is None or self.sample_flops is None:
            return None
        return self.train_flops + samples * self.sample_flops

    def wall_seconds(self, samples: int) -> float | None:
        """Seconds that training and `samples` samples take on `hardware`: steps / (steps/s) + samples / (samples/s).

        None where one of these is not known.  A fit without steps takes no time here.
        """
        if not self.sample_samples_per_second or self.train_steps is None:
            return None
        sampling = samples / self.sample_samples_per_second
        if not self.train_steps:
            return sampling
        return self.train_steps / self.train_steps_per_second + sampling if self.train_steps_per_second else None


def timing(ok: Sequence[Record], costs: Costs = NONE, *, default: bool = False) -> Timing | None:
    """What the successful runs of a row cost; None if there are none.

    Args:
        ok: the runs.
        costs: the measurements of one machine.
        default: the runs are at their method's default settings.
    """
    machines: dict[str, list[Record]] = defaultdict(list)
    for record in ok:
        machines[_machine(record)].append(record)
    if not machines:
        return None
    runs = machines[min(machines, key=lambda name: (-len(machines[name]), name))]
    cost = next((cost for run in ok if (cost := costs.of(run, default=default)) is not None), None)
    found = cost.profile if cost else None
    return Timing(
        hardware=found.hardware if found else "",
        clean=bool(found and found.alone),
        remark=_remark(ok, cost) if cost else "",
        num_runs=len(runs),
        train_steps_per_second=found.train_steps_per_second if found else None,
        sample_samples_per_second=found.samples_per_second if found else None,
        latency_p50_ms=1000 * found.single.medians.median if found else None,
        latency_p95_ms=1000 * found.single.p95 if found else None,
        peak_memory_bytes=found.peak_memory_bytes.median if found else None,
        seconds=known_mean(map(charged_seconds, runs)),
        shared=any(map(loaded_shared_fit, runs)),
        train_flops=known_mean(map(train_flops, ok)),
        sample_flops=known_mean(run.profile.flops_per_sample for run in ok),
        silos=silo_costs(runs),
        train_steps=known_mean(map(train_steps, ok)),
    )


def _remark(ok: Sequence[Record], cost: Cost) -> str:
    if cost.of_task or cost.of_version:
        parts = (f"version {cost.of_version}" if cost.of_version else "", f"on {cost.of_task}" if cost.of_task else "")
        return f"measured {' '.join(filter(None, parts))}"
    name, measured = equal_code().name, cost.profile.spec
    alike = [run for run in ok if run.spec.device_class == measured.device_class]
    return "of other code" if any(name(run.spec.code) != name(measured.code) for run in alike) else ""


def loaded_shared_fit(record: Record) -> bool:
    """Whether a run loaded a fit that another run had made."""
    return record.notes.get("fit shared") == 1.0


def charged_seconds(record: Record) -> float | None:
    """Seconds of a whole run; a run that loaded a shared fit is charged the seconds that the fit took.

    None for a run that was resumed, because its record has only the seconds of the last process.
    """
    if record.resumed:
        return None
    return record.seconds + (record.profile.seconds("fit") if loaded_shared_fit(record) else 0.0)


def train_steps(record: Record) -> int:
    """Training steps of the whole fit, over all silos, stages and rounds; the budget's if the record did not count them."""
    profile = record.profile
    if profile.train_steps is not None:
        return profile.train_steps
    return sum(silo.steps for silo in profile.silos) if profile.silos else record.spec.budget.train_steps


def train_flops(record: Record) -> float | None:
    """Floating point operations of the whole fit, over all silos and stages; None where they were not counted.

    Equal steps do not mean equal cost: FLOPs per step differ by method, and steps are counted per silo.
    """
    profile = record.profile
    if profile.flops_per_train_step is None:
        return None
    steps = train_steps(record)
    return profile.flops_per_train_step * steps if steps or profile.train_steps == 0 else None


def pooled_steps(records: Sequence[Record]) -> float:
    """Largest number of a run's training steps on pooled data, in units of a silo's step budget; 0 if no record reports any."""
    taken = [(record.profile.train_steps or 0) / record.spec.budget.train_steps for record in records if record.pooled_silos]
    return max(taken, default=0.0)


def silo_costs(runs: Sequence[Record]) -> SiloCosts | None:
    """Costs per silo of the metered runs; None on a centralised task, or if the silos' data were pooled."""
    metered = [run.profile.silos for run in runs if run.profile.silos]
    if not metered:
        return None
    noted = [run.notes.get(SERVER_STEPS) for run in runs if run.profile.silos]

    def each(name: str) -> float:
        return mean([mean([getattr(silo, name) for silo in silos]) for silos in metered])

    return SiloCosts(
        num_silos=max(map(len, metered)),
        rounds=each("rounds"),
        bytes_out=each("bytes_out"),
        bytes_in=each("bytes_in"),
        seconds=each("seconds"),
        slowest=mean([max(silo.seconds for silo in silos) for silos in metered]),
        server_steps=known_mean(steps for steps in noted if isinstance(steps, float)),
    )


def _machine(record: Record) -> str:
    """The machine type over which seconds may be averaged: a GPU's name, or a CPU model with its number of threads."""
    where = record.environment
    return record.spec.device_class if record.spec.device_class != "cpu" else f"{where.cpu}, {where.threads}"
