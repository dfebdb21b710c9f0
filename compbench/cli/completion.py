"""completion: the shell's script that completes verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from compbench.errors import CompbenchError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete verbs and options.

    \b
    compbench completion bash >> ~/.bashrc
    compbench completion zsh >> ~/.zshrc
    compbench completion fish > ~/.config/fish/completions/compbench.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise CompbenchError(f"click has no completion for {shell} here; update click.")
    click.echo(kind(ctx.find_root().command, {}, "compbench", "_COMPBENCH_COMPLETE").source())
