"""``twofold completion``: let a shell complete commands, options and names."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete twofold's commands, options and names.

    Append it to the start-up file of your shell.

    \b
      twofold completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(ctx.find_root().command, {}, "twofold", "_TWOFOLD_COMPLETE").source())
