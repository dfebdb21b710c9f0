"""What a contestant says of itself, read without trust: its process runs plugin code, so anything may come.

Scores are the referee's and never pass through here.  Speeds are the contestant's own, taken by clocks that were captured
before the plugin was loaded; they are dropped where the parent's or the referee's clock contradicts them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from compbench.errors import CompbenchError
from compbench.registry import Registry
from compbench.run.messages import Evaluated, FitCost
from compbench.schemas import Plugin, Profile, RunRequest, Stage
from compbench.store.meaning import meaning

SLACK_SECONDS, SLACK_SHARE = 5.0, 0.5
"""How much less than ours a contestant's clock may say: messages, imports and a busy machine take time too."""
BYTES_PER_SECOND = 1e8
"""A cautious speed of samples on their way to the referee."""

SPEEDS = (
    "train_steps_per_second",
    "train_samples_per_second",
    "sample_samples_per_second",
    "latency_p50_ms",
    "latency_p95_ms",
    "share_of_peak_training",
    "share_of_peak_sampling",
    "energy_joules",
)


def plugin_of(request: RunRequest, registry: Registry) -> Plugin:
    """The method's distribution and file as this process finds them, before any of its code has run."""
    entry = registry.entry("methods", request.method)
    try:
        return Plugin(
            distribution=Path(entry.distribution).name,
            version=entry.version,
            module=entry.module if entry.version != "file" else Path(entry.module).name,
            file_sha256=entry.sha256,
        )
    except (ValidationError, OSError) as error:
        raise CompbenchError(f"the plugin of '{request.method}' cannot be read: {str(error)[:300]}.") from error


def scope_of(request: RunRequest, registry: Registry) -> str:
    """Hash of the code that a shared fit may run: the task's, and that of all methods of the request's distribution.

    Fits are shared among these methods and with no one else.
    """
    own = registry.entry("methods", request.method)
    siblings = [entry for entry in registry.entries("methods") if entry.distribution == own.distribution and not entry.problem]
    task = registry.entry("tasks", request.task)
    code = meaning(("task", task), *(("method", entry) for entry in siblings))
    return hashlib.sha256(f"{own.distribution} {code.digest}".encode()).hexdigest()


def profile_of(measured: dict[str, Any], refereed: Evaluated, *, fit_seconds: float, shared: FitCost | None = None) -> Profile:
    """The profile of a run.

    Args:
        measured: the contestant's own profile, as it came.
        refereed: what the referee measured.
        fit_seconds: of opening the data and fitting, by the parent's clock.
        shared: what a fit of another run took, if it was taken.

    Returns:
        the profile; without speeds, and saying why, where they cannot be true.
    """
    ours = {"stages": refereed.stages, "referee_memory_bytes": refereed.referee_memory_bytes}
    try:
        said = Profile(**{**measured, "stages": measured.get("stages", [])})
    except (ValidationError, TypeError, ValueError) as error:
        return Profile(**ours, distrust=f"the contestant sent no profile: {' '.join(str(error).split())[:300]}")
    why = _contradiction(said, refereed, fit_seconds)
    kept = {name: value for name, value in said if not (why and name in SPEEDS) and name not in ("stages", "distrust")}
    stages = [stage for stage in said.stages if not (shared and stage.name == "fit")]
    if shared:
        stages.append(Stage(name="fit", seconds=shared.seconds, cpu_seconds=shared.cpu_seconds))
    stages += refereed.stages
    return Profile(**{**kept, **ours, "stages": stages, "distrust": why})


def _contradiction(said: Profile, refereed: Evaluated, fit_seconds: float) -> str:
    """Why the contestant's clock cannot be believed; "" if it can."""
    fitted = sum(said.seconds(name) for name in ("setup", "data", "fit", "extend"))
    if _too_short(fitted, fit_seconds, SLACK_SECONDS):
        return f"its clock says {fitted:.3g} s of a fit that took {fit_seconds:.3g} s"
    batch, rate = said.sample_batch, said.sample_samples_per_second
    if not batch or not rate:
        return ""
    claimed, sampled = refereed.num_samples / rate, refereed.seconds
    if _too_short(claimed, sampled, SLACK_SECONDS + refereed.num_bytes / BYTES_PER_SECOND):
        return f"its clock says {claimed:.3g} s of sampling that took {sampled:.3g} s"
    return ""


def _too_short(claimed: float, measured: float, slack: float) -> bool:
    return claimed < SLACK_SHARE * measured and measured - claimed > slack
