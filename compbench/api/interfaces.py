"""What a plugin author reads first: Method, Task, Metric, and what passes between them.

A method is a frozen record of a settings class and functions; there is no base class to inherit from:
    fit(settings, problem, ctx) -> model
    sample(settings, model, request, ctx) -> Tensor (B, *D)
A method never sees the holdout: a `Problem` has only seen data, and a `Request` has conditions and noise but no answers.
Nothing here imports torch at run time, so that `compbench list` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import ne
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from compbench.api.context import FitParts, Presets, Silo, generator_of
from compbench.api.factors import FactorSpace, Holdout, symmetry_of
from compbench.system.files import Json

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy
    import torch
    from torch import Generator, Tensor, nn

    from compbench.api.federation import Federation

API_VERSION = 1
"""The version of these interfaces; a plugin module may state the one it was written for as COMPBENCH_API."""
LARGEST = 10**18
"""Largest absolute value of any number in a record; a larger one has diverged, or was made up to break a board."""

EventKind = Literal["vector", "image", "trajectory"]


class MethodSettings(BaseModel):
    """Base of every settings class: frozen, no unknown names; each field has a bound and a description."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


LATER_ENTRIES: dict[str, Json] = {"time_location": 0.0}
"""Budget entries that were added after records were published, each with the value at which it has no effect on a fit."""


class Budget(BaseModel):
    """What a task grants each method at one preset, so that methods are compared at equal cost.

    `--set budget.NAME=VALUE` changes an entry for a run; the record and the board show the change."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    train_steps: int = Field(gt=0, description="optimiser steps of the fit; of each party where there are silos")
    batch_size: int = Field(gt=0, description="examples in one step")
    width: int = Field(gt=0, description="channels of the backbone's first stage (hidden units of an MLP)")
    patch: int = Field(1, gt=0, le=16, description="pixel-unshuffle factor in front of the backbone; 1 works on pixels")
    prediction: Literal["velocity", "denoised"] = Field(
        "velocity", description="what the network's last layer gives: the velocity, or E[x1 given x_t] that it follows from"
    )
    learning_rate: float = Field(gt=0, le=1, description="peak learning rate of AdamW")
    final_learning_rate: float = Field(0.0, ge=0, le=1, description="learning rate at the end of the cosine")
    warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up")
    ema_decay: float = Field(
        0.999,
        ge=0,
        lt=1,
        description="largest decay of the weights' moving average; at step s it is (1 + s) / (10 + s) if that is smaller, "
        "so 0.999 holds only after step 8,990",
    )
    time_location: float = Field(
        0.0, ge=-4, le=4, description="mean of the logits of training times; below 0, more of them lie near the noise"
    )
    gradient_clip: float = Field(1.0, gt=0, description="largest norm of the gradient")
    sample_steps: int = Field(gt=0, description="solver steps from noise to data")
    extend_steps: int = Field(0, ge=0, description="optimiser steps of an extension; 0 where the task has none")
    checkpoint_seconds: float = Field(60.0, gt=0, description="time between checkpoints of the fit")

    @model_serializer(mode="wrap")
    def _without_later_entries(self, dump: SerializerFunctionWrapHandler) -> dict[str, Json]:
        """Leave out each of the `LATER_ENTRIES` that has no effect, so that identities of published records do not change."""
        return {name: value for name, value in dump(self).items() if name not in LATER_ENTRIES or value != LATER_ENTRIES[name]}

    def entries(self) -> dict[str, Json]:
        """Every entry with its value, also those that records leave out."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class Event(NamedTuple):
    """What one sample is: its kind and shape (*D).  Images are (C, H, W) in [-1, 1], trajectories (C, frames)."""

    kind: EventKind
    shape: tuple[int, ...]


class Request(NamedTuple):
    """The referee's request: one sample for each row.

    Attributes:
        condition: requested conditions, (B, F) long; NULL (-1) leaves a factor open, `factors.excluding(v)` is any value but v.
        x0: initial noise, (B, *D), drawn by the harness so that methods are paired on it.
        known: given entries (inpainting), (B, *D), or None.
        known_mask: which entries of `known` are given, bool (B, *D), or None.
    """

    condition: Tensor
    x0: Tensor
    known: Tensor | None = None
    known_mask: Tensor | None = None


class Extension(NamedTuple):
    """A second stage: `factor` joins the model; `problem` is the problem of the larger space."""

    factor: str
    problem: Problem


@dataclass(frozen=True)
class Problem:
    """What a method may know of a task: the lattice, its seen part, the silos' data, and the budget.

    Attributes:
        space, event: factors and their sizes, in the order of conditions; kind and shape of a sample.
        federation: the silos; a centralised task has one.  `federation.pooled()` gives a central training set.
        budget: steps, batch and model size of the preset.
        holdout: the combinations that are never seen (only their cells; their data cannot be accessed).
        base: the combination that compositions of perturbation tasks subtract; () if there is none.
        composed: positions of the holdout's factors.
        guidance_weight: w of those factors in every composed sample of the task; w of the other factors is 1.
        extension: the second stage of an extension task.
        oracle: analytic truth, handed only to methods that declare themselves oracles.
        singles: examples with one factor, the others NULL (the stripes of bump tasks); None if there are none.
        deterministic: whether the task says that a combination has one sample, so that a method may regress on it; tasks of
            forced rendering do, and decoders have its protocol's sizes there.
    """

    space: FactorSpace
    event: Event
    federation: Federation
    budget: Budget
    holdout: Holdout
    base: tuple[int, ...] = ()
    composed: tuple[int, ...] = ()
    guidance_weight: float = 1.0
    extension: Extension | None = None
    oracle: Any = None
    singles: Silo | None = None
    deterministic: bool = False

    def frequencies(self) -> tuple[tuple[float, ...], ...]:
        """Frequency of each value of each factor among the seen combinations."""
        return self.holdout.frequencies()


Need = Literal["scores", "symmetry", "singles", "objects", "null", "base", "pairs", "anchors", "silos"]
NEEDS: Mapping[Need, str] = {
    "scores": "the task has no analytic scores",
    "symmetry": "its factors neither shift an image by whole pixels nor turn it",
    "singles": "the task offers no examples of single factors",
    "objects": "the task's factors are not those of two or more objects in a picture",
    "null": "the task composes around a base combination, not around NULL",
    "base": "the task composes around NULL, not around a base combination",
    "pairs": "the task's conditions have one factor only",
    "silos": "the task has one silo, in which the method is plain training",
    "anchors": "some held-out cell is the corner of no rectangle of seen cells",
}
"""Things that a method may need from a task, each with the reason that is given if the task lacks it."""


@dataclass(frozen=True)
class Method:
    """A method: its settings class and its functions.

    Attributes:
        name, settings: equal to its entry point's name; subclass of `MethodSettings`.
        fit: (settings, problem, ctx) -> model; an `nn.Module` or anything that `sample` understands.
        sample: (settings, model, request, ctx) -> samples (B, *D), float32.
        extend: (settings, model, factor, problem, ctx) -> model with one more factor; None if the method cannot extend.
        build: (settings, problem) -> untrained model, so that stored weights can be loaded again.
        evaluations: (settings, problem) -> network evaluations per sample, if their number is fixed; else None.
        kinds, version: event kinds that it works on, and a number that goes up when its results change.
        oracle, ignores_condition: whether it uses the task's analytic truth; whether it answers all conditions alike.  If either
            is true, its rows are references.
        shared_fit: (settings, problem) -> JSON of everything that the fit depends on besides problem, seed and precision.
            Methods of one distribution that return the same JSON share one model, fitted once and kept in the cache; None: not
            shared.
        parts: if methods share only a part of the fit: that part, and the method's own part; `fit` runs both.
        pools_silos, one_silo: whether it pools the silos' data; if not, whether it is more than plain training on one silo.
        regresses, negates: whether it gives one sample per condition, whatever the noise; whether it answers `factors.excluding`.
        needs: what a task must offer (`NEEDS`), or no run starts.  Oracles need "scores"; a method that needs "symmetry" counts
            as an oracle.
        search: values of a setting that `compbench tune` tries, by name, where its bounds are too wide or too narrow: "LOW:HIGH",
            "LOW:HIGH:log", "V1,V2" or "V1,LOW:HIGH".  A run's identity does not depend on it.
        couples_rows: whether rows of one request share something (pilots, an adapted step), so that a row requested alone gets
            another sample.
    """

    name: str
    settings: type[MethodSettings]
    fit: Callable[..., object]
    sample: Callable[..., Tensor]
    extend: Callable[..., object] | None = None
    build: Callable[..., nn.Module] | None = None
    evaluations: Callable[..., int] | None = None
    kinds: tuple[EventKind, ...] = ("vector", "image", "trajectory")
    version: int = 1
    oracle: bool = False
    shared_fit: Callable[..., dict[str, Json]] | None = None
    parts: FitParts | None = None
    pools_silos: bool = True
    one_silo: bool = False
    regresses: bool = False
    needs: tuple[Need, ...] = ()
    couples_rows: bool = False
    negates: bool = False
    ignores_condition: bool = False
    search: Mapping[str, str] = field(default_factory=dict)


class NamesHiddenLayer(Protocol):
    """A model that names its hidden layer, for the structure in its records (docs/hidden_structure.md).

    For other networks, the input of the last linear or convolution module is used.

    Attributes:
        hidden_layer: dotted name of the module whose output is the hidden layer, with one row for each condition.
    """

    hidden_layer: str


class SamplePair(NamedTuple):
    """Real and generated samples of one split, and features of them, for metrics that compare distributions.

    Attributes:
        real, generated: uint8 images (N, C, H, W) or float vectors (N, D).
        floor: a second, independent real sample, for the noise floor.
        features: features(extractor, which) -> float array (N, D), cached; `which` is "real", "generated" or "floor", and
            the extractors are those of the task ("judge", "inception", "imagenet").
        conditions: full conditions (N, F) of each set's samples, for joint metrics; {} if the task does not give them.
    """

    real: Tensor
    generated: Tensor
    floor: Tensor
    features: Callable[[str, str], numpy.ndarray]
    conditions: Mapping[str, Tensor] = {}


class Value(NamedTuple):
    """A metric's value, and its noise floor: the same metric between two real samples of the same size."""

    value: float
    floor: float | None = None


@dataclass(frozen=True)
class Metric:
    """A metric: its name, its direction, and how it is computed.

    Attributes:
        compute: (pair, generator) -> Value, or raises `MetricUnavailable(reason)`; None if a task computes it (accuracies).
        margin: the smallest difference that matters, for the regression gate.
        by_name: whether only tasks that name it in `Task.metrics` score by it.  If false, tasks of its kinds that name no metrics
            score by it too, provided that the metric comes from compbench or from the task's package.  A run may name any metric
            (`--metric`).
        features: names of the extractors whose features `compute` reads from its pair; all others are refused.
        joint: whether it compares samples together with their conditions (`SamplePair.conditions`).
    """

    name: str
    summary: str
    unit: str
    direction: Literal["higher", "lower"]
    version: int = 1
    margin: float = 0.0
    kinds: tuple[EventKind, ...] = ("image",)
    compute: Callable[..., Value] | None = None
    by_name: bool = False
    features: tuple[str, ...] = ()
    joint: bool = False

    def score(self, split: str, value: float | None, *, n: int, suffix: str = "", **known: object) -> Score:
        """The record's line of this metric, called `<split>_<name><suffix>`; `known` has ceiling, floor, primary or reason."""
        facts = {"metric": self.name, "metric_version": self.version, "unit": self.unit, "direction": self.direction}
        facts |= {"name": f"{split}_{self.name}{suffix}", "split": split}
        return Score.model_validate({"value": value, "n": n, **facts, **known})


class CellCount(NamedTuple):
    """Counts of one cell of the holdout's factors: samples, and correct samples."""

    cell: tuple[int, ...]
    right: int
    n: int


class Score(BaseModel):
    """One number of a record; an unavailable metric has no value and says why.

    `ceiling` is the same accuracy on real data, `floor` the same distance between two real samples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(description="split and metric, as in heldout_accuracy", pattern=r"^[a-z0-9_]{1,80}$")
    metric: str = Field(description="name of the metric", pattern=r"^[a-z0-9_]{1,80}$")
    metric_version: int = Field(1, ge=1, le=10**6, description="goes up when the metric's numbers change")
    split: Literal["seen", "heldout", "all", "none"] = Field(description="which combinations were asked for")
    value: float | None = Field(ge=-LARGEST, le=LARGEST, description="the score; none if unavailable")
    n: int = Field(ge=0, le=LARGEST, description="number of generated samples behind it")
    unit: str = Field("", max_length=40, description="unit of the value")
    direction: Literal["higher", "lower"] = Field(description="which way is better")
    ceiling: float | None = Field(None, ge=-LARGEST, le=LARGEST, description="the judge's own accuracy on real data of the split")
    floor: float | None = Field(None, ge=-LARGEST, le=LARGEST, description="the metric between two real samples of the same size")
    primary: bool = Field(False, description="whether the board ranks by it")
    reason: str = Field("", max_length=500, description="why there is no value")
    by_cell: tuple[CellCount, ...] = Field((), max_length=4096, description="of a joint accuracy: right samples of each cell")


class Evaluation(NamedTuple):
    """Result of a task's evaluation: scores, and pictures by name (uint8 arrays (H, W, 3))."""

    scores: tuple[Score, ...]
    pictures: Mapping[str, numpy.ndarray] = {}


class Sampler(Protocol):
    """The contestant as the referee sees it: conditions in, checked finite samples out (on the CPU).

    With `known` and `known_mask` the referee requests samples around given entries, which must be returned unchanged.
    """

    def __call__(
        self, condition: Tensor, *, stream: str, known: Tensor | None = None, known_mask: Tensor | None = None
    ) -> Tensor: ...


class Source(NamedTuple):
    """Where a task's data came from: "official" or "embedded", and a fingerprint of it."""

    kind: Literal["official", "embedded"]
    name: str
    fingerprint: str


@dataclass(frozen=True)
class TaskContext:
    """What the harness gives a task: device, caches and a progress callback.

    Attributes:
        seed, preset: seed and preset of the run; the referee derives its own generators from the seed.
        cache: folder for costly, reusable files (judges, reference statistics), named by content hash.
        data: folder of official data files.
        source, metrics: the result of `Task.source`, and the metrics that the task scores by, by name.
    """

    device: torch.device
    precision: Literal["fp32", "bf16"]
    seed: int
    cache: Path
    data: Path
    source: Source
    preset: Presets = "quick"
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None

    def generator(self, purpose: str) -> Generator:
        """A generator from the run's seed for one purpose, independent of draws for other purposes."""
        return generator_of(f"referee {self.seed} {purpose}")


class OpenTask(Protocol):
    """A task with its data open: the contestant's process asks for the problem, the referee's prepares and evaluates."""

    def problem(self, budget: Budget) -> Problem:
        """What a method may know: seen data only."""

    def prepare(self) -> None:
        """Render, train and keep judges and references, before any fit."""

    def evaluate(self, sampler: Sampler) -> Evaluation:
        """Ask for samples and score them."""


@lru_cache(maxsize=256)
def all_anchored(holdout: Holdout) -> bool:
    """Whether each held-out cell has an anchor (`Holdout.anchors`); faster than listing them, because sweeps need it often."""
    seen = holdout.seen_cells
    known = frozenset(seen)

    def anchors(anchor: tuple[int, ...], cell: tuple[int, ...]) -> bool:
        changed = ((*anchor[:k], value, *anchor[k + 1 :]) for k, value in enumerate(cell))
        return all(map(ne, anchor, cell)) and known.issuperset(changed)

    return all(any(anchors(anchor, cell) for anchor in seen) for cell in holdout.cells)


@dataclass(frozen=True)
class Task:
    """A task: a lattice with held-out cells, its data, and its referee.

    Modules of tasks import torch only inside functions, because `list`, `info` and the parent process load them.

    Attributes:
        name, space, holdout, event: the entry point's name; lattice of conditions; held-out cells; kind and shape of a sample.
        budgets: one budget per preset.
        source: (data folder, "auto" / "official" / "embedded") -> the data that it will use.
        open: ctx -> the task with its data open; called once per process.
        primary: name of the score that the board ranks by.
        silos, extends, negates: number of silos (1: centralised); the factor that an extension adds, or ""; whether it uses NOT.
        settings, configure: the task's own settings (`--set task.NAME=VALUE`); settings -> the task under these settings.
        citation: the paper and table that it comes from.
        guidance_weights: `Problem.guidance_weight` of each preset; 1 where there is none.
        notes: what a reader of its scores should know.
        family: "images", "plane", ... or a new name: the family under which it is listed and ranked.
        core: whether it is in the core suite.  A family is ranked over its core tasks, or over all if it has no core task.
        files: the official files that it can use, by their names in the data folder; () if it has no official data.
        extra, extra_for: the extra of its distribution that it needs, as in "planning", and whether every run needs it or only
            runs on embedded data.  These five fields are literals, or simple expressions of the parts of `name`, because
            `compbench list` reads them without importing the file; nothing computes with them.
        metrics: names of the registered metrics that it scores by, which are part of a run's identity.  None: the metrics of
            compbench and of its package for its kind of event.
        features: names of the extractors that it offers to metrics; () if it has none.  None: for images "judge" and "inception",
            those of `ImageEvaluation`, and none for other kinds.  Like the five fields above, it does not belong to an identity.
        paper_notes: which parts of the paper its `paper` preset follows, chooses or changes; () without such a preset.
        offers: "scores" (an oracle), "singles" (examples of single factors), "objects" (factors like "front x", "back x").
        inpaint: (model, generator) -> context in which requests with given entries are sampled by the task's own rule, as for
            planning's second plans; None: by each method's own solver.
        truth: conditions (B, F) -> their samples (B, *D), if there is one for each; else None.  Never part of a Problem.
        real_pictures: (open task, full conditions (B, F), generator) -> a real picture of each, uint8 (B, C, H, W), shown above
            the generated ones in a record's pictures, and drawn as shots; None if there are none.  No identity depends on it, and
            without shots no score does.
    """

    name: str
    summary: str
    space: FactorSpace
    holdout: Holdout
    event: Event
    budgets: Mapping[str, Budget]
    source: Callable[[Path, str], Source]
    open: Callable[[TaskContext], OpenTask]
    primary: str
    version: int = 1
    silos: int = 1
    extends: str = ""
    base: tuple[int, ...] = ()
    settings: MethodSettings = field(default_factory=MethodSettings)
    configure: Callable[[Any], Task] | None = None
    citation: str = ""
    guidance_weights: Mapping[str, float] = field(default_factory=dict)
    notes: Sequence[str] = ()
    metrics: tuple[str, ...] | None = None
    paper_notes: Sequence[str] = ()
    offers: tuple[Literal["scores", "singles", "objects"], ...] = ()
    inpaint: Callable[[object, Generator], AbstractContextManager[None]] | None = None
    truth: Callable[[Tensor], Tensor] | None = None
    real_pictures: Callable[[Any, Tensor, Generator], Tensor] | None = None
    negates: bool = False
    family: str = ""
    core: bool = False
    files: tuple[str, ...] = ()
    extra: str = ""
    extra_for: Literal["run", "embedded"] = "run"
    features: tuple[str, ...] | None = None

    @property
    def extractors(self) -> tuple[str, ...]:
        """Names of the extractors whose features a metric may read on this task."""
        if self.features is not None:
            return self.features
        return ("judge", "inception") if self.event.kind == "image" else ()

    def lacks(self, need: Need) -> bool:
        """Whether the task lacks what a method with this need requires."""
        if need in ("null", "base"):
            return bool(self.base) is (need == "null")
        if need == "silos":
            return self.silos < 2
        if need == "pairs":
            return len(self.space) < 2
        if need == "symmetry":
            return symmetry_of(self.space, self.event.shape) is None
        if need == "anchors":
            return not all_anchored(self.holdout)
        return need not in self.offers
