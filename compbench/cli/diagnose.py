"""diagnose: look inside the trained model of a record."""

from __future__ import annotations

from pathlib import Path

import click

from compbench.cli.names import records
from compbench.cli.options import plugin_option
from compbench.cli.wrapping import paragraph
from compbench.diagnose.page_files import report
from compbench.diagnose.summary import shown
from compbench.store.records import Store, read_result
from compbench.system.home import Home


@click.command()
@click.argument("record", shell_complete=records())
@click.option("--factors", default="", metavar="A,B", help="The two factors of the grid; default: the factors of the holdout.")
@click.option(
    "--derivative",
    type=click.Choice(["auto", "jvp", "differences"]),
    default="auto",
    show_default=True,
    help="How to differentiate layers with respect to the condition; auto takes jvp if possible, else grid differences.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Folder to write to; default: next to the run's weights.")
@plugin_option()
def diagnose(record: str, factors: str, derivative: str, output: Path | None, plugins: tuple[Path, ...]) -> None:
    """Look inside the model of a RECORD: landscapes, superposition, kernels, geometry and probes of its layers.

    \b
    compbench diagnose shapes3d-heavy.factored.quick.s0

    Writes figures (PNG), all numbers (diagnostics.json) and index.html.  Needs the run's weights, which are in
    COMPBENCH_HOME after a run on this machine.  If a model is not called as model(x_t, t, condition), only its outputs
    are examined.
    """
    home = Home.of_user()
    path = Store(home.records).find(record)
    found = read_result(path)
    folder = output or home.runs / found.identity / "diagnostics"
    summary = report(found, path, folder, home=home, plugins=plugins, options={"factors": factors, "derivative": derivative})
    for name, each in summary.scores.items():
        click.echo(f"{name}: superposition {shown(each.superposition)}, kernel alignment with seen {shown(each.seen)}")
    if summary.why_no_layers:
        click.echo(paragraph("", summary.why_no_layers))
    click.echo(str(folder / "index.html"))
