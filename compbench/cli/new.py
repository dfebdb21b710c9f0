"""new."""

from __future__ import annotations

from pathlib import Path

import click

from compbench.cli.starter import StarterKind, start


@click.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(["method", "task", "metric"]), default="method", show_default=True)
@click.option(
    "--into", type=click.Path(path_type=Path), default=Path(), help="Parent of the new folder; default: the current folder."
)
def new(name: str, kind: StarterKind, into: Path) -> None:
    """Write a plugin to start from: a folder compbench-NAME with a working method, a test and a CI workflow.

    \b
    compbench new my-method
    """
    folder, files = start(name, kind, into)
    for file in files:
        click.echo(folder / file)
    click.echo(f'next: cd {folder} && pip install -e ".[test]" && pytest')
