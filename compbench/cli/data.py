"""data: official files, and pictures of the embedded renderers."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from compbench.cli import output
from compbench.data.download import fetch, verify
from compbench.data.pictures import render_grid
from compbench.data.sources import INSTALLED, SOURCES, DataSource
from compbench.system.errors import CompbenchError, blames_the_content, suggest
from compbench.system.fonts import find_font
from compbench.system.home import Home


@click.group()
def data() -> None:
    """List, download and verify official data, and draw pictures with the built-in renderers.

    \b
    compbench data list
    compbench data fetch shapes3d
    """


@data.command("list")
def data_list() -> None:
    """List the official data sources and which of their files are here.

    \b
    compbench data list
    """
    output.show_sources(Home.of_user().data)


@data.command("fetch")
@click.argument("name")
@click.option("--offline", is_flag=True, help="Download nothing; only say what is missing and where to put it.")
def data_fetch(name: str, offline: bool) -> None:
    """Download the files of a source and verify them.

    The same command again continues a download.  A file appears under its name only once its hash is right.

    \b
    compbench data fetch shapes3d
    compbench data fetch shapes3d --offline    what is missing, and where it goes
    """
    with output.bytes_progress() as progress:
        for path in fetch(_source(name), Home.of_user().data, offline=offline, progress=progress):
            click.echo(path)


@data.command("verify")
@click.argument("name")
def data_verify(name: str) -> None:
    """Check the files of a source against their hashes.

    Exit status: 0 all are right, 1 one is missing or wrong.

    \b
    compbench data verify shapes3d

    For dsprites it also counts the pixels that the built-in renderer gets wrong; for emoji it decodes all drawings of the font.
    """
    if name in INSTALLED:
        right, words = _font(name)
        click.echo(words)
        sys.exit(0 if right else 1)
    with output.bytes_progress() as progress:
        statuses = verify(_source(name), Home.of_user().data, progress=progress)
    for status in statuses:
        click.echo(f"{status.name}: {status.state}{f' ({status.detail})' if status.detail else ''}")
    whole = all(status.state == "ok" for status in statuses)
    if name == "dsprites" and whole:
        from compbench.data.dsprites_file import COUNT, wrong_pixels

        pixels, images = wrong_pixels(Home.of_user().data / statuses[0].name)
        click.echo(f"the embedded renderer has {pixels:,} wrong pixels in {images:,} of {COUNT:,} images")
    sys.exit(0 if whole else 1)


@data.command("path")
def data_path() -> None:
    """Print the folder of official files.  Put copies that you downloaded yourself there.

    \b
    cp 3dshapes.h5 "$(compbench data path)"
    compbench data path
    """
    click.echo(Home.of_user().data)


@data.command("render")
@click.argument("name", type=click.Choice(["shapes3d", "mpi3d", "dsprites"]))
@click.option("--output", type=click.Path(path_type=Path), default=Path("rendered.png"), show_default=True, help="PNG to write.")
@click.option("--rows", default=4, show_default=True, type=click.IntRange(1, 64), help="Rows of eight images.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0, 2**31 - 1), help="Seed of the images.")
def data_render(name: str, output: Path, rows: int, seed: int) -> None:
    """Write a grid of random images from a built-in renderer.

    \b
    compbench data render shapes3d --rows 6
    """
    render_grid(name, output, Home.of_user().cache, rows=rows, seed=seed)
    click.echo(output)


def _font(name: str) -> tuple[bool, str]:
    """Whether a font that a system package installs is here and has all drawings, and a line that says so.

    Raises:
        CompbenchError: fontTools is not installed, so the font cannot be verified.
    """
    from compbench.data.emoji_drawings import drawings

    installed, folder = INSTALLED[name], Home.of_user().data
    path = find_font(installed.file, folder)
    if path is None:
        return False, f"{installed.file}: missing ({installed.install}, or copy it into {folder})"
    try:
        found = drawings(path)
    except CompbenchError as error:
        cause = error.__cause__
        if isinstance(cause, ImportError):
            raise
        unreadable = isinstance(cause, OSError) and not blames_the_content(cause)
        return False, f"{installed.file}: {'unreadable' if unreadable else 'wrong'} ({error})"
    return True, f"{path}: ok ({len(found.pictures):,} drawings, fingerprint {found.fingerprint})"


def _source(name: str) -> DataSource:
    if name in INSTALLED:
        raise CompbenchError(f"'{name}' is not downloaded; a system package installs it: {INSTALLED[name].install}.")
    if name not in SOURCES:
        raise suggest("data source", name, [*SOURCES, *INSTALLED])
    return SOURCES[name]
