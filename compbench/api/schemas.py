"""The data that compbench writes: RunSpec, Record, Profile, Environment.  Frozen pydantic, no NaN, no unknown names."""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from compbench.api.context import Presets
from compbench.api.interfaces import LARGEST, Budget, Score
from compbench.system.errors import CompbenchError, first_of
from compbench.system.files import Json

RECORD_FORMAT = 13
"""Version of the records' format.  It goes up when a record's fields or lines change; `compbench.store.format` migrates older
records.

2: the file has its own digest.
6: `spec.code` is a hash of meaning, and the record has the commit.
7: the record says whether only samples were scored.
8: the record has curves of loss and throughput.
9: one line has a whole score.
10: the record says where settings were tuned and whether a holdout is sealed.
11: the record says which settings were given by hand.
12: the record names the shots that were trained on, and says how additive the network's hidden activations are.
13: fields at their defaults are left out, except in `spec`.
"""

Status = Literal["ok", "failed", "timeout", "oom", "killed", "refused"]
MOST = 10**6
"""Largest version, attempt number and seed count."""
MOST_POINTS, MOST_CURVES = 100, 32
"""Largest number of points in all loss curves of a record together, and of such curves: some kilobytes."""
MOST_NAMED_SHOTS = 2000
"""A record names up to this many shots one by one; if there are more, it has only their digest."""
Line = Annotated[str, Field(max_length=200)]
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,79}$"


class Frozen(BaseModel):
    """Base of all written data: frozen, finite numbers, no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class RunSpec(Frozen):
    """What is run, without anything about how the run went.  The SHA-256 of its canonical JSON is the run's identity."""

    task: str = Field(pattern=NAME, description="name of the task")
    task_version: int = Field(ge=1, le=MOST, description="goes up when the task's numbers change")
    task_settings: dict[str, Json] = Field(default_factory=dict, description="settings of the task")
    method: str = Field(pattern=NAME, description="name of the method")
    method_version: int = Field(ge=1, le=MOST, description="goes up when the method's numbers change")
    code: str = Field(pattern=r"^[0-9a-f]{64}$", description="hash of what the code means (compbench.registry.meaning)")
    settings: dict[str, Json] = Field(description="the method's settings, every one resolved")
    budget: Budget = Field(description="the task's budget under the preset, with what --set changed")
    budget_changed: tuple[str, ...] = Field((), description="names of budget entries that --set changed")
    preset: Presets = Field(description="smoke, quick, standard or paper")
    seed: int = Field(ge=0, lt=2**31, description="seed of data order, initial weights, x0 and evaluation")
    device_class: str = Field(max_length=80, description="cpu, or the GPU's name")
    precision: Literal["fp32", "bf16", "tf32"] = Field(description="bf16 means autocast, tf32 rounds a GPU's products")
    source: Literal["official", "embedded"] = Field(description="where the data came from")
    fingerprint: str = Field(max_length=80, description="hash of the data, or the renderer's version")
    metrics: dict[str, int] = Field(default_factory=dict, description="metrics that the task scores by, with versions")

    def overrides(self) -> dict[str, Json]:
        """Every setting of method, budget and task under its name for --set, also those that records leave out."""
        parts = {"": self.settings, "budget.": self.budget.entries(), "task.": self.task_settings}
        return {f"{prefix}{name}": value for prefix, part in parts.items() for name, value in part.items()}

    def canonical(self) -> str:
        """JSON with sorted keys and no spaces: the same bytes for the same spec on every machine."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @property
    def identity(self) -> str:
        """SHA-256 of the canonical JSON, 64 hex digits."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()


CARD = r"^[A-Za-z0-9./_-]{1,100}$"
"""Pattern of a GPU's name in CUDA_VISIBLE_DEVICES: an index, or the UUID of a GPU or of a part of one."""


class Card(Frozen):
    """The one GPU that a run's processes see, as cuda:0.

    Attributes:
        number: its position among the GPUs that the sweep sees, from 0.
        entry: its name in CUDA_VISIBLE_DEVICES.
    """

    number: int = Field(ge=0, le=1000)
    entry: str = Field(pattern=CARD)


class RunRequest(Frozen):
    """A user's request; the child processes resolve it into a RunSpec.  Paths are local to this machine."""

    task: str
    method: str
    overrides: dict[str, Json] = Field(default_factory=dict, description="--set: settings, budget.* and task.*")
    preset: Presets = "quick"
    seed: int = Field(0, ge=0, lt=2**31)
    device: str = Field("auto", max_length=40, description="auto, cpu, cuda or cuda:N")
    card: Card | None = Field(None, description="the only GPU that the run sees; chosen by a sweep for each slot")
    precision: Literal["auto", "fp32", "bf16", "tf32"] = "auto"
    source: Literal["auto", "official", "embedded"] = "auto"
    plugins: tuple[str, ...] = Field((), description="--plugin files")
    metrics: tuple[str, ...] = Field((), description="--metric: additional metrics of other packages")
    time_limit: float = Field(0.0, ge=0, description="seconds for the whole attempt; 0 means no limit")
    threads: int = Field(0, ge=0, description="CPU threads of each child; 0 means all cores divided by slots")
    slots: int = Field(1, ge=1, description="runs side by side on this machine")
    trace: bool = False
    curve: int = Field(0, ge=0, le=20, description="points during training, by halves, that are scored in addition to the end")
    sealed: bool = Field(False, description="whether its overrides are a sealed pattern")
    tuning: Tuning | None = Field(None, description="where the settings among the overrides come from")
    keep_samples: bool = Field(False, description="keep the samples next to the weights, for `rescore`")
    home: str = Field(description="COMPBENCH_HOME")

    @classmethod
    def of(cls, **facts: object) -> RunRequest:
        """The request for a user's options.  Raises CompbenchError: an option has a value that no run can have."""
        try:
            return cls.model_validate(facts)
        except ValidationError as error:
            where, _, what = first_of(error).partition(": ")
            raise CompbenchError(f"{where} of the run: {what}.") from error


class Stage(Frozen):
    """One timed stage, in seconds of wall clock and of CPU; imports and compilation are stages of their own."""

    name: str = Field(pattern=r"^[a-z_]{1,40}$")
    seconds: float = Field(ge=0, le=LARGEST)
    cpu_seconds: float = Field(0.0, ge=0, le=LARGEST)


class ExtensionProfile(Frozen):
    """What a second stage cost (extension tasks)."""

    mode: Literal["extended", "retrained"] = Field(description="a frozen model extended, or a new one trained")
    new_parameters: int = Field(ge=0, le=LARGEST, description="parameters trained in the second stage")
    seconds: float = Field(ge=0, le=LARGEST)
    share_of_base: float = Field(ge=0, le=LARGEST, description="its time divided by the base model's training time")
    frozen_identical: bool | None = Field(description="base weights bit-identical afterwards; none if retrained")


class SiloProfile(Frozen):
    """What one silo sent, received and computed during the fit, counted by the harness."""

    name: str = Field(max_length=80)
    size: int = Field(ge=1, le=LARGEST, description="training examples")
    rounds: int = Field(0, ge=0, le=LARGEST, description="number of times that a function of the method ran there")
    transfers_out: int = Field(
        0, ge=0, le=LARGEST, description="number of states sent, multiplied by the number of receiving parties"
    )
    transfers_in: int = Field(0, ge=0, le=LARGEST, description="states received before a round")
    bytes_out: int = Field(0, ge=0, le=LARGEST)
    bytes_in: int = Field(0, ge=0, le=LARGEST)
    steps: int = Field(0, ge=0, le=LARGEST, description="training steps counted there, in all stages and rounds")
    seconds: float = Field(0.0, ge=0, le=LARGEST, description="wall clock of the functions that ran there")
    cpu_seconds: float = Field(0.0, ge=0, le=LARGEST)


class Profile(Frozen):
    """What a run cost.  Rates are medians over synchronised regions after warm-up; a rate that was not measured is absent."""

    train_steps: int | None = Field(
        None, ge=0, le=LARGEST, description="training steps of the fit, over all silos, stages and rounds"
    )
    train_steps_per_second: float | None = Field(None, ge=0, le=LARGEST, description="training steps, median")
    train_samples_per_second: float | None = Field(None, ge=0, le=LARGEST, description="training examples, median")
    sample_samples_per_second: float | None = Field(
        None, ge=0, le=LARGEST, description="samples at the batch `sample_batch`, median"
    )
    sample_batch: int | None = Field(None, ge=1, le=LARGEST, description="batch of the throughput measurement")
    latency_p50_ms: float | None = Field(None, ge=0, le=LARGEST, description="one batch of requests, median")
    latency_p95_ms: float | None = Field(None, ge=0, le=LARGEST, description="one batch of requests, 95th percentile")
    latency_batch: int | None = Field(None, ge=1, le=LARGEST, description="batch of the latency measurement")
    evaluations_per_sample: int | None = Field(None, ge=0, le=LARGEST, description="network evaluations, per sample")
    parameters: int | None = Field(None, ge=0, le=LARGEST, description="of all networks")
    flops_per_train_step: float | None = Field(None, ge=0, le=LARGEST, description="by torch's counter, forward and backward")
    flops_per_sample: float | None = Field(None, ge=0, le=LARGEST, description="by torch's counter")
    peak_flops_per_second: float | None = Field(
        None, ge=0, le=LARGEST, description="measured by a matrix product, same precision"
    )
    share_of_peak_training: float | None = Field(
        None, ge=0, le=LARGEST, description="FLOP/s of training divided by the measured peak"
    )
    share_of_peak_sampling: float | None = Field(
        None, ge=0, le=LARGEST, description="FLOP/s of sampling divided by the measured peak"
    )
    peak_memory_bytes: int | None = Field(None, ge=0, le=LARGEST, description="contestant: device memory, resident set on a CPU")
    referee_memory_bytes: int | None = Field(None, ge=0, le=LARGEST, description="peak of the process that scores")
    energy_joules: float | None = Field(None, ge=0, le=LARGEST, description="energy of the fit, from NVML, if available")
    stages: tuple[Stage, ...] = Field((), max_length=500, description="seconds and CPU seconds of each stage")
    extension: ExtensionProfile | None = Field(None, description="what the second stage of an extension task cost")
    distrust: str = Field(
        "", max_length=500, description="why speeds are missing: another clock contradicts the contestant's report"
    )
    silos: tuple[SiloProfile, ...] = Field(
        (), description="costs by silo, on tasks with several silos, unless their data was pooled"
    )

    def seconds(self, stage: str) -> float:
        """Wall-clock seconds of a stage; 0 if it did not run."""
        return sum(entry.seconds for entry in self.stages if entry.name == stage)


class Environment(Frozen):
    """Where a run took place; no host name, no user, no path."""

    compbench: Line
    python: Line
    torch: Line = ""
    platform: Line = ""
    cpu: Line = ""
    cores: int = Field(0, ge=0, le=LARGEST)
    threads: int = Field(0, ge=0, le=LARGEST, description="torch threads of the contestant")
    device: Line = "cpu"
    card: int | None = Field(None, ge=0, le=1000, description="number of the GPU among the machine's, if a sweep chose it")
    slots: int = Field(
        1, ge=1, le=LARGEST, description="runs that shared the machine: speeds of a shared machine are lower bounds"
    )
    other_cores: float | None = Field(
        None, ge=0, le=LARGEST, description="null except in older records; `compbench profile` measures it now"
    )
    predecessors: int = Field(
        0,
        ge=0,
        le=LARGEST,
        description="number of earlier runs of the same processes: imports were warm, and peak memory includes those runs",
    )
    sandbox: Literal["", "landlock", "none", "off"] = Field("", description="the contestant's sandbox")
    packages: dict[Line, Line] = Field(default_factory=dict, max_length=1000)


class Plugin(Frozen):
    """The distribution that a method came from."""

    distribution: Line = ""
    version: Line = ""
    module: Line = ""
    file_sha256: Line = ""


class Tuning(Frozen):
    """Where tuned settings come from: a study of `compbench tune`, and what it cost."""

    task: Line
    preset: Presets
    trials: int = Field(ge=1, le=MOST, description="trials that ended")
    pruned: int = Field(0, ge=0, le=MOST)
    failed: int = Field(0, ge=0, le=MOST)
    objective: Line
    num_cells: int = Field(ge=0, le=MOST, description="number of combinations held out among the seen ones; 0 if none could be")
    value: float = Field(ge=-LARGEST, le=LARGEST, description="the objective of these settings; lower is better")
    default_value: float | None = Field(None, ge=-LARGEST, le=LARGEST, description="the objective of the default settings")
    train_flops: float = Field(ge=0, le=LARGEST**2, description="FLOPs of training in all trials")
    cpu_seconds: float = Field(ge=0, le=LARGEST, description="CPU seconds of all trials")
    sampler: Line = ""


class Checkout(Frozen):
    """The git commit of some code, without a path or the name of a user or a repository."""

    commit: str = Field("", pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$", description="empty where the code is in no repository")
    clean: bool | None = Field(None, description="whether the code's folder was unchanged since the commit; null if not known")


class Code(Frozen):
    """Where the code of a run came from.  `RunSpec.code` is the hash of all of it; records before format 6 have only that."""

    parts: dict[Line, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]] = Field(
        default_factory=dict,
        max_length=20,
        description="meaning of each part: method, flow, task, data, metrics, core",
    )
    compbench: Checkout = Checkout()
    plugin: Checkout = Checkout()


class Shots(Frozen):
    """Real examples of held-out cells among the training data (`compbench.api.shots`), as the referee drew them."""

    per_cell: int = Field(ge=1, le=MOST, description="examples of each held-out cell")
    num_cells: int = Field(ge=1, le=MOST, description="held-out cells")
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of all names, in order, one per line")
    examples: tuple[Annotated[str, Field(pattern=r"^[0-9.]{1,120}#[0-9a-f]{8}$")], ...] = Field(
        (), max_length=MOST_NAMED_SHOTS, description="name of each: its condition, and the first digits of its bytes' SHA-256"
    )


class Structure(Frozen):
    """How additive a fitted network's hidden activations are in the holdout's factors, on seen cells (docs/hidden_structure.md).

    The contestant measures it; it is unverified.
    """

    layer: Line = Field(description="the module with these activations, and whether they are its input or its output")
    r2: float | None = Field(
        None,
        ge=0,
        le=1,
        description="share of the variance over cells explained by effects of single factors; null if these fit any activations",
    )
    cosine: float | None = Field(
        None, ge=0, le=1, description="mean cosine of the angles between the spans of two factors' effects; null without effects"
    )
    num_cells: int = Field(ge=1, le=MOST, description="seen cells")
    num_units: int = Field(ge=1, le=LARGEST, description="number of activations per cell")
    num_effects: int = Field(
        ge=0, le=MOST, description="number of independent effects; without structure r2 is about num_effects / (num_cells - 1)"
    )


class CurvePoint(Frozen):
    """Scores of the weights at a step of the fit, by name: the ranking score, and the same score on seen cells."""

    step: int = Field(ge=1, le=LARGEST)
    scores: dict[Line, float] = Field(max_length=20)


class LossCurve(Frozen):
    """Training loss and throughput of a fit's loop; each value is a mean over the steps since the previous point.

    The contestant measures them; they are unverified.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9_.+-]{1,80}$", description="stage, and its part (a silo, a network) if there is one")
    steps: tuple[Annotated[int, Field(ge=1, le=LARGEST)], ...] = Field(
        min_length=1, max_length=MOST_POINTS, description="steps of this curve's loops up to each point, increasing"
    )
    loss: tuple[Annotated[float, Field(ge=-LARGEST, le=LARGEST)], ...] = Field(max_length=MOST_POINTS)
    examples_per_second: tuple[Annotated[float, Field(ge=0, le=LARGEST)], ...] = Field(
        max_length=MOST_POINTS,
        description="throughput by the wall clock, of all loops together; the first value includes compilation",
    )

    @model_validator(mode="after")
    def _is_a_curve(self) -> LossCurve:
        if not len(self.steps) == len(self.loss) == len(self.examples_per_second):
            raise ValueError("a loss curve has as many losses and rates as steps")
        if not all(map(operator.lt, self.steps, self.steps[1:])):
            raise ValueError("the steps of a loss curve increase")
        return self


def _few_points(curves: tuple[LossCurve, ...]) -> tuple[LossCurve, ...]:
    if sum(len(curve.steps) for curve in curves) > MOST_POINTS or len({curve.name for curve in curves}) < len(curves):
        raise ValueError(f"a record has at most {MOST_POINTS} points of loss curves, and curves have distinct names")
    return curves


class Artifact(Frozen):
    """A file next to the record."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,249}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


def name_of(spec: RunSpec, identity: str, attempt: int) -> str:
    """The name of the record of an attempt."""
    return f"{spec.task}.{spec.method}.{spec.preset}.s{spec.seed}.{identity[:12]}.{attempt}"


class Record(Frozen):
    """One attempt at a run: immutable, written whole or not at all.  Failures are records too."""

    format: int = Field(RECORD_FORMAT, description="number of the record's format; older ones are read too")
    identity: str = Field(
        pattern=r"^[0-9a-f]{64}$", description="SHA-256 of `spec`: the same run has the same identity everywhere"
    )
    attempt: int = Field(ge=1, le=MOST, description="1 for the first attempt at this run, 2 for the next")
    spec: RunSpec = Field(description="what was run")
    status: Status = Field(description="ok, failed, timeout, oom (out of memory), killed or refused")
    reason: str = Field("", max_length=2000, description="one line: why it is not ok")
    traceback: str = Field("", max_length=8000, description="tail of the traceback or log")
    scores: tuple[Score, ...] = Field((), max_length=500, description="every score; `record.score(name)` finds one")
    profile: Profile = Field(Profile(), description="what the run cost")
    environment: Environment = Field(description="versions and machine")
    plugin: Plugin = Field(Plugin(), description="distribution, version and file of the method")
    code: Code = Field(Code(), description="hashes of the code by part, and git commits")
    notes: dict[str, float | tuple[float, ...]] = Field(
        default_factory=dict, max_length=1000, description="the method's own notes, by stream; unverified"
    )
    artifacts: tuple[Artifact, ...] = Field((), max_length=50, description="files next to the record, with their SHA-256")
    pooled_silos: bool = Field(False, description="whether the method saw the data of all silos in one place")
    oracle: bool = Field(False, description="whether the method used the task's analytic truth")
    in_process: bool = Field(False, description="whether it ran in the caller's process, without a sandbox")
    curve: tuple[CurvePoint, ...] = Field((), max_length=50, description="scores during training, `run --curve`")
    losses: Annotated[tuple[LossCurve, ...], AfterValidator(_few_points)] = Field(
        (), max_length=MOST_CURVES, description="loss and throughput during the fit, one curve per loop"
    )
    resumed: bool = Field(False, description="whether the fit continued from a checkpoint")
    rescored: str = Field("", max_length=300, description="name of the record whose kept samples or weights were scored again")
    sealed: bool = Field(False, description="whether its holdout was drawn from the hash of its code, `run --sealed`")
    tuning: Tuning | None = Field(None, description="where its settings come from, `run --settings`; none if they were not tuned")
    given: tuple[Line, ...] | None = Field(
        None, max_length=1000, description="names of the settings that the request gave, as in --set; null in older records"
    )
    structure: Structure | None = Field(None, description="structure of the hidden activations; null if no layer was found")
    shots: Shots | None = Field(None, description="examples of held-out cells that it was trained on, `--set task.shots=N`")
    samples_only: bool = Field(
        False, description="whether external samples or weights were scored, so that no training was observed"
    )
    started: str = Field("", max_length=40, description="UTC, ISO 8601")
    seconds: float = Field(0.0, ge=0, le=LARGEST, description="wall-clock seconds of the whole attempt")

    @property
    def name(self) -> str:
        """File name without suffix: unique for each attempt."""
        return name_of(self.spec, self.identity, self.attempt)

    @property
    def has_meaning(self) -> bool:
        """Whether `spec.code` is a hash of meaning; in older records it is a hash of the method's file only."""
        return bool(self.code.parts)

    @property
    def primary(self) -> Score | None:
        """The score that the board ranks by; None if the run has none."""
        return next((score for score in self.scores if score.primary), None)

    def score(self, name: str) -> Score | None:
        """The score with this name, or None."""
        return next((score for score in self.scores if score.name == name), None)

    def __repr__(self) -> str:
        """One line: what was run, and its ranked score or why there is none.  `model_dump()` has everything."""
        spec, primary = self.spec, self.primary
        known = self.status == "ok" and primary is not None and primary.value is not None
        said = f"{primary.name} {primary.value:.4g}" if known and primary else f"{self.status} {self.reason[:100]}".strip()
        return f"<Record {spec.method} on {spec.task}, {spec.preset}, seed {spec.seed}: {said}>"

    __str__ = __repr__

    view: ClassVar[Callable[[Record], str | None]] = lambda record: None
    """How a notebook shows a record as HTML: `compbench.run` and `load` set it (`compbench.notebook.record_view`)."""

    def _repr_html_(self) -> str | None:
        """HTML for a notebook; with None the notebook shows the repr."""
        return type(self).view(self)
