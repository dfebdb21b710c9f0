"""remove: delete records of your own store, with their pictures, weights and levels."""

from __future__ import annotations

import sys
from typing import get_args

import click

from compbench.api.schemas import Status
from compbench.cli.names import names, records
from compbench.cli.options import PRESET, rebuild_board
from compbench.store.format import clean
from compbench.store.removal import UNKNOWN, Wanted, chosen, removals
from compbench.store.removal import remove as remove_one
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

STATUSES = (*get_args(Status), UNKNOWN)
MOST_LISTED = 20


@click.command()
@click.argument("record", nargs=-1, shell_complete=records())
@click.option(
    "--method", default="", metavar="NAME", shell_complete=names("methods"), help="Records of this method: dit, 'my-*'."
)
@click.option("--task", default="", metavar="NAME", shell_complete=names("tasks"), help="Records of this task: 'shapes3d-*'.")
@click.option("--preset", type=PRESET, metavar="PRESET", help="Records at this preset: smoke.")
@click.option("--status", type=click.Choice(STATUSES), metavar="STATUS", help="Records with this status: failed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(record: tuple[str, ...], method: str, task: str, preset: str | None, status: str | None, yes: bool) -> None:
    """Remove records from your own store, by name or by what they have in common.

    \b
    compbench remove shapes3d-heavy.my-idea.quick.s0
    compbench remove --method 'bad-*' --preset smoke
    compbench remove --status failed --yes

    Pictures and levels of a record are removed with it; weights and logs of a run are removed with its last attempt.  With
    several filters a record must match all of them.  The command lists what it will remove and asks first; it never touches
    published records.

    Exit status: 0 removed, 1 you answered no, 2 wrong usage or no such record.
    """
    wanted = Wanted(method, task, preset or "", status or "")
    if bool(record) == any(wanted):
        what = "names and filters together" if record else "neither a name nor a filter"
        raise CompbenchError(f"remove got {what}: name records, or give --method, --task, --preset or --status.")
    home = Home.of_user()
    going = removals(home, chosen(home, record, wanted))
    if not going:
        raise CompbenchError(f"no record in {home.records} matches; `compbench show` lists them.")
    for one in going[:MOST_LISTED]:
        click.echo(f"{clean(one.path.stem)}  {one.status}{', with its weights and logs' if one.run else ''}")
    if len(going) > MOST_LISTED:
        click.echo(f"and {len(going) - MOST_LISTED} more")
    files, size = sum(len(one.files) for one in going), sum(one.num_bytes for one in going)
    what = f"{len(going)} record{'' if len(going) == 1 else 's'} ({files} files, {size / 1e6:.1f} MB)"
    if not yes:
        if not has_terminal():
            raise CompbenchError(f"{what} would be removed, but there is no terminal to ask in: add --yes. Nothing was removed.")
        if not click.confirm(f"Remove {what} for good?"):
            click.echo("nothing was removed")
            sys.exit(1)
    for one in going:
        remove_one(home, one)
    rebuild_board(home.root)
    click.echo(f"removed {what}")


def has_terminal() -> bool:
    """Whether a user at a terminal can be asked."""
    return sys.stdin.isatty()
