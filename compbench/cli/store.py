"""verify, export: whole stores of records."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from compbench.api.schemas import Record
from compbench.board.catalogue import catalogue
from compbench.board.groups import section_of
from compbench.gate.proof import commits_of, new_rows, prove
from compbench.gate.sides import CouldNotRun, Unable
from compbench.gate.worktree import repository
from compbench.registry.equal_code import TABLE, read_table, write_table
from compbench.store import hub as hub_format
from compbench.store import trackers
from compbench.store.format import clean
from compbench.store.history import overwritten
from compbench.store.records import Store
from compbench.store.table import check_destination, read_store
from compbench.store.table import export as export_records
from compbench.store.verify import Finding
from compbench.store.verify import verify as check
from compbench.system.errors import CompbenchError
from compbench.system.home import Home, scratch_folder

FOLDER = click.Path(path_type=Path)
NAME_ON_HUB = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")


@click.command()
@click.argument("store", required=False, type=FOLDER)
@click.option("--against", default="", metavar="COMMIT", help="Also check that no record was changed since this git commit.")
@click.option("--pictures", is_flag=True, help="Also report pictures that a record names and that are missing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--equal", nargs=2, metavar="OLD NEW", help="Check no records; prove that two commits give bit-identical results.")
@click.option("--equal-code", is_flag=True, help="Do not check records; prove each row of the table of equal code again.")
@click.option("--write", is_flag=True, help="With --equal or --equal-code: write what is proven into the table of equal code.")
def verify(
    store: Path | None,
    against: str,
    pictures: bool,
    as_json: bool,
    equal: tuple[str, str] | None,
    equal_code: bool,
    write: bool,
) -> None:
    """Check a folder of records (default: those of COMPBENCH_HOME): format, location, plausibility, orphans and leftovers.

    \b
    compbench verify leaderboards/records
    compbench verify --equal HEAD~1 HEAD --write     proves old records valid

    Each problem is listed with its fix; nothing is changed.  Exit status: 0 all sound, 1 problems, 2 no such folder.
    """
    if equal or equal_code:
        sys.exit(_equal(equal, against, write=write))
    if write:
        raise CompbenchError("--write goes with --equal OLD NEW or --equal-code.")

    folder = store or Home.of_user().records
    report = check(folder)
    findings = list(report.findings)
    for name in overwritten(folder, against) if against else ():
        problem = "differs from an earlier commit, and records never change"
        fix = "restore the file; a repeated run is another attempt, with its own file"
        findings.append(Finding(name, "record" if name.endswith(".json") else "artifact", problem, fix))
    if pictures:
        fix = "restore it from a copy, or run again with --force"
        findings += [Finding(name, "artifact", "is missing, and its record is here", fix) for name in report.absent]
    if as_json:
        found = [finding._asdict() for finding in findings]
        click.echo(json.dumps({"records": len(report.records), "findings": found, "absent": report.absent}, sort_keys=True))
    else:
        for name, kind, problem, fix in findings:
            click.echo(f"{kind}: {clean(name)} {clean(problem).rstrip('.')}. To fix: {fix}.")
        kinds = Counter(finding.kind for finding in findings)
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        away = f", {len(report.absent)} of their pictures elsewhere" if report.absent and not pictures else ""
        click.echo(
            f"{folder}: {len(report.records)} sound records{away}; " + (f"problems: {counts}" if counts else "no problems")
        )
    sys.exit(1 if findings else 0)


def _equal(commits: tuple[str, str] | None, against: str, *, write: bool) -> int:
    """Prove what two commits have in common, or each row of the table; return the exit status.

    0: everything is proven (and, without --write, in the table); 1: something is not; 2: the proof could not be tried.
    """
    known = read_table(TABLE)
    top = repository(Path.cwd(), "--equal" if commits else "--equal-code")
    rows = new_rows(known, top, against) if against else known
    named = sorted({row.commit for row in rows})
    pairs = [commits] if commits else [(name if ".." in name else f"{name}~1..{name}").split("..") for name in named]
    home, status = Home.of_user(), 0
    for old, new in pairs:
        commit = commits_of(top, old, new)
        try:
            with scratch_folder(home.root) as folder:
                proven = prove(old, new, folder, home.data, lambda line: click.echo(line, err=True))
        except (CouldNotRun, Unable) as error:
            raise CompbenchError(f"{new}: {error}") from error
        for why in sorted(set(proven.unproven.values())):
            pairs_of = [pair for pair, own in proven.unproven.items() if own == why]
            click.echo(f"not equal: {', '.join(sorted(pairs_of)[:3])}{' ...' if len(pairs_of) > 3 else ''}: {why}")
        missing = {row for row in rows if row.commit == commit} - set(proven.rows)
        for row in sorted(missing):
            click.echo(f"{row.old[:12]} -> {row.new[:12]}: this row of the table could not be proven; delete it")
        added = set(proven.rows) - set(known)
        click.echo(
            f"{new}: {len(proven.rows)} digests are proven equal, {len(added)} of them are not in the table, "
            f"{len(proven.unproven)} codes are not equal, {len(proven.changed)} pairs have another version"
        )
        if write:
            known = [row for row in known if row not in missing] + sorted(added)
            write_table(TABLE, known)
        status = max(status, int(bool(missing or (commits and (proven.unproven or (added and not write))))))
    return status


@click.command()
@click.argument("store", required=False, type=FOLDER)
@click.option("--to", "destination", type=FOLDER, metavar="FILE.csv|FILE.parquet", help="Table to write.")
@click.option("--tensorboard", type=FOLDER, metavar="DIR", help="Write each record as a TensorBoard run.")
@click.option("--wandb", default="", metavar="PROJECT", help="Write each record as a run in a project of Weights & Biases.")
@click.option(
    "--hub",
    type=FOLDER,
    metavar="DIR",
    help="Write a data set and models in the format of the Hugging Face Hub; nothing is uploaded.",
)
@click.option(
    "--benchmark",
    default="",
    metavar="OWNER/NAME",
    help="With --hub: the data set of the Hub that DIR/records will be; also write the files of its community evaluations.",
)
def export(
    store: Path | None, destination: Path | None, tensorboard: Path | None, wandb: str, hub: Path | None, benchmark: str
) -> None:
    """Write a folder of records (default: those of COMPBENCH_HOME) as a table with one row per score, or for a tracker.

    \b
    compbench export --to records.csv
    compbench export leaderboards/records --to records.parquet
    compbench export --tensorboard logs --hub for-the-hub
    compbench export --hub for-the-hub --benchmark me/compbench-records
    """
    if not (destination or tensorboard or wandb or hub):
        raise CompbenchError("export needs a destination: --to FILE.csv, --tensorboard DIR, --wandb PROJECT or --hub DIR.")
    if benchmark and (not hub or not NAME_ON_HUB.fullmatch(benchmark)):
        raise CompbenchError(f"--benchmark {benchmark}: write OWNER/NAME of a data set, next to --hub DIR.")
    folder = store or Home.of_user().records
    records, problems = read_store(folder)
    for problem in problems:
        click.echo(problem, err=True)
    if destination:
        check_destination(destination)
    if tensorboard:
        trackers.check_tensorboard(records, tensorboard)
    if wandb:
        trackers.check_wandb()
    if hub:
        hub_format.check_folder(hub)
    if destination:
        click.echo(f"{destination}: {export_records(records, destination)} rows of {len(records)} records")
    if tensorboard:
        count = trackers.to_tensorboard(records, tensorboard, store=Store(folder))
        click.echo(f"{tensorboard}: {count} runs; `tensorboard --logdir {tensorboard}` shows them")
    if wandb:
        click.echo(f"{wandb}: {trackers.to_wandb(records, wandb)} runs")
    if hub:
        kept, home, comparable = Store(folder), Home.of_user(), _comparable(records) if benchmark else ()
        models = hub_format.to_hub(records, hub, store=kept, home=home, benchmark=benchmark, comparable=comparable)
        click.echo(f"{hub}: {len(records)} records, {models} models; `hf upload` sends a folder")


def _comparable(records: Sequence[Record]) -> set[str]:
    """Names of the records with their tasks' default settings and budgets, except those of `smoke`, whose scores mean nothing."""
    known = catalogue({record.spec.task for record in records})
    kept = (record for record in records if record.spec.preset != "smoke")
    return {record.name for record in kept if not section_of(record, known).changed}
