"""board: the leaderboard from records."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from compbench.cli.options import home_of_user
from compbench.errors import CompbenchError


@click.command()
@click.option("--records", type=click.Path(path_type=Path), help="Folder of records; default: those of COMPBENCH_HOME.")
@click.option("--output", type=click.Path(path_type=Path), help="Where the board goes; default: COMPBENCH_HOME/board.")
@click.option("--link", is_flag=True, help="Refer to pictures beside the records: a page to be published with them.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the board is stale.")
def board(records: Path | None, output: Path | None, link: bool, check: bool) -> None:
    """Rebuild the board (CSV, Markdown, one HTML page) from records.  The same records give the same bytes."""
    from compbench.board.site import rebuild, stale

    records, output = records or home_of_user().records, output or home_of_user().board
    if not records.is_dir():
        raise CompbenchError(f"there are no records in {records}; `compbench run` writes some.")
    if check:
        old = stale(records, output, link=link)
        for path in old:
            click.echo(f"stale: {path}", err=True)
        sys.exit(1 if old else 0)
    pages, problems = rebuild(records, output, link=link)
    for problem in problems:
        click.echo(f"passed over: {problem.path.name} {problem.reason}", err=True)
    for page in pages:
        click.echo(page)
