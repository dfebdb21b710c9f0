"""board: the leaderboard from records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from compbench.board import site
from compbench.board.build import Answers, Material, answers, build, draw
from compbench.board.groups import Section
from compbench.board.page_families import default_contest
from compbench.board.terminal import overview, task_board
from compbench.cli.names import names
from compbench.cli.wrapping import paragraph, refilled, width_of_terminal
from compbench.store.format import clean
from compbench.store.records import Problem, collector_paused
from compbench.system.errors import CompbenchError
from compbench.system.home import Home

MOST_NAMED = 5
"""A line names at most this many tasks."""


@click.command()
@click.argument("task", required=False, default="", shell_complete=names("tasks"))
@click.option("--records", type=click.Path(path_type=Path), help="Folder of records; default: those of COMPBENCH_HOME.")
@click.option("--output", type=click.Path(path_type=Path), help="Folder to write the board to; default: COMPBENCH_HOME/board.")
@click.option("--link", is_flag=True, help="Link to the pictures in the folder of records instead of copying them into the page.")
@click.option(
    "--figures", type=click.Path(path_type=Path), help="Also write forest plots and filmstrips into this folder, as PDF and SVG."
)
@click.option("--hardware", default="", metavar="NAME", help="Show speeds on this machine; default: the most measured one.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the board is stale.")
def board(
    task: str, records: Path | None, output: Path | None, link: bool, figures: Path | None, hardware: str, check: bool
) -> None:
    """Rebuild the board from records and print its ranking, or the ranking of one TASK.

    \b
    compbench board
    compbench board shapes3d-heavy
    compbench board --figures figures

    The board is an HTML page, CSV files and a Markdown file.  The same records always give the same bytes.
    """
    records, output = records or Home.of_user().records, output or Home.of_user().board
    if not records.is_dir():
        raise CompbenchError(f"there are no records in {records}; `compbench run` writes some.")
    if check:
        old = site.stale(records, output, link=link, hardware=hardware)
        for path in old:
            click.echo(f"stale: {path}", err=True)
        sys.exit(1 if old else 0)
    with collector_paused():
        _show(*site.read(records, output, link=link, hardware=hardware), task, output, figures)


def _show(material: Material, problems: Sequence[Problem], task: str, output: Path, figures: Path | None) -> None:
    """Print the ranking, write the requested figures and, unless a single task was requested, write the board."""
    for problem in problems:
        click.echo(problem.passed_over, err=True)
    found = answers(material)
    _print(found, task)
    if figures is not None:
        for path in draw(material, figures, found):
            click.echo(path)
    if not task:
        pages = build(material, output, found)
        click.echo(f"\n{next(page for page in pages if page.suffix == '.html').resolve().as_uri()}")


def _print(made: Answers, task: str) -> None:
    """Print the ranking of one task, or the answers to all questions."""
    found, contests, views = made
    first = default_contest(contests)
    width = width_of_terminal()
    text = task_board(found, task, width) if task else overview(views[first], contests[first], width) if views else ""
    nothing = "No core task was run under its own protocol; `compbench board TASK` shows one task."
    click.echo(refilled(text) or (nothing if found.rows else "There are no records; `compbench run` writes some."))
    if not task:
        _print_others({row.section for row in found.rows}, views[first].preset if views else "")


def _print_others(sections: set[Section], shown: str) -> None:
    """Print a line per preset that the ranking above leaves out, with its tasks, and how to see them."""
    tasks: dict[str, set[str]] = {}
    for section in sections:
        tasks.setdefault(section.preset, set()).add(section.task)
    for preset in sorted(tasks.keys() - {shown}):
        names = sorted(map(clean, tasks[preset]))
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        without = "; scores at smoke mean nothing" if preset == "smoke" else ""
        others = f"{', '.join(names[:MOST_NAMED])}{more} (`compbench board TASK` shows all presets{without})."
        click.echo(paragraph(f"Also at {preset}: ", others, "  "))
