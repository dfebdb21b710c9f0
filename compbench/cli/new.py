"""new: write a plugin project to start from, from the templates in this package."""

from __future__ import annotations

import contextlib
import keyword
import os
import re
import shlex
import shutil
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

import click

from compbench.api.interfaces import API_VERSION
from compbench.cli.wrapping import paragraph
from compbench.registry.registry import Kind, Registry
from compbench.registry.repository import repository
from compbench.system.errors import CompbenchError

TEMPLATES = Path(__file__).with_name("templates")
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
LONGEST = 40

StarterKind = Literal["method", "task", "metric"]
GROUPS: dict[StarterKind, Kind] = {"method": "methods", "task": "tasks", "metric": "metrics"}


@click.command()
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(["method", "task", "metric"]), default="method", show_default=True, help="What the plugin offers."
)
@click.option(
    "--into", type=click.Path(path_type=Path), default=Path(), help="Parent of the new folder; default: the current folder."
)
def new(name: str, kind: StarterKind, into: Path) -> None:
    """Write a plugin to start from: a folder compbench-NAME with working code, a test, CI workflows and a guide for agents.

    \b
    compbench new my-method
    """
    folder, files = start(name, kind, into)
    for file in files:
        click.echo(folder / file)
    if not repository():
        message = f"the address of compbench's repository is not known; {folder / 'README.md'} says what the workflows need"
        click.echo(paragraph("note: ", message))
    click.echo(f'next: cd {shlex.quote(str(folder))} && pip install -e ".[test]" && pytest')


def render(name: str, kind: StarterKind = "method", source: str = "") -> dict[str, bytes]:
    """Render the files of a plugin project, by path, from the templates.

    Args:
        name: the plugin's name in words joined by hyphens, as in my-method; a metric's own name has underscores.
        kind: what the plugin offers.
        source: OWNER/NAME of the repository from which its workflows get compbench; "" if it is not known.

    Raises:
        CompbenchError: the name cannot be that of a package, a module and an entry point.
    """
    import jinja2

    _check_name(name)
    module = name.replace("-", "_")
    package, distribution = f"compbench_{module}", f"compbench-{name}"
    facts = {
        "asked": name,
        "name": module if kind == "metric" else name,
        "kind": kind,
        "option": "" if kind == "method" else f" --kind {kind}",
        "module": module,
        "package": package,
        "distribution": distribution,
        "api": API_VERSION,
        "repository": source,
    }
    places = {
        "shared/pyproject.toml": "pyproject.toml",
        "shared/README.md": "README.md",
        "shared/AGENTS.md": "AGENTS.md",
        "shared/SKILL.md": f".agents/skills/compbench-{kind}/SKILL.md",
        "shared/gitignore": ".gitignore",
        "shared/test.yml": ".github/workflows/test.yml",
        "shared/__init__.py": f"{package}/__init__.py",
        f"{kind}/plugin.py": f"{package}/{module}.py",
        f"{kind}/test.py": f"tests/test_{module}.py",
    }
    if kind == "method":
        places["shared/gate.yml"] = ".github/workflows/gate.yml"
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    files = {}
    for template, place in places.items():
        text = (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8")
        files[place] = environment.from_string(text).render(facts).encode()
    return files


def start(name: str, kind: StarterKind, into: Path) -> tuple[Path, list[str]]:
    """Write a plugin project into a new folder `into`/compbench-NAME, whole or not at all.

    Returns:
        the folder, and the files in it.

    Raises:
        CompbenchError: the name is bad or taken, or the folder exists already or cannot be written.
    """
    files = render(name, kind, repository())
    _check_free(name, kind)
    folder = into / f"compbench-{name}"
    if os.path.lexists(folder):
        raise CompbenchError(f"{folder} exists already; move it away, or choose another name or --into.")
    try:
        into.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=into))
    except OSError as error:
        raise CompbenchError(f"could not write to {into}: {error.strerror or error}; nothing was written.") from error
    try:
        for place, content in files.items():
            (draft / place).parent.mkdir(parents=True, exist_ok=True)
            (draft / place).write_bytes(content)
        draft.chmod(0o755)
        draft.rename(folder)
    except OSError as error:
        raise CompbenchError(f"could not write {folder}: {error.strerror or error}; nothing was written.") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft)  # it no longer exists if all went well
    return folder, sorted(files)


def _check_name(name: str) -> None:
    if len(name) > LONGEST or not NAME.fullmatch(name):
        shown = name if len(name) <= LONGEST else name[:LONGEST] + "..."
        raise CompbenchError(
            f"{shown!r} cannot name a plugin: use lower-case letters and digits, words joined by single hyphens, at most "
            f"{LONGEST} characters, as in my-method."
        )
    if keyword.iskeyword(name):
        raise CompbenchError(f"'{name}' is a word of Python and cannot name a module; try '{name}-method'.")


def _check_free(name: str, kind: StarterKind) -> None:
    """Raise CompbenchError if an installed plugin has the name, or an installed distribution would be replaced."""
    for entry in Registry().entries(GROUPS[kind]):
        if entry.name in (name, name.replace("-", "_")):
            raise CompbenchError(f"there is a {kind} '{entry.name}' already (from {entry.distribution}); choose another name.")
    taken = {(found.metadata["Name"] or "").lower().replace("_", "-") for found in distributions()}
    if f"compbench-{name}" in taken:
        raise CompbenchError(f"a distribution compbench-{name} is installed already; choose another name.")
