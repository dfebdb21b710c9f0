"""Check a contestant's self-report: its process runs plugin code, so it can report anything.

Scores come from the referee and are not checked here.  Speeds are measured by the parent (training steps) and the referee
(requests, peak, energy).  The contestant reports its stages, FLOPs, memory and counts; if our clocks contradict the report, or if
the contestant worked when it should have been idle, no speed is kept.
"""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable
from typing import Any

import compbench
from compbench.api.interfaces import Budget
from compbench.api.schemas import Environment, Profile, Stage
from compbench.runner import sandbox
from compbench.runner.messages import Evaluated, FitCost
from compbench.system.devices import cpu_name, num_cores
from compbench.system.files import Json
from compbench.system.profiling import StepMeter

SLACK_SECONDS, SLACK_SHARE = 5.0, 0.5
"""A contestant may report this much less time than we measured, because messages and a busy machine take time too."""
BYTES_PER_SECOND = 1e8
"""Cautious estimate of the speed at which samples travel to the referee, in bytes per second."""
IDLE_SECONDS, IDLE_SHARE = 1.0, 0.1
"""CPU seconds that an idle contestant may use, in addition to a share of the CPU seconds that it used to sample."""
STEPS_SLACK = 2
"""A fit may report at most this many times the budget's steps, per silo and for the server."""
MOST_SILOS = 100
PEAK_SLACK = 1.5
"""A share of the measured peak between 1 and this means that the peak was measured badly; a larger share is impossible."""
ITS_OWN = frozenset({"train_steps", "evaluations_per_sample", "parameters", "flops_per_train_step", "flops_per_sample"})
ITS_OWN |= {"peak_memory_bytes", "stages", "extension", "silos"}
"""Fields of a profile that the contestant reports; the parent and the referee fill all others."""
Listener = Callable[[str, int, int], None]


class Watch:
    """The parent's own observations of a run: progress by the parent's clock (also passed to `listener`), and the CPU seconds of
    the contestant and its descendants (None if not known) before and after each piece of work.
    """

    def __init__(self, listener: Listener, cpu_seconds: Callable[[], float | None] = lambda: None) -> None:
        self._listener, self._cpu_seconds = listener, cpu_seconds
        self.meter = StepMeter()
        self.idle_cpu_seconds = self.sampling_cpu_seconds = 0.0
        self._last: float | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == "fit":
            self.meter.step(done)
        self._listener(stage, done, total)

    def worked(self, *, sampling: bool = False) -> None:
        """Note that the contestant has finished an order, or, with `sampling`, that it has answered the referee's requests."""
        self.sampling_cpu_seconds += self._since_last() * sampling

    def waited(self) -> None:
        """Note that the contestant gets a new order; the CPU time since the last order ended belongs to no stage."""
        self.idle_cpu_seconds += self._since_last()

    def _since_last(self) -> float:
        now = self._cpu_seconds()
        used = 0.0 if now is None or self._last is None else max(0.0, now - self._last)
        self._last = now
        return used


def profile_of(
    measured: dict[str, Json],
    refereed: Evaluated,
    watch: Watch,
    *,
    budget: Budget,
    fit_seconds: float,
    shared: FitCost | None = None,
    num_silos: int = 1,
) -> Profile:
    """The profile of a run; if its speeds cannot be true, it has no speeds and says why.

    Args:
        measured: the contestant's own part, unverified.
        refereed, watch: what the referee measured, and what the parent observed.
        fit_seconds: seconds of opening the data and fitting, by the parent's clock.
        shared: cost of another run's fit, if that fit was loaded.
        num_silos: number of the task's silos; a method that pools them may take the steps of all.
    """
    ours: dict[str, Json] = {"referee_memory_bytes": refereed.referee_memory_bytes}
    try:
        reported = Profile(
            **{name: value for name, value in measured.items() if name in ITS_OWN or name not in Profile.model_fields}
        )
    except (TypeError, ValueError) as error:
        why = f"the contestant sent no profile: {' '.join(str(error).split())[:300]}"
        return Profile(**ours, stages=refereed.stages, distrust=why)
    stages, idle = _stages(reported, refereed, watch, shared)
    why = _contradiction(reported, watch, budget, fit_seconds, shared, num_silos)
    slack = IDLE_SECONDS + IDLE_SHARE * watch.sampling_cpu_seconds + refereed.num_bytes / BYTES_PER_SECOND
    if not why and idle > slack:
        why = f"it used {idle:.3g} CPU seconds while it had nothing to do"
    if not why:
        ours |= _speeds(reported, refereed, watch, budget, shared)
        why = str(ours.pop("distrust", ""))
    return Profile(**{**dict(reported), **ours, "stages": stages, "distrust": why})


def _stages(reported: Profile, refereed: Evaluated, watch: Watch, shared: FitCost | None) -> tuple[list[Stage], float]:
    """All stages, and the contestant's CPU seconds outside of any stage.

    The seconds of sampling come from the referee, its CPU time from the contestant.  During warm-up the contestant may keep all
    cores busy, because a compiler starts processes that the contestant's clock does not see.
    """
    answered = {name: sum(stage.cpu_seconds for stage in reported.stages if stage.name == name) for name in ("warm_up", "sample")}
    seen = watch.sampling_cpu_seconds
    warming = num_cores() * sum(stage.seconds for stage in refereed.stages if stage.name == "warm_up")
    idle = watch.idle_cpu_seconds + max(0.0, seen - answered["sample"] - warming)
    stages = [stage for stage in reported.stages if stage.name not in answered and not (shared and stage.name == "fit")]
    if shared:
        stages.append(Stage(name="fit", seconds=shared.seconds, cpu_seconds=shared.cpu_seconds))
    for stage in refereed.stages:
        said_cpu = answered.get(stage.name)
        own = {} if said_cpu is None else {"cpu_seconds": min(said_cpu, seen or said_cpu)}
        stages.append(stage.model_copy(update=own))
    if idle >= 0.05:  # less than this is the cost of a few messages
        stages.append(Stage(name="outside", seconds=0.0, cpu_seconds=round(idle, 2)))
    return stages, idle


def _speeds(reported: Profile, refereed: Evaluated, watch: Watch, budget: Budget, shared: FitCost | None) -> dict[str, Json]:
    """Rates, latency, shares of peak and energy by our clocks; `distrust` if FLOPs exceed the device's peak."""
    found: dict[str, Json] = {"energy_joules": None if shared else refereed.energy_joules}
    rate = None if shared else watch.meter.rate()
    times = sorted(refereed.request_seconds[1:] or refereed.request_seconds)  # if there are several, the first is warm-up
    samples = refereed.batch / statistics.median(times) if times and times[0] > 0 else None
    found |= {"train_steps_per_second": rate, "train_samples_per_second": rate and rate * budget.batch_size}
    if samples:
        found |= {"sample_samples_per_second": samples, "sample_batch": refereed.batch, "latency_batch": refereed.batch}
        found["latency_p50_ms"] = 1000 * statistics.median(times)
        found["latency_p95_ms"] = 1000 * times[round(0.95 * (len(times) - 1))]
    rates = {
        "share_of_peak_training": (reported.flops_per_train_step or 0.0) * (rate or 0.0),
        "share_of_peak_sampling": (reported.flops_per_sample or 0.0) * (samples or 0.0),
    }
    measured = refereed.peak_flops_per_second
    if measured:
        peak = max(measured, *rates.values())  # so that the peak is the largest value ever measured
        if peak > PEAK_SLACK * measured:
            return {"distrust": f"its reported FLOPs mean {peak:.3g} per second on a device whose peak is {measured:.3g}"}
        found["peak_flops_per_second"] = peak
        found |= {name: value / peak for name, value in rates.items() if value}
    return found


def _contradiction(
    reported: Profile, watch: Watch, budget: Budget, fit_seconds: float, shared: FitCost | None, num_silos: int
) -> str:
    """Why the contestant's report on its fit cannot be true; "" if it can."""
    names = ("setup", "data", "extend") if shared else ("setup", "data", "fit", "extend")
    fitted = sum(map(reported.seconds, names))
    less = not shared and fitted < SLACK_SHARE * fit_seconds and fit_seconds - fitted > SLACK_SECONDS
    if less or fitted > fit_seconds + IDLE_SECONDS:
        return f"it reported {fitted:.3g} s for a fit that took {fit_seconds:.3g} s"
    parties = len(reported.silos) + 1 if reported.silos else num_silos
    most = STEPS_SLACK * min(parties, MOST_SILOS + 1) * budget.train_steps
    done = max(watch.meter.done, (shared.train_steps if shared else reported.train_steps) or 0)
    if done > most:
        return f"it reported {done} training steps where the budget allows {budget.train_steps} per silo"
    return ""


def environment_of(facts: dict[str, Any], *, sandboxed: bool, **known: object) -> Environment:
    """The environment of a run, from the contestant's report (`facts`) and the parent: never a host name, a user or a path."""
    return Environment(
        compbench=compbench.__version__,
        python=platform.python_version(),
        torch=str(facts.get("torch", "")),
        platform=f"{platform.system()} {platform.machine()}",
        cpu=cpu_name(),
        cores=num_cores(),
        threads=int(facts.get("threads", 0)),
        sandbox=sandbox.kind() if sandboxed else "off",
        packages={str(name): str(version) for name, version in dict(facts.get("packages", {})).items()},
        **known,
    )
