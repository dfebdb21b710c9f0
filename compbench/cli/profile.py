"""profile: measure what a method costs on a task."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, Unpack

import click

from compbench.api.context import Presets
from compbench.cli.names import names
from compbench.cli.options import (
    Finite,
    device_option,
    list_option,
    plugin_option,
    precision_option,
    preset_option,
    source_option,
    threads_option,
)
from compbench.gate import costs, sides
from compbench.gate.sides import CellOptions, Side
from compbench.gate.suite import Cell
from compbench.runner.signals import interrupted_once
from compbench.store.profiles import CostProfile, Measure, Requests, read_profiles, write_profile
from compbench.sweep import parse
from compbench.sweep.parse import parse_overrides
from compbench.system.devices import num_cores
from compbench.system.errors import CompbenchError
from compbench.system.files import temporary_folder
from compbench.system.home import Home


class ProfileOptions(TypedDict):
    """The options of `profile`, as click parsed them."""

    methods: str
    tasks: str
    preset: Presets
    overrides: tuple[str, ...]
    device: str
    precision: str
    source: str
    threads: int
    repetitions: int
    seconds: float
    plugins: tuple[Path, ...]
    to: Path | None
    force: bool
    as_json: bool
    quiet: bool


@click.command()
@list_option(
    "--method", "methods", shell_complete=names("methods"), required=True, help="Names or patterns: factored,mono or 'f*'."
)
@list_option("--task", "tasks", shell_complete=names("tasks"), required=True, help="Names or patterns: 'shapes3d-*'.")
@preset_option(help="Preset for batch and model sizes.")
@click.option("--set", "overrides", multiple=True, metavar="NAME=VALUE", help="A setting of method, task or budget, as for run.")
@device_option
@precision_option(help="As for run.")
@source_option(help="As for run.")
@threads_option
@click.option(
    "--repetitions", default=5, show_default=True, type=click.IntRange(5, 1000), help="Number of fresh processes to measure in."
)
@click.option(
    "--seconds",
    default=1.0,
    show_default=True,
    type=Finite(0.05, 600),
    help="Seconds of training, and then of sampling, that each process times.",
)
@plugin_option()
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), help="Folder to write to, such as leaderboards/profiles.")
@click.option("--force", is_flag=True, help="Measure again what was measured on this machine with this code.")
@click.option("--json", "as_json", is_flag=True, help="Print each profile as one line of JSON.")
@click.option("--quiet", is_flag=True, help="Do not say what is being measured.")
def profile(**options: Unpack[ProfileOptions]) -> None:
    """Measure what a method costs on a task: the seconds that a training step and a request take, and memory.

    \b
    compbench profile --method factored --task shapes3d-heavy
    compbench profile --method 'f*' --task 'gauss2d-*' --to leaderboards/profiles

    Each measurement runs in fresh processes, after a warm-up process that is not timed.  Run nothing else on the machine
    meanwhile.  Boards show these figures, or `?` where nothing was measured.

    Exit status: 0 done, 1 some could not be measured, 2 wrong usage or another `compbench profile` is running on this machine.
    """
    cells, cell_options = _cells(options), _cell_options(options)
    home = Home.of_user()
    folder = options["to"] or home.profiles
    say = (lambda line: None) if options["quiet"] or options["as_json"] else (lambda line: click.echo(line, err=True))
    failed = 0
    with interrupted_once(), costs.alone(), temporary_folder("compbench-profile-") as scratch:
        side = sides.head_of(scratch, home.data, tuple(path.resolve() for path in options["plugins"]))
        for cell in cells:
            try:
                found = _measured(side, cell, cell_options, options, folder, say)
            except sides.Unable as error:
                failed += 1
                click.echo(f"compbench: {cell.method} on {cell.task} could not be measured: {error}", err=True)
                continue
            as_json = json.dumps(found.model_dump(mode="json"), sort_keys=True) if options["as_json"] else ""
            click.echo(as_json or _words(found, folder / found.name))
            write_profile(folder, found)  # only now, so that a measurement that cannot be written is not lost
    sys.exit(1 if failed else 0)


def _cells(options: ProfileOptions) -> list[Cell]:

    files = tuple(path.resolve() for path in options["plugins"])
    preset, overrides = options["preset"], parse_overrides(options["overrides"])
    return [
        Cell(method=method, task=task, preset=preset, seeds="0", set=overrides)
        for task in parse.names("tasks", options["tasks"], ())
        for method in parse.names("methods", options["methods"], files)
    ]


def _cell_options(options: ProfileOptions) -> CellOptions:

    threads = options["threads"] or num_cores()
    if threads > num_cores():
        raise CompbenchError(f"--threads {threads}: this process may use {num_cores()} cores; ask for at most as many.")
    return CellOptions(options["device"], options["source"], "wall", options["seconds"], options["precision"], threads)


def _measured(
    side: Side, cell: Cell, cell_options: CellOptions, options: ProfileOptions, folder: Path, say: Callable[[str], None]
) -> CostProfile:
    """A new measurement, or a stored one of the same code on the same machine."""
    Home.of_user().share_data(sides.folder_of(side, cell) / "cache")
    known = [] if options["force"] else read_profiles(folder)[0]
    found = costs.measure(side, cell, cell_options, repetitions=options["repetitions"], known=known, listener=say)
    if not found.alone:
        others = "an unknown number of" if found.other_cores is None else f"up to {found.other_cores.high:.1f}"
        click.echo(
            f"compbench: other processes used {others} of {found.cores} cores during the measurement: these speeds are "
            "lower bounds. Measure again (--force) when the machine is idle.",
            err=True,
        )
    return found


def _words(found: CostProfile, path: Path) -> str:
    def measure(value: Measure, unit: float, name: str) -> str:
        return f"{value.median * unit:.3g} {name} ({value.low * unit:.3g} to {value.high * unit:.3g})"

    def requests(answered: Requests) -> str:
        return f"{measure(answered.medians, 1000, 'ms')}, p95 {answered.p95 * 1000:.3g} ms"

    train = measure(found.train_step_seconds, 1000, "ms") if found.train_step_seconds else "none is reported"
    return "\n".join(
        (
            f"{found.spec.method} on {found.spec.task}, {found.spec.preset}, {found.hardware}",
            f"  training step  {train}, batches of {found.spec.budget.batch_size}",
            f"  one sample     {requests(found.single)}",
            f"  {f'{found.request_rows} samples':<13}  {requests(found.request)}",
            f"  peak memory    {measure(found.peak_memory_bytes, 2**-20, 'MiB')}",
            f"  {path}",
        )
    )
