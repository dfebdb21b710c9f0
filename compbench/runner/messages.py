"""Messages between parent, contestant and referee; each is a frozen class, and the receiver checks it.

    parent -> child       Begin, then Prepare and Evaluate (referee), Open, Fit and Measure (contestant), and Finish
    child -> parent       Described, Prepared, Opened, Fitted, Evaluated, Measured; Progress and Failed at any moment
    referee <-> contestant  Sample with tensors, answered by Samples with tensors or Failed

An invalid or unexpected message ends the run of the child that sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError

from compbench.api.interfaces import LARGEST, Budget, Score, Source
from compbench.api.schemas import Frozen, RunRequest, Shots, Stage
from compbench.runner.channel import Channel, Frame, Garbled
from compbench.store.format import clean
from compbench.system.errors import first_of
from compbench.system.files import Json

if TYPE_CHECKING:
    from torch import Tensor

WARM_UP = "warm-up"
"""Stream of the request that only warms up a GPU: the referee does not score it, and the contestant does not record it."""
LineOfText = Annotated[str, BeforeValidator(lambda text: clean(str(text))[:1900])]
"""One line without control characters, cut to the length that a record allows."""
Tail = Annotated[str, BeforeValidator(lambda text: "\n".join(map(clean, str(text)[-7900:].splitlines())))]
"""The end of a traceback, without control characters except line breaks."""
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Figure = Annotated[float, Field(ge=0, le=LARGEST)]
Seconds = Figure


class Message(Frozen):
    """Base class of all messages; `kind` is the class's name on the wire."""

    kinds: ClassVar[dict[str, type[Message]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        Message.kinds[cls.__name__] = cls

    def send(self, channel: Channel, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Send this message.  Raises Closed if the other side is gone."""
        channel.send({"kind": type(self).__name__, **self.model_dump(mode="json")}, tensors)


class Begin(Message):
    """A run, and the one folder that the child may write to."""

    request: RunRequest
    folder: str


class Prepare(Message):
    """Render, train and cache what the evaluation needs."""


class Open(Message):
    """Open the task's data as the referee resolved it."""

    source: Source
    precision: str
    device: str
    resume: bool


class FitCost(Frozen):
    """The cost of a fit: `seconds` by the parent's clock, its use of the silos, and its curves (`LossCurves.state`).

    `regressed` counts its training conditions by their number of factors with a value; () if that is not known.  `counts` are
    those of `compbench.store.counts`.
    """

    seconds: Seconds = 0.0
    cpu_seconds: Seconds = 0.0
    train_steps: Count = 0
    ledger: dict[str, Json] = Field(default_factory=dict)
    curves: dict[str, Json] = Field(default_factory=dict)
    regressed: tuple[Count, ...] = Field((), max_length=100)
    counts: dict[str, Figure] = Field(default_factory=dict)


class Fit(Message):
    """Fit; or load the fit in `shared`, whose cost is known; or load the finished model in `kept` without fitting.

    At each step in `stops` the fit saves its weights (`training_curve`).
    """

    shared: str = ""
    cost: FitCost | None = None
    kept: str = ""
    stops: tuple[Count, ...] = ()


class Evaluate(Message):
    """Ask the contestant for samples and score them."""


class Measure(Message):
    """Report the cost of the run."""


class Finish(Message):
    """This run is over; the next may begin."""


class Progress(Message):
    """Progress of a stage."""

    stage: Annotated[str, BeforeValidator(lambda text: clean(str(text))[:100])]
    done: Count
    total: Count


class Failed(Message):
    """The end of a run as the child sees it; `usage` means that the request itself was wrong."""

    status: Literal["failed", "oom", "killed", "refused"] = "failed"
    reason: LineOfText = ""
    traceback: Tail = ""
    usage: bool = False


class ContestantDescribed(Message):
    """The contestant's description: the method, its settings, and the budget as the contestant resolves it."""

    settings: dict[str, Json]
    method_version: int
    oracle: bool
    file_sha256: str
    budget: Budget
    task_settings: dict[str, Json]


class RefereeDescribed(Message):
    """The referee's description: the task, its settings and budget, device, precision and data, and the shots that it drew."""

    task_version: int
    task_settings: dict[str, Json]
    budget: Budget
    budget_changed: tuple[str, ...]
    device: str
    device_class: str
    precision: Literal["fp32", "bf16", "tf32"]
    source: Source
    metrics: dict[str, int]
    num_silos: Count = 1
    shots: Shots | None = None


class Prepared(Message):
    """The referee is ready; `parameters` is the size of the budget's backbone, which limits the size of a run's files."""

    parameters: Count = 0


class Opened(Message):
    """The data is open.  The message has everything that a shareable fit depends on, or None if the fit is not shared."""

    fit: dict[str, Json] | None


class Fitted(Message):
    """The fit is done, or the given fit was loaded (`shared`)."""

    shared: bool = False
    cost: FitCost = FitCost()


class Evaluated(Message):
    """Scores, what the referee measured, and the names of the pictures in its folder.

    `request_seconds` belong to the largest requests, of `batch` samples, and to those without known entries if there are any;
    `num_bytes` of samples and noise went both ways; `energy_joules` is the device's energy during the fit.
    """

    scores: tuple[Score, ...]
    stages: tuple[Stage, ...]
    referee_memory_bytes: int | None
    batch: Count = 0
    request_seconds: Annotated[tuple[Seconds, ...], Field(max_length=100_000)] = ()
    num_bytes: Count = 0
    peak_flops_per_second: Figure | None = None
    energy_joules: Figure | None = None
    pictures: tuple[Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,60}$")], ...] = ()


class Measured(Message):
    """The contestant's own profile and facts, unverified."""

    profile: dict[str, Json]
    facts: dict[str, Json]


class Sample(Message):
    """One request of a stream; its tensors are the payload.  For a warm-up, at least `follow` more requests have its shape."""

    stream: Annotated[str, Field(max_length=200)]
    follow: Count = 0


class Samples(Message):
    """The answer to `Sample`; the samples are the payload."""


M = TypeVar("M", bound=Message)
OF_THE_REFEREE = (Prepare, Evaluate)
"""Orders for the referee; all other orders are for the contestant."""


class Call(Message):
    """The `module:function` to call, its arguments, and the sandbox: the folder to write to and what must not be read."""

    function: str
    arguments: dict[str, Json]
    device: str
    folder: str
    closed: tuple[str, ...]


class Value(Message):
    """One value that the function yielded, or an empty one if the function has `ended`."""

    value: object = None
    ended: bool = False


def parsed(frame: Frame) -> Message:
    """The message in a frame.  Raises Garbled if the frame holds none."""
    header = dict(frame.header)
    kind = Message.kinds.get(str(header.pop("kind", "")))
    if kind is None:
        raise Garbled("the other side sent a message of an unknown kind")
    try:
        return kind.model_validate(header)
    except (ValidationError, RecursionError) as error:
        what = first_of(error) if isinstance(error, ValidationError) else "it is nested too deeply"
        raise Garbled(clean(f"the other side sent an invalid {kind.__name__}: {what}")[:300]) from error


def receive(channel: Channel, *expected: type[M]) -> M:
    """The next message, which must have one of the expected kinds.  Raises Garbled for anything else."""
    message = parsed(channel.receive())
    if not isinstance(message, expected):
        raise Garbled(f"the other side sent {type(message).__name__}")
    return message
