"""diagnose."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from compbench.cli.options import home_of_user
from compbench.errors import CompbenchError

if TYPE_CHECKING:
    from compbench.diagnose.subject import Derivative


@click.command()
@click.argument("record")
@click.option("--factors", default="", metavar="A,B", help="The two factors of the grid; default: those of the holdout.")
@click.option(
    "--derivative",
    type=click.Choice(["auto", "jvp", "differences"]),
    default="auto",
    show_default=True,
    help="How layers are differentiated in the condition; auto is jvp where the model can be, else grid differences.",
)
@click.option("--output", type=click.Path(path_type=Path), help="Folder to write; default: beside the run's weights.")
@click.option("--plugin", "plugins", multiple=True, type=click.Path(path_type=Path), metavar="FILE.py")
def diagnose(record: str, factors: str, derivative: Derivative, output: Path | None, plugins: tuple[Path, ...]) -> None:
    """Look inside the model of a RECORD: landscapes, superposition, kernels, geometry and probes of its layers.

    \b
    compbench diagnose shapes3d-heavy.factored.quick.s0

    Writes figures (PNG), all numbers (diagnostics.json) and index.html.  Needs the run's weights, which are in
    COMPBENCH_HOME after a run on this machine.
    """
    from compbench.diagnose.diagnosis import diagnose as examine
    from compbench.diagnose.report import write_report
    from compbench.diagnose.subject import load_subject
    from compbench.store.records import Store, read_record

    home = home_of_user()
    path = Store(home.records).find(record)
    try:
        found = read_record(path)
    except CompbenchError as error:
        raise CompbenchError(f"{path} {error}") from error
    if found.status != "ok":
        raise CompbenchError(f"{path.name} is of a run that ended as '{found.status}'; diagnose takes finished ones.")
    # Torch's forward mode compiles its own decompositions in a way that newer releases of torch warn of.
    warnings.filterwarnings("ignore", message=r"`torch\.jit\.script` is deprecated", category=FutureWarning)
    subject = load_subject(found, home, plugins=plugins, factors=factors)
    diagnosis = examine(subject, derivative=derivative)
    page = write_report(subject, diagnosis, output or home.runs / found.identity / "diagnostics")
    for name, each in diagnosis.scores.items():
        click.echo(f"{name}: superposition {each.superposition:.3f}, kernel alignment with seen {each.alignments.seen:.3f}")
    click.echo(str(page))
