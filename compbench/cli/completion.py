"""completion: the shell's script that completes verbs, options, names of plugins and records, and settings."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from compbench.system.errors import CompbenchError, Unwritable

VARIABLE = "_COMPBENCH_COMPLETE"
START_FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/compbench.fish"}
"""For each shell, the file in the user's home that it reads when it starts."""


@click.command()
@click.argument("shell", type=click.Choice(list(START_FILES)))
@click.option("--install", is_flag=True, help="Add the script, once, to the file that the shell reads when it starts.")
@click.pass_context
def completion(ctx: click.Context, shell: str, install: bool) -> None:
    """Print the script that lets a shell complete verbs, options, names and settings, or install it.

    \b
    compbench completion bash --install      also zsh, fish
    eval "$(compbench completion bash)"      for this shell only
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise CompbenchError(f"click has no completion for {shell} here; update click.")
    script = kind(ctx.find_root().command, {}, "compbench", VARIABLE).source()
    if install:
        click.echo(install_into(Path.home() / START_FILES[shell], script))
    else:
        click.echo(script)


def install_into(file: Path, script: str) -> str:
    """Add the script to the end of a file unless the file has it; return one line that says what was done.

    Raises:
        Unwritable: the file cannot be read or written.
    """
    try:
        before = file.read_text(encoding="utf-8", errors="surrogateescape") if file.exists() else ""  # in whatever encoding
        if VARIABLE in before:
            return f"{file} already has the completion script; nothing was changed."
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a", encoding="utf-8") as output:
            output.write(f"{os.linesep if before and not before.endswith(os.linesep) else ''}{script.rstrip()}\n")
    except OSError as error:
        raise Unwritable.of(file, error) from error
    return f"{file} now has the completion script: open a new shell, or `source {file}`."
