"""tune: choose a method's settings on combinations held out inside the seen ones."""

from __future__ import annotations

import shlex
from typing import Unpack

import click

from compbench.cli.names import names
from compbench.cli.options import (
    RequestOptions,
    device_option,
    plugin_option,
    precision_option,
    preset_option,
    run_requests,
    source_option,
    threads_option,
)
from compbench.runner.signals import terminate_like_ctrl_c
from compbench.sweep.parse import parse_overrides
from compbench.sweep.tuning import Progress, Start
from compbench.sweep.tuning import tune as study
from compbench.system.errors import CompbenchError


class TuneOptions(RequestOptions):
    """The options of `tune` except those that are arguments of `tune` itself."""

    overrides: tuple[str, ...]
    threads: int
    study_seed: int
    quiet: bool


@click.command()
@click.option("--task", required=True, shell_complete=names("tasks"), help="Name of a task.")
@click.argument("method", shell_complete=names("methods"))
@click.option(
    "--trials", required=True, type=click.IntRange(1, 10_000), help="Number of trials in all, including those of an earlier call."
)
@click.option("--seeds", "seeds", default=1, show_default=True, type=click.IntRange(1, 20), help="Number of runs of each trial.")
@click.option(
    "--search",
    multiple=True,
    metavar="NAME=RANGE",
    help="Values to try of a setting or of the budget: NAME=LOW:HIGH, NAME=LOW:HIGH:log, NAME=V1,V2 or NAME=V1,LOW:HIGH.",
)
@click.option("--set", "overrides", multiple=True, metavar="NAME=VALUE", help="A setting that all trials share, as for run.")
@preset_option(help="Preset whose budget each run uses.")
@device_option
@precision_option(help="As for run.")
@source_option(help="As for run.")
@threads_option
@click.option(
    "--study-seed",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help="Seed of the search, and of the seen combinations that it holds out.",
)
@plugin_option()
@click.option("--json", "as_json", is_flag=True, help="Print the settings file as JSON.")
@click.option("--quiet", is_flag=True, help="Do not print the search space and the trials.")
def tune(
    method: str, task: str, trials: int, seeds: int, search: tuple[str, ...], as_json: bool, **options: Unpack[TuneOptions]
) -> None:
    """Search for good settings of a method, with Optuna, and write them to a file.

    \b
    compbench tune fkc --task bump-center --trials 30
    compbench tune mono --task bump-center --trials 30 \\
        --search budget.learning_rate=0.0003:0.003:log
    compbench run --method mono --task bump-center --settings FILE

    No trial samples the task's own held-out combinations.  Instead, some of the seen combinations are held out too, in the
    same pattern, and trials are compared by the energy score on these.  If none can be held out, trials are compared on seen
    combinations, and the file says so.  The first trial has the default settings.  The same command again continues a stopped
    study.  The first lines say which settings are searched, and which keep their defaults and why.

    Exit status: 0 done, 2 wrong usage or no trial ended well, 130 stopped by Ctrl-C.
    """
    terminate_like_ctrl_c()
    overrides = parse_overrides(options["overrides"])
    if wrong := [name for name in overrides if name.startswith("task.")]:
        raise CompbenchError(
            f"--set {wrong[0]}: settings of a task are not tuned; --set takes those of the method and the budget."
        )
    (request,) = run_requests([method], [task], overrides, options, seeds=str(options["study_seed"]), threads=options["threads"])

    quiet = options["quiet"] or as_json

    def begun(start: Start) -> None:
        if quiet:
            return
        click.echo(f"study    {start.name}, {start.done} of {trials} trials done", err=True)
        for name, values in start.space.items():
            click.echo(f"search   {name}: {values.in_words()}", err=True)
        for name, why in start.left.items():
            click.echo(f"keep     {name}: {why}", err=True)

    def report(progress: Progress) -> None:
        if not quiet:
            value = f"{progress.value:.4g}" if progress.value is not None else f"- ({progress.why})"
            best = f"{progress.best:.4g}" if progress.best is not None else "-"
            click.echo(f"trial {progress.done} of {trials}: {value}, best {best}", err=True)

    found, path = study(request, search, trials=trials, seeds=seeds, begun=begun, listener=report)
    if as_json:
        click.echo(found.model_dump_json())
        return
    tuning = found.tuning
    default = "no value" if tuning.default_value is None else f"{tuning.default_value:.4g}"
    where = f" ({tuning.num_cells} of them)" if tuning.num_cells else ": no combination can be held out inside the seen ones"
    click.echo(f"{tuning.objective}{where}: {tuning.value:.4g} with these settings, {default} with the defaults")
    for name, value in found.settings.items():
        click.echo(f"  {name} = {value}")
    click.echo(
        f"{tuning.trials} trials ({tuning.pruned} pruned, {tuning.failed} failed) took {tuning.train_flops:.3g} FLOP of training "
        f"and {tuning.cpu_seconds:.0f} CPU seconds"
    )
    words = ["compbench", "run", "--method", method, "--task", task, "--preset", tuning.preset, "--settings", str(path)]
    words += [word for file in options["plugins"] for word in ("--plugin", str(file))]
    click.echo(f"written to {path}\n{shlex.join(words)}")
