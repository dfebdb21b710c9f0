"""Options that several verbs share, and the run requests made from them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict, TypeVar, Unpack

import click

from compbench.api.context import PRESETS, Presets
from compbench.api.schemas import RunRequest
from compbench.board.site import rebuild
from compbench.cli.names import Complete, names, settings
from compbench.registry.registry import Registry
from compbench.registry.resolve import refuse_infinite
from compbench.store.records import Store
from compbench.sweep.parse import parse_seeds, parse_time
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from compbench.system.files import Json

Command = TypeVar("Command", bound=Callable[..., object])


class RequestOptions(TypedDict):
    """Options from which run requests are made, as click parsed them; the decorators below give the values these types."""

    plugins: tuple[Path, ...]
    preset: Presets
    device: str
    precision: str
    source: str
    metrics: NotRequired[str]
    time_limit: NotRequired[str]


class RunOptions(RequestOptions):
    """The options that `run_options` adds to a verb."""

    overrides: tuple[str, ...]
    seeds: str
    force: bool
    resume: bool
    quiet: bool


class ListFacts(TypedDict, total=False):
    """Keyword arguments of `click.option` for an option that takes a list."""

    help: str
    metavar: str
    required: bool
    default: list[str]
    show_default: bool
    shell_complete: Complete


class Finite(click.FloatRange):
    """A range of numbers.  Click's own range accepts NaN, which exceeds no bound."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        # `float` is click's own annotation of a value that is still text if it comes from the command line
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


class Named(click.Choice):  # type: ignore[type-arg]  # generic in some versions of click only
    """A choice, some of whose values have another name that is accepted too."""

    def __init__(self, choices: Sequence[str], also: Mapping[str, str]) -> None:
        super().__init__(choices)
        self._also = also

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        found: str = super().convert(self._also.get(value, value), param, ctx)
        return found


def list_option(*declarations: str, **facts: Unpack[ListFacts]) -> Callable[[Command], Command]:
    """An option that takes a list, separated by commas or repeated: `--method a --method b` is `--method a,b`."""
    return click.option(*declarations, multiple=True, callback=lambda _context, _option, words: ",".join(words), **facts)


def plugin_option(help: str = "File of a method that is not installed.") -> Callable[[Command], Command]:
    """The option that names files of plugins; it may be given again."""
    kind = click.Path(path_type=Path)
    return click.option("--plugin", "plugins", multiple=True, type=kind, metavar="FILE.py", help=help)


def device_option_of(help: str) -> Callable[[Command], Command]:
    """The option that names a device; whether this machine has the device is found when it is used."""
    return click.option("--device", default="auto", show_default=True, callback=_device, help=help)


def _device(_context: click.Context, _option: click.Parameter, word: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", word):
        raise CompbenchError(f"no device is called '{word}'; use auto, cpu, cuda or cuda:N.")
    return word


device_option = device_option_of("auto (first GPU, else CPU), cpu, cuda or cuda:N.")
threads_option = click.option("--threads", default=0, type=click.IntRange(0), help="Number of CPU threads; 0 takes all cores.")
PRESET = Named(PRESETS, {"published": "standard"})
"""The type of every `--preset`."""
preset_option = partial(click.option, "--preset", type=PRESET, default="quick", show_default=True)
precision_option = partial(
    click.option, "--precision", type=click.Choice(["auto", "fp32", "bf16", "tf32"]), default="auto", show_default=True
)
source_option = partial(
    click.option,
    "--source",
    type=Named(["auto", "official", "embedded"], {"built-in": "embedded"}),
    default="auto",
    show_default=True,
)


def metric_option() -> Callable[[Command], Command]:
    """The option that names metrics of other packages; it may be given again."""
    return list_option(
        "--metric", "metrics", shell_complete=names("metrics"), help="Also score with these metrics of other packages."
    )


def named_metrics(words: str) -> tuple[str, ...]:
    """The metrics that `--metric` names.  Raises CompbenchError: a metric is not installed."""
    registry = Registry()
    return tuple(registry.entry("metrics", name.strip()).name for name in words.split(",") if name.strip())


def run_options(command: Command) -> Command:
    """Options that `run` and `sweep` share."""
    options = [
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="NAME=VALUE",
            shell_complete=completed_settings,
            help="Change a setting: head_width=2 (method), budget.train_steps=500, task.coverage=0.5.  `compbench info NAME` "
            "lists them.",
        ),
        preset_option(
            help="smoke takes seconds, quick minutes on two cores; standard (or published) is the board's, paper repeats a "
            "paper on a GPU."
        ),
        list_option("--seed", "seeds", default=["0"], show_default=True, help="A seed, or several: 0-4 or 0,42,123."),
        device_option,
        precision_option(
            help="fp32, bf16 (autocast) or, on GPUs, tf32 (products of fp32 are rounded); auto takes bf16 where it is faster."
        ),
        source_option(
            help="official takes the authors' files (`compbench data fetch`), embedded (or built-in) the built-in data; auto "
            "takes official files if they are here."
        ),
        click.option(
            "--time-limit", default="0", metavar="TIME", help="Limit for a whole run: 90 (seconds), 15m or 2h.  0 means no limit."
        ),
        plugin_option(),
        metric_option(),
        click.option("--force", is_flag=True, help="Run again even if the same spec has a finished record."),
        click.option("--resume", is_flag=True, help="Continue a killed fit from its last checkpoint."),
        click.option("--quiet", is_flag=True, help="Show no progress, neither bars nor lines."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def completed_settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete NAME= of `--set`."""
    return settings(ctx, param, incomplete)


def run_requests(
    methods: list[str], tasks: list[str], overrides: dict[str, Json], options: RequestOptions, *, seeds: str, **more: object
) -> list[RunRequest]:
    """One RunRequest for each method, task and seed.  Unknown names are found here, before anything is started.

    `more` are further fields of the requests; they replace those that the options give.
    """
    refuse_infinite(overrides)  # values of a sweep file may be inf or nan, which TOML has
    files = tuple(path.resolve() for path in options["plugins"])
    registry = Registry(files)
    _refuse_unknown(registry, methods, tasks, files)
    shared = {
        "overrides": overrides,
        "preset": options["preset"],
        "device": options["device"],
        "precision": options["precision"],
        "source": options["source"],
        "plugins": tuple(map(str, files)),
        "metrics": named_metrics(options.get("metrics", "")),
        "time_limit": parse_time(options.get("time_limit", "0")),
        "home": str(Home.of_user().root),
        **more,
    }
    return [
        RunRequest.of(task=task, method=method, seed=seed, **shared)
        for seed in parse_seeds(seeds)
        for task in tasks
        for method in methods
    ]


def _refuse_unknown(registry: Registry, methods: list[str], tasks: list[str], files: tuple[Path, ...]) -> None:
    """Raise one CompbenchError with all unknown names; it also says which names the files of `--plugin` have."""
    wrong = []
    patterns: tuple[tuple[Literal["methods", "tasks"], list[str]], ...] = (("methods", methods), ("tasks", tasks))
    for kind, wanted in patterns:
        for name in wanted:
            try:
                registry.entry(kind, name)
            except CompbenchError as error:
                wrong.append(str(error))
                if kind == "methods":
                    own = [(entry.file, entry.name) for entry in registry.entries("methods") if entry.file is not None]
                    wrong += [f"{file.name} is named after its file: '{its}'." for file, its in own if file.resolve() in files]
    if wrong:
        raise CompbenchError(" ".join(wrong))


FEW_RECORDS = 500
"""A command always rebuilds the board of up to this many records; that takes half a CPU second."""
RECORDS_A_SECOND = 100
"""Runs rebuild the board of up to this many records per second that they took, so that building adds a tenth at most."""


def rebuild_board(home: Path, *, seconds: float = 0.0) -> tuple[Path, ...]:
    """Update the board after some work, unless that would take long compared with the work.

    If the board is left as it was, one line says how to rebuild it.  A failure to build it does not fail the work.

    Args:
        home: the home with the records.
        seconds: how long the runs took that were just done.
    """
    try:
        count = len(Store(Home(home).records).names())
        if count > max(FEW_RECORDS, RECORDS_A_SECOND * seconds):
            click.echo(f"compbench: the board of {count} records was left as it was; `compbench board` rebuilds it.", err=True)
            return ()
        pages, _ = rebuild(Home(home).records, Home(home).board)
    except (CompbenchError, OSError) as error:
        click.echo(f"compbench: the board was not updated: {error}", err=True)
        return ()
    return pages
