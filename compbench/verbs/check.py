"""check."""

from __future__ import annotations

import click

from compbench.errors import CompbenchError


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option("--time-limit", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds for all checks.")
def check(name: str, as_json: bool, time_limit: float) -> None:
    """Check that method NAME keeps the contract, on a tiny problem of vectors.  Exits with 1 if it does not."""
    import json
    import subprocess
    import sys

    command = [sys.executable, "-m", "compbench.gates.contract", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=time_limit)
    except subprocess.TimeoutExpired as error:
        raise CompbenchError(f"checking '{name}' took over {time_limit:g} s; does its fit end?") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise CompbenchError(f"'{name}' could not be checked: {(done.stderr.strip().splitlines() or ['it crashed'])[-1][:300]}")
    found = json.loads(lines[-1])
    if as_json:
        click.echo(json.dumps(found))
    else:
        for row in found:
            click.echo(f"{row['status']:7} {row['check']}" + (f": {row['message']}" if row["message"] else ""))
    if any(row["status"] != "ok" for row in found):
        raise SystemExit(1)
