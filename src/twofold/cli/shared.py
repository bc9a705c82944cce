"""What the verbs share: options, progress, errors without a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.errors import Damaged, Infeasible, TwofoldError, UnknownName

if TYPE_CHECKING:
    from rich.progress import Progress

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


REPLACE = click.option("--replace", is_flag=True, help="Overwrite what is there already.")


OK, NO, USAGE, INPUT, STOPPED = 0, 1, 2, 3, 130
"""Exit codes: done; the answer is no (a damaged run, a broken promise); wrong words; wrong data; Ctrl-C."""


class Failed(click.ClickException):
    """One line on stderr and an exit code."""

    def __init__(self, message: str, code: int = INPUT) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]


class Verbs(click.Group):
    """Errors of twofold end the command with one line on stderr, not with a traceback; --debug shows it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Failed("stopped; what was finished is kept, the same command goes on from there", STOPPED) from stop
        except TwofoldError as error:
            if ctx.find_root().params.get("debug"):
                raise
            raise Failed(str(error), NO if isinstance(error, Infeasible | Damaged) else INPUT) from error

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the verb; an unknown one is an error with the nearest names."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(str(UnknownName.of("command", name, self.list_commands(ctx))))
        return super().resolve_command(ctx, args)


def refuse_to_overwrite(path: Path, *, replace: bool) -> None:
    """Stop before any work is done where a file is there already and nobody said that it may go.

    Parameters
    ----------
    path : Path
        The file that would be written.
    replace : bool
        Whether ``--replace`` was given.

    Raises
    ------
    Failed
        If the file exists and ``replace`` is False.
    """
    if path.exists() and not replace:
        raise Failed(f"{path} exists; pass --replace to overwrite it, or choose another place")


def from_torch(module: str) -> Any:
    """A module of twofold.nn, or one line on how to install what it needs."""
    from importlib import import_module

    from twofold.errors import MissingExtra

    try:
        return import_module(f"twofold.nn.{module}")
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtra('running networks needs torch: pip install "twofold[torch]"') from error


def progress(*, rate: bool = False) -> Progress:
    """A bar on stderr that goes when it is done; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """How many a second; nothing is known of it at first."""

        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:.3g}/s")

    columns: list[ProgressColumn] = [BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn()]
    columns += [Rate(), TimeRemainingColumn()] if rate else []
    columns.append(TextColumn("{task.description}"))
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
