"""compare: two methods or two records side by side."""

from __future__ import annotations

import fnmatch
import json
import shlex
from collections.abc import Sequence, Set
from pathlib import Path

import click

from compbench.api.schemas import Record
from compbench.board import site
from compbench.board.build import Material, tables
from compbench.board.comparison import Comparison, ScoreDifference, compare_methods, compare_records, side_by_side
from compbench.board.notation import count, number
from compbench.board.row import Board
from compbench.board.terminal import aligned
from compbench.cli.names import records as completed
from compbench.cli.options import PRESET
from compbench.cli.wrapping import paragraph, width_of_terminal
from compbench.registry.registry import Registry
from compbench.store.profiles import Costs, read_profiles
from compbench.store.records import Problem, Store, find_among, read_record
from compbench.system.errors import CompbenchError, suggest
from compbench.system.files import Json, write_atomically
from compbench.system.home import Home

ARROWS = {"higher": "↑", "lower": "↓"}
"""For each direction of a metric, an arrow that points to better scores."""


@click.command()
@click.argument("a", shell_complete=completed(methods=True))
@click.argument("b", shell_complete=completed(methods=True))
@click.option("--task", default="*", help="With two methods: compare on these tasks only (name or pattern).")
@click.option("--preset", type=PRESET, help="With two methods: compare at this preset only.")
@click.option(
    "--records",
    "folders",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Folder of records; default: those of COMPBENCH_HOME.  May be given again: your records and published ones.",
)
@click.option(
    "--picture",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.png",
    help="Write a picture with samples of both, side by side.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def compare(
    a: str, b: str, task: str, preset: str | None, folders: tuple[Path, ...], picture: Path | None, as_json: bool
) -> None:
    """Compare two methods, or two records: scores paired by seed, with 95 % intervals, and costs.

    \b
    compbench compare factored mono --task 'shapes3d-*'
    compbench compare factored mono --records leaderboards/records --preset quick
    compbench compare emoji-light.cfg.quick.s0 emoji-light.mono.quick.s0
    compbench compare factored mono --task shapes3d-heavy --picture both.png
    compbench compare mine mono --records MINE --records leaderboards/records

    A and B are names of methods, or paths, names or parts of names of records.  Runs of one seed have the same data order,
    conditions and noise, so differences at equal seeds vary less than the difference of means.  The picture shows samples
    of both from the same noise, at the smallest seed that both have; of several tasks it shows the first.
    """
    folders = folders or (Home.of_user().records,)
    for folder in folders:
        if not folder.is_dir():
            raise CompbenchError(f"there are no records in {folder}; `compbench run` writes some.")
    if a == b:
        raise CompbenchError(f"'{a}' is compared with itself; name two different methods or records.")
    stores = [Store(folder) for folder in folders]
    runs = {name: name.split(".") for store in stores for name in store.names()}
    methods = {parts[1] for parts in runs.values() if len(parts) > 1}
    for name, other in ((a, b), (b, a)):
        if other in methods and name not in methods:
            raise CompbenchError(f"{suggest('method with records', name, sorted(methods), listed=False)}{_other_folder(folders)}")
    names = {name for name, parts in runs.items() if a in methods and _fits(parts, (a, b), task, preset)}
    material, problems = _together(stores, names)
    for problem in problems:
        click.echo(problem.passed_over, err=True)
    if a in methods:
        found = compare_methods(*_chosen(material, task, preset, (a, b)), a, b, material.costs)
    else:
        first, second = (_record(stores, text) for text in (a, b))
        found = [compare_records(first, second, material.costs)]
    if as_json:
        click.echo(json.dumps([_as_json(one) for one in found]))
    else:
        click.echo("\n\n".join("\n".join(_lines(one)) for one in found))
    if picture is not None:
        _draw(found, stores, material, picture)


def _fits(parts: Sequence[str], methods: Sequence[str], task: str, preset: str | None) -> bool:
    """Whether a record's name, split at its dots, names one of the methods, a requested task and the requested preset."""
    return len(parts) > 2 and parts[1] in methods and fnmatch.fnmatchcase(parts[0], task) and preset in (None, parts[2])


def _other_folder(folders: Sequence[Path]) -> str:
    """How to compare with records of another folder; "" if several folders were given."""
    if len(folders) > 1:
        return ""
    own, published = Home.of_user().records, Path("leaderboards", "records")
    others = (own, folders[0]) if folders[0].resolve() != own.resolve() else (own, published)
    words = [word for one in others for word in ("--records", str(one))]
    what = "" if others[1] != published or published.is_dir() else " (in a clone of compbench)"
    return f" To compare with published records, name both folders: {shlex.join(words)}{what}."


def _together(stores: Sequence[Store], names: Set[str]) -> tuple[Material, list[Problem]]:
    """The material for a comparison of records of all stores, and the records that cannot be used.

    If several stores have a record, the first store's copy counts.
    """
    taken: set[str] = set()
    parts: list[Material] = []
    problems: list[Problem] = []
    for store in stores:
        own = names & set(store.names()) - taken
        taken |= own
        material, more = site.read(store.folder, store.folder, names=sorted(own))
        parts.append(material)
        problems += [problem for problem in more if problem.path.name in own]  # a level may belong to a record that is not read
    if len(parts) == 1:
        return parts[0], problems
    kinds = {name: facts.kind for part in parts for name, facts in part.catalogue.items() if facts.kind}
    profiles = {one.name: one for store in stores for one in read_profiles(store.folder.parent / site.PROFILES)[0]}
    together = Material(
        records=[record for part in parts for record in part.records],
        standings={name: standing for part in parts for name, standing in part.standings.items()},
        catalogue={name: facts for part in parts for name, facts in part.catalogue.items()},
        costs=Costs(profiles.values(), kinds),
        methods={name: facts for part in parts for name, facts in part.methods.items()},
    )
    return together, problems


def _record(stores: Sequence[Store], text: str) -> Record:
    """A record by path or name.  Raises CompbenchError if there is none; the error says so if the text names a method."""
    if text in Registry().names("methods"):
        folders = [store.folder for store in stores]
        raise CompbenchError(
            f"'{text}' is a method; name two methods that both have records in {' and '.join(map(str, folders))}, or two records."
            f"{_other_folder(folders)}"
        )
    return read_record(find_among(stores, text))


def _chosen(material: Material, task: str, preset: str | None, methods: tuple[str, str]) -> tuple[Board, list[Record]]:
    """The board of the requested records, and these records.  Raises CompbenchError if one of the methods has no such record."""
    records = list(material.records)
    for method in methods:
        if method not in {record.spec.method for record in records}:
            asked = [f"of task '{task}'"] if task != "*" else []
            asked += [f"at preset {preset}"] if preset else []
            raise CompbenchError(f"no record of '{method}' {' '.join(['is', *asked]) if asked else 'can be used'}.")
    return tables(material)[0], records


def _lines(found: Comparison) -> list[str]:
    """The two tables and the remarks; tables are as wide as the terminal at most."""
    lines = [["score (arrow: better)", f"A {found.a}", f"B {found.b}", "B - A", "95 % interval", "seeds", ""]]
    for score in found.scores:
        none = "one seed" if score.num_seeds == 1 else "-"
        span = f"{number(score.interval.low)} to {number(score.interval.high)}" if score.interval else none
        name = f"{score.name} {ARROWS[score.direction]}"
        values = [number(score.a), number(score.b), f"{score.difference:+.4g}", span, str(score.num_seeds)]
        lines.append([name, *values, _verdict(score)])
    costs = [["cost", "A", "B", "B / A"]]
    for cost in found.costs:
        ratio = "?" if cost.ratio is None else f"{cost.ratio:.3g}"
        written = number if cost.name.startswith("seconds ") else count
        costs.append([cost.name, *("?" if value is None else written(value) for value in (cost.a, cost.b)), ratio])
    width = width_of_terminal()
    tables = [*aligned(lines, width), "", *aligned(costs, width)]
    return [found.task, "", *tables, *(paragraph("note: ", one) for one in found.remarks)]


def _verdict(score: ScoreDifference) -> str:
    if score.better:
        return f"{score.better} is better"
    return "not significantly different" if score.interval else ""


def _as_json(found: Comparison) -> dict[str, Json]:
    scores = [{**one._asdict(), "interval": one.interval and list(one.interval)} for one in found.scores]
    costs = [{**one._asdict(), "ratio": one.ratio} for one in found.costs]
    return {**found._asdict(), "scores": scores, "costs": costs}


def _draw(found: list[Comparison], stores: Sequence[Store], material: Material, file: Path) -> None:
    """Write the pictures of both sides into one file, and print where it is and what it shows."""
    known = {record.name: record for record in material.records}
    pictures = []
    for name, label in zip(found[0].records, (found[0].a, found[0].b), strict=True):
        record = known.get(name) or read_record(find_among(stores, name))
        content = next((picture for store in stores if (picture := store.picture(record))), None)
        if content is None:
            raise CompbenchError(f"{name} has no picture of samples next to it.")
        pictures.append((label, content))
    write_atomically(file, side_by_side(pictures))
    click.echo(f"picture {file} ({found[0].task})", err=True)
