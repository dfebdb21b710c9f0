"""Records for tests, made without running anything."""

from __future__ import annotations

from typing import Any

from compbench.interfaces import Budget, Score
from compbench.schemas import Environment, Profile, Record, RunSpec

BUDGET = Budget(train_steps=10, batch_size=4, width=8, learning_rate=1e-3, sample_steps=5)


def record(
    *,
    method: str = "factored",
    task: str = "shapes3d-heavy",
    seed: int = 0,
    value: float = 0.5,
    status: str = "ok",
    attempt: int = 1,
    preset: str = "quick",
    source: str = "embedded",
    device: str = "cpu",
    slots: int = 1,
    reason: str = "",
    settings: dict[str, Any] | None = None,
    speed: float = 100.0,
) -> Record:
    """A record with one primary accuracy and one distance."""
    spec = RunSpec(
        task=task,
        task_version=1,
        method=method,
        method_version=1,
        code="0" * 64,
        settings=settings or {},
        budget=BUDGET,
        preset=preset,
        seed=seed,
        device_class=device,
        precision="fp32",
        source=source,
        fingerprint="renderer-1",
    )
    scores = (
        Score(
            name="heldout_accuracy",
            metric="accuracy",
            split="heldout",
            value=value,
            n=320,
            direction="higher",
            ceiling=0.98,
            primary=True,
        ),
        Score(name="heldout_fd_judge", metric="fd_judge", split="heldout", value=12.0, n=320, direction="lower", floor=3.0),
        Score(name="heldout_fid", metric="fid", split="heldout", value=None, n=320, direction="lower", reason="no weights"),
    )
    return Record(
        identity=spec.identity,
        attempt=attempt,
        spec=spec,
        status=status,
        reason=reason,
        scores=scores if status == "ok" else (),
        profile=Profile(sample_samples_per_second=speed, train_steps_per_second=5.0, parameters=1000),
        environment=Environment(compbench="0.1.0", python="3.11.7", slots=slots),
        seconds=10.0,
    )
