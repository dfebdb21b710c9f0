"""verify, export: whole stores of records."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import click

from compbench.cli.options import home_of_user
from compbench.errors import CompbenchError

FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("store", required=False, type=FOLDER)
@click.option("--against", default="", metavar="COMMIT", help="Also: no file was changed or written over since this git commit.")
@click.option("--pictures", is_flag=True, help="A picture that a record names and that is not there is a problem too.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def verify(store: Path | None, against: str, pictures: bool, as_json: bool) -> None:
    """Check a folder of records (default: those of COMPBENCH_HOME): form, place, sense, orphans, what killed runs left.

    \b
    compbench verify leaderboards/records

    Each problem is listed with how to fix it; nothing is changed.  Exit status: 0 all sound, 1 problems, 2 no such folder.
    """
    from compbench.identity.history import overwritten
    from compbench.store.text import clean
    from compbench.store.verify import Finding
    from compbench.store.verify import verify as check

    folder = store or home_of_user().records
    report = check(folder)
    findings = list(report.findings)
    for name in overwritten(folder, against) if against else ():
        problem = "is not what it was in a commit before, and records never change"
        fix = "restore the file; what was run again is another attempt"
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


@click.command()
@click.argument("store", required=False, type=FOLDER)
@click.option("--to", "destination", type=FOLDER, metavar="FILE.csv|FILE.parquet", help="The table to write.")
@click.option("--tensorboard", type=FOLDER, metavar="DIR", help="A TensorBoard run a record.")
@click.option("--wandb", default="", metavar="PROJECT", help="A run a record in a project of Weights & Biases.")
@click.option("--hub", type=FOLDER, metavar="DIR", help="Data set and models as the Hugging Face Hub has them; files only.")
def export(store: Path | None, destination: Path | None, tensorboard: Path | None, wandb: str, hub: Path | None) -> None:
    """Write a folder of records (default: those of COMPBENCH_HOME) as a table, one row a score, or for a tracker.

    \b
    compbench export --to records.csv
    compbench export leaderboards/records --to records.parquet
    compbench export --tensorboard logs --hub for-the-hub
    """
    from compbench.export import trackers
    from compbench.export.table import export as export_records
    from compbench.export.table import read_store
    from compbench.store.records import Store

    if not (destination or tensorboard or wandb or hub):
        raise CompbenchError("export where? --to FILE.csv, --tensorboard DIR, --wandb PROJECT or --hub DIR.")
    folder = store or home_of_user().records
    records, problems = read_store(folder)
    for problem in problems:
        click.echo(problem, err=True)
    if destination:
        click.echo(f"{destination}: {export_records(records, destination)} rows of {len(records)} records")
    if tensorboard:
        count = trackers.to_tensorboard(records, tensorboard)
        click.echo(f"{tensorboard}: {count} runs; `tensorboard --logdir {tensorboard}` shows them")
    if wandb:
        click.echo(f"{wandb}: {trackers.to_wandb(records, wandb)} runs")
    if hub:
        models = trackers.to_hub(records, hub, store=Store(folder), home=home_of_user())
        click.echo(f"{hub}: {len(records)} records, {models} models; `huggingface-cli upload` sends a folder")
