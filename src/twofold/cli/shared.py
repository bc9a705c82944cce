"""What the verbs share: options, progress, errors without a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from rich.progress import Progress

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


class Verbs(click.Group):
    """Errors of twofold end the command with one line on stderr, not with a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            return super().invoke(ctx)
        except TwofoldError as error:
            raise click.ClickException(str(error)) from error


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
    """A bar on stderr that goes when it is done."""
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
    return Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True), transient=True)
