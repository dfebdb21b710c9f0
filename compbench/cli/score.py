"""score, rescore: score existing samples without training."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import TypedDict, Unpack

import click

from compbench.api.context import Presets
from compbench.api.schemas import RunRequest
from compbench.cli import names as completion
from compbench.cli import output
from compbench.cli.options import metric_option, named_metrics, plugin_option, preset_option, rebuild_board
from compbench.cli.show import show_record
from compbench.cli.submit import matching
from compbench.registry.registry import Registry
from compbench.runner import rescore as scoring
from compbench.runner.attempt import Outcome
from compbench.runner.rescore import rescore as rescore_one
from compbench.runner.signals import terminate_like_ctrl_c
from compbench.store.records import Store, read_record
from compbench.sweep.parse import parse_overrides
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

FILE = click.Path(path_type=Path)
OWN_NAME = re.compile(r"[^A-Za-z0-9_.+-]+")


class ScoreOptions(TypedDict):
    """The options of `score` that say what is scored, as click parsed them."""

    task: str
    name: str
    method: str
    plugins: tuple[Path, ...]
    overrides: tuple[str, ...]
    preset: Presets
    seed: int


@click.command()
@click.argument("samples", required=False, type=FILE)
@click.option("--task", required=True, shell_complete=completion.names("tasks"), help="Name of a task.")
@click.option("--requests", type=FILE, metavar="FILE.npz", help="Score nothing; write what the task asks for, in order, to FILE.")
@click.option("--name", default="", help="Name of the samples on boards; default: the file's name.")
@click.option("--weights", type=FILE, metavar="FILE", help="Score these weights (of --method) instead of samples.")
@click.option(
    "--method",
    default="",
    shell_complete=completion.names("methods"),
    help="With --weights: the method that the weights belong to; it must define `build`.",
)
@plugin_option()
@click.option("--set", "overrides", multiple=True, metavar="NAME=VALUE", help="A setting of task, budget or method, as in run.")
@preset_option(help="Preset that sets the number of samples.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**31 - 1), help="Seed of the requested conditions.")
@click.option(
    "--range",
    "value_range",
    default="",
    metavar="LOW,HIGH",
    help="Values of black and white in images: 0,1 or 0,255.  Default: -1,1 for floating point, 0,255 for uint8.",
)
@click.option("--quiet", is_flag=True, help="Show no progress bars.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def score(
    samples: Path | None,
    requests: Path | None,
    weights: Path | None,
    value_range: str,
    quiet: bool,
    as_json: bool,
    **options: Unpack[ScoreOptions],
) -> None:
    """Score SAMPLES from any source, or the weights of a method, on a task.  Nothing is trained; samples need no plugin.

    \b
    compbench score --task shapes3d-heavy --requests wanted.npz
        writes what is asked: conditions (N, F), noise x0, streams
    compbench score samples.npz --task shapes3d-heavy --name my-model
        reads arrays `samples` (N, *D) and `conditions` (N, F)
    compbench score folder --task shapes3d-heavy
        reads conditions.csv: a column per factor, and `file` for pictures
    compbench score --weights model.safetensors --method mono --task gmm-id

    The evaluation is the same as in a run.  The record has the level `samples only`: compbench did not observe the training,
    so boards show it as a reference that does not compete.
    """
    terminate_like_ctrl_c()
    if sum(one is not None for one in (samples, requests, weights)) != 1:
        raise CompbenchError("score takes exactly one of SAMPLES, --weights FILE and --requests FILE.")
    if (weights is None) != (not options["method"]):
        raise CompbenchError("--weights and --method go together: name the method of the weights.")
    if value_range and samples is None:
        raise CompbenchError("--range goes with SAMPLES: it says how to read their values.")
    bounds = _range(value_range)
    request = _request(samples, options)
    with output.notices(quiet=quiet), output.listener(quiet=quiet, title=f"score on {request.task}") as listener:
        if requests is not None:
            count = scoring.write_requests(request, requests, listener=listener)
            click.echo(f"{count} requests in {requests}: add `samples`, a row each, and score the file")
            return
        if samples is not None:
            outcome = scoring.score_samples(request, samples, value_range=bounds, listener=listener)
        else:
            assert weights is not None
            outcome = scoring.score_weights(request, weights, listener=listener)
    _shown(outcome, request.home, as_json=as_json)


@click.command()
@click.argument("records", nargs=-1, required=True, shell_complete=completion.records())
@plugin_option()
@metric_option()
@click.option("--quiet", is_flag=True, help="Show no progress bars.")
def rescore(records: tuple[str, ...], plugins: tuple[Path, ...], metrics: str, quiet: bool) -> None:
    """Score the kept samples or weights of RECORDS with today's metrics.  Nothing is trained.

    \b
    compbench rescore shapes3d-heavy.factored.quick.s0
    compbench rescore gmm-id --metric spread      by another package's metric

    RECORDS are paths or parts of names; a part means all records of COMPBENCH_HOME whose names contain it.  A run keeps its
    weights, and its samples if it had --keep-samples.  The new record names the old one; scores of unchanged metrics must stay
    the same.

    Exit status: 0 all records were scored, 1 some could not be scored, 2 wrong usage.
    """
    terminate_like_ctrl_c()
    home = Home.of_user()
    store = Store(home.records)
    paths = sorted({path for text in records for path in matching(store, text)})
    failed, more = False, named_metrics(metrics)
    for path in paths:
        try:
            with output.listener(quiet=quiet, title=f"rescore {path.stem}") as listener:
                outcome = rescore_one(path, home, plugins=plugins, metrics=more, listener=listener)
        except CompbenchError as error:
            if len(paths) == 1:
                raise
            click.echo(f"compbench: {error}", err=True)
            failed = True
            continue
        click.echo(f"{path.stem}: {_what_is_new(path, outcome)}")
    rebuild_board(home.root)
    sys.exit(1 if failed else 0)


def _range(text: str) -> tuple[float, float] | None:
    """LOW,HIGH as numbers; None if the option is not given."""
    if not text:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise CompbenchError(f"--range {text}: use two numbers, those of black and of white: --range 0,1.") from error
    if not (-math.inf < low < high < math.inf):
        raise CompbenchError(f"--range {text}: the first number, of black, is the smaller one.")
    return low, high


def _what_is_new(path: Path, outcome: Outcome) -> str:
    """Say which scores of a new record the old one lacks or has in another version."""
    if outcome.path.stem == path.stem:
        return "already has all of today's scores"
    before = {score.name: (score.metric_version, score.value is None) for score in read_record(path).scores}
    found = [score for score in outcome.record.scores if before.get(score.name) != (score.metric_version, score.value is None)]
    values = ", ".join(f"{score.name} {'unavailable' if score.value is None else format(score.value, '.4g')}" for score in found)
    return f"{values or 'no score is new'}: {outcome.path}{' (was done before)' if outcome.reused else ''}"


def _request(samples: Path | None, options: ScoreOptions) -> RunRequest:

    registry = Registry(tuple(path.resolve() for path in options["plugins"]))
    registry.entry("tasks", options["task"])
    if options["method"]:
        registry.entry("methods", options["method"])
    overrides = parse_overrides(options["overrides"])
    for name in overrides if not options["method"] else ():
        if not name.startswith(("task.", "budget.")):
            raise CompbenchError(f"--set {name}: samples have no settings of a method; use task.NAME or budget.NAME.")
    own = OWN_NAME.sub("-", options["name"] or (samples.stem if samples else "samples")).strip("-.+_")[:80]
    return RunRequest.of(
        task=options["task"],
        method=options["method"] or own or "samples",
        overrides=overrides,
        preset=options["preset"],
        seed=options["seed"],
        plugins=tuple(str(path.resolve()) for path in options["plugins"]),
        home=str(Home.of_user().root),
    )


def _shown(outcome: Outcome, home: str, *, as_json: bool) -> None:

    if as_json:
        click.echo(json.dumps(outcome.record.model_dump(mode="json"), sort_keys=True))
    else:
        show_record(outcome.record, outcome.path, reused=outcome.reused)
    rebuild_board(Path(home))
