"""Synthetic records for tests of boards: whole `Record`s, with whatever a test wants to be different."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from compbench.api.interfaces import Budget, Score
from compbench.api.schemas import Artifact, Environment, Profile, Record, RunSpec

BUDGET = {"train_steps": 1000, "batch_size": 64, "width": 32, "learning_rate": 1e-3, "sample_steps": 40}
CPU = "Fictional CPU 2.0 GHz"


def score(name: str = "heldout_accuracy", value: float | None = 0.5, **facts: Any) -> Score:
    """A score; split, metric, direction and the rest follow from its name unless they are given."""
    split, _, rest = name.partition("_")
    metric = next((m for m in ("accuracy", "fd_judge", "fid", "kid", "precision", "recall") if rest.startswith(m)), rest)
    lower = metric in ("fd_judge", "fid", "kid")
    known = {"metric": metric, "split": split, "direction": "lower" if lower else "higher", "n": 1000 if value else 0}
    known["primary"] = name in ("heldout_accuracy", "all_accuracy")
    return Score(name=name, value=value, **{**known, **facts})


def spec(**facts: Any) -> RunSpec:
    budget = Budget(**{**BUDGET, **facts.pop("budget", {})})
    known = {
        "task": "shapes3d-heavy",
        "task_version": 1,
        "method": "factored",
        "method_version": 1,
        "code": "a" * 64,
        "settings": {"hidden": 64},
        "preset": "quick",
        "seed": 0,
        "device_class": "cpu",
        "precision": "fp32",
        "source": "embedded",
        "fingerprint": "renderer-1",
    }
    return RunSpec(**{**known, **facts}, budget=budget)


def record(
    *scores: Score,
    status: str = "ok",
    attempt: int = 1,
    slots: int = 1,
    speed: float | None = 100.0,
    cpu: str = CPU,
    more: dict[str, Any] | None = None,
    **facts: Any,
) -> Record:
    """A record of one run.

    Args:
        scores: its scores; one held-out accuracy of 0.5 if none are given and it went well.
        speed: samples/s; training steps/s are a tenth of it.
        more: fields of the record itself.
        facts: fields of its spec.
    """
    own = spec(**facts)
    ok = status == "ok"
    rates = {"sample_samples_per_second": speed, "train_steps_per_second": speed and speed / 10} if ok else {}
    known = {
        "identity": own.identity,
        "attempt": attempt,
        "spec": own,
        "status": status,
        "scores": (scores or (score(),)) if ok else (),
        "profile": Profile(parameters=1_500_000, evaluations_per_sample=40, peak_memory_bytes=2**30, **rates),
        "environment": Environment(compbench="0.1", python="3.12", cpu=cpu, threads=2, slots=slots),
        "started": f"2026-01-01T00:00:{attempt:02d}+00:00",
        "seconds": 120.0,
    }
    return Record(**{**known, **(more or {})})


def with_picture(found: Record) -> Record:
    return found.model_copy(update={"artifacts": (Artifact(name=f"{found.name}.samples.png", sha256="0" * 64),)})


def png(width: int = 2, height: int = 2, colour: tuple[int, int, int] = (200, 80, 40)) -> bytes:
    """A picture of one colour, as PNG."""
    rows = (b"\0" + bytes(colour) * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    packed = [struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)
