"""submit, reproduce: copy records for a pull request, and run a record's spec again."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Literal

import click

from compbench.board.comparison import machine_differences
from compbench.cli import names as completion
from compbench.cli import output
from compbench.cli.options import Finite, plugin_option
from compbench.registry.meaning import difference_in_words
from compbench.registry.registry import Registry
from compbench.runner.reproduce import reproduce as reproduce_one
from compbench.runner.signals import terminate_like_ctrl_c
from compbench.store import verification
from compbench.store.records import Store
from compbench.store.submission import gathered, lay_out
from compbench.system.errors import CompbenchError
from compbench.system.home import Home


@click.command()
@click.argument("records", nargs=-1, required=True, shell_complete=completion.records())
@click.option("--to", "leaderboards", required=True, type=click.Path(path_type=Path), help="The repository's leaderboards/.")
@click.option(
    "--training-data",
    required=True,
    type=click.Choice(["seen", "external"]),
    help="Training data of the method: only the task's seen combinations, or external data too (name it with --note).",
)
@click.option("--note", default="", help="Name and origin of the external data.")
def submit(records: tuple[str, ...], leaderboards: Path, training_data: Literal["seen", "external"], note: str) -> None:
    """Check RECORDS and copy them to leaderboards/ for a pull request.

    \b
    compbench submit gmm-id.my-method --to leaderboards --training-data seen

    RECORDS are paths or parts of names; a part means all records of COMPBENCH_HOME whose names contain it.  Everything is
    checked before anything is written.  Their level is `self-reported` until someone else runs `compbench reproduce`.
    """
    if training_data == "external" and not note.strip():
        raise CompbenchError("--training-data external needs --note with the data's name and where it comes from.")
    if len(note) > 300:
        raise CompbenchError(f"--note has {len(note)} characters; at most 300 are allowed.")
    store, registry = Store(Home.of_user().records), Registry()
    paths = sorted({path for text in records for path in matching(store, text)})
    submissions, left_out = gathered(paths, registry)
    laid_out = lay_out(submissions, leaderboards, training_data=training_data, note=" ".join(note.split()))
    for path in laid_out.written:
        click.echo(path)
    for one in submissions:
        if one.differing:
            click.echo(f"{one.path.stem}: {difference_in_words(one.differing)}; the board marks older code")
    for path in laid_out.known:
        click.echo(f"there already: {path}")
    for error in left_out:
        click.echo(f"left out: {error}")
    records_here, site = str(leaderboards / "records"), str(leaderboards / "site")
    board = shlex.join(["compbench", "board", "--records", records_here, "--output", site, "--link"])
    click.echo(f"next: {board}, commit {leaderboards}, and open a pull request")


def matching(store: Store, text: str) -> list[Path]:
    """All records that match a text.  Raises CompbenchError if there are none."""
    return store.matching(text) or [store.find(text)]


@click.command()
@click.argument("record", shell_complete=completion.records())
@click.option(
    "--tolerance", default=verification.RELATIVE, show_default=True, type=Finite(0, 1), help="Relative tolerance of each score."
)
@click.option(
    "--threads", default=0, type=click.IntRange(0), help="Number of CPU threads; 0 takes as many as the record's run had."
)
@plugin_option("File of the record's method, if that is not installed.")
@click.option("--quiet", is_flag=True, help="Show no progress bars.")
def reproduce(record: str, tolerance: float, threads: int, plugins: tuple[Path, ...], quiet: bool) -> None:
    """Run the spec of RECORD again, compare the scores, and raise its level to `reproduced` if they agree.

    \b
    compbench reproduce shapes3d-heavy.factored.quick.s0

    The run uses fresh processes and caches, and judges are trained again.  It uses today's code and prints which parts of
    it differ from the record's.  With a --tolerance above the default, no level is written.

    Exit status: 0 reproduced, 1 not reproduced, 2 wrong usage, 130 stopped.
    """
    terminate_like_ctrl_c()
    home = Home.of_user()
    path = Store(home.records).find(record)
    with output.listener(quiet=quiet, title=f"reproduce {path.stem}") as listener:
        found = reproduce_one(path, home, tolerance=tolerance, threads=threads, plugins=plugins, listener=listener)
    if found.again.status == "killed":  # an interrupted run says nothing about the record
        click.echo(f"stopped: nothing is known of {path.stem} yet; run the command again.", err=True)
        sys.exit(130)
    for entry in found.compared:
        verdict = "agrees" if entry.agrees else "DIFFERS"
        click.echo(f"{verdict:8} {entry.name}: {entry.submitted:.6g}, now {entry.found:.6g} (within {entry.tolerance:.3g})")
    for name, reason in found.missing.items():
        click.echo(f"missing  {name}: {reason}")
    if found.again.status == "ok" and not found.same_shots:
        click.echo("DIFFERS  shots: the record names other examples of held-out cells than the ones that its seed draws")
    code = difference_in_words(found.differing)
    if not found.agrees:
        why = "" if found.again.status == "ok" else f": the run ended as '{found.again.status}' ({found.again.reason})"
        click.echo(f"not reproduced{why}; {code}", err=True)
        for line in machine_differences([found.record], [found.again]):
            click.echo(line, err=True)
        sys.exit(1)
    if tolerance > verification.RELATIVE:
        click.echo(f"reproduced within {tolerance:g}; {code}")
        click.echo(f"no level is written, because that needs a --tolerance of at most {verification.RELATIVE:g}")
        return
    folder = verification.beside(path.parent)
    written = verification.raise_level(
        path,
        folder,
        compared=found.compared,
        environment=found.again.environment,
        seconds=found.again.seconds,
        differing=found.differing,
    )
    click.echo(f"reproduced; {code}: {written}")
