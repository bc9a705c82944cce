"""What the verbs share: exit codes, errors without a traceback, progress."""

from __future__ import annotations

import codecs
import errno
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from twofold.cli.messages import describe_os_error, in_terms_of_options
from twofold.errors import Damaged, Infeasible, MissingExtra, TooFewBlocks, TwofoldError, TwofoldWarning, UnknownName

if TYPE_CHECKING:
    from rich.progress import Progress

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
REPLACE = click.option("--replace", is_flag=True, help="Overwrite existing files.")

CHECK_FAILED = 1  # or infeasible: a damaged run, a broken promise, too few blocks for a test
USAGE_ERROR = 2  # a mistyped name among them
INVALID_INPUT = 3
INTERRUPTED = 130


Command = TypeVar("Command", bound=Callable[..., None])


def resumable(command: Command) -> Command:
    """Mark the function of a command that, given again, resumes where it was interrupted.

    Parameters
    ----------
    command : callable
        The function below ``@group.command(...)``.

    Returns
    -------
    callable
        The same function.
    """
    command.resumable = True  # type: ignore[attr-defined]
    return command


class Failed(click.ClickException):
    """End the command with one line on stderr and an exit code.

    Parameters
    ----------
    message : str
        What went wrong and what to do.
    code : int, default=3
        The exit code.
    """

    def __init__(self, message: str, code: int = INVALID_INPUT) -> None:
        printable = "".join(sign if sign.isprintable() else " " for sign in message)  # no codes of a terminal
        super().__init__(" ".join(printable.split()))  # one line
        self.exit_code = code  # type: ignore[misc]


class Verbs(click.Group):
    """End a command on an error of twofold with one line on stderr; ``--debug`` shows the traceback."""

    def main(self, *args: Any, **settings: Any) -> Any:
        """Parse the command line and run it, on a console of any encoding."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors=REPLACE_UNPRINTABLE)
        return super().main(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        debug = ctx.find_root().params.get("debug")
        try:
            with _plain_warnings():
                result = super().invoke(ctx)
                sys.stdout.flush()  # here a full disk is one line, and at exit it would be a traceback
                return result
        except KeyboardInterrupt as stop:
            callback = getattr(self.get_command(ctx, ctx.invoked_subcommand or ""), "callback", None)
            message = "interrupted; no file was left half-written"
            if getattr(callback, "resumable", False):
                message = "interrupted; what was finished is kept, run the same command again to resume"
            raise Failed(message, INTERRUPTED) from stop
        except TwofoldError as error:
            if debug:
                raise
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            raise Failed(in_terms_of_options(str(error), command), _exit_code(error)) from error
        except OSError as error:
            if debug or error.errno == errno.EPIPE:  # click ends a command quietly whose reader has gone
                raise
            raise Failed(describe_os_error(error)) from error
        except MemoryError as error:
            if debug:
                raise
            raise Failed("out of memory; use smaller files or batches, or a machine with more memory") from error

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find the verb; an unknown one is an error with the nearest names."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(str(UnknownName.of("command", name, self.list_commands(ctx))))
        return super().resolve_command(ctx, args)


def refuse_to_overwrite(path: Path, *, replace: bool) -> None:
    """Stop before any work is done if a file exists and the user did not allow overwriting it.

    Parameters
    ----------
    path : Path
        The file that would be written.
    replace : bool
        Whether ``--replace`` was given.

    Raises
    ------
    Failed
        If the file exists and ``replace`` is False; a usage error.
    """
    if path.exists() and not replace:
        raise Failed(f"{path} exists; pass --replace to overwrite it, or choose another path", USAGE_ERROR)


ASCII = str.maketrans({"↑": "^", "↓": "v", "→": "->", "–": "-", "—": "-", "≥": ">=", "≤": "<=", "×": "x", "−": "-"})
"""Replacements for characters of our texts that a console may lack."""


def _replace_unprintable(error: UnicodeError) -> tuple[str, int]:
    """Write what an encoding lacks as the nearest ASCII text, or escaped: an error handler of :mod:`codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    plain = unicodedata.normalize("NFKD", lacking.translate(ASCII))
    text = ""
    for sign in plain:
        if sign.isascii():
            text += sign
        elif not unicodedata.combining(sign):
            text += sign.encode("ascii", "backslashreplace").decode()
    return text, error.end


REPLACE_UNPRINTABLE = "twofold.printable"
codecs.register_error(REPLACE_UNPRINTABLE, _replace_unprintable)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print each warning once, as one line on stderr without the line of code that it comes from."""
    printed: set[str] = set()

    def show(message: Warning | str, *where: object, **more: object) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            click.echo(f"Warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", TwofoldWarning)
        warnings.showwarning = show
        yield


def _exit_code(error: TwofoldError) -> int:
    if isinstance(error, Infeasible | Damaged | TooFewBlocks):
        return CHECK_FAILED
    if isinstance(error, UnknownName):
        return USAGE_ERROR
    return INVALID_INPUT


def check_target(path: Path, *, replace: bool) -> None:
    """Stop before any work is done if a file cannot be written: it exists, or its folder does not.

    Parameters
    ----------
    path : Path
        The file that would be written.
    replace : bool
        Whether ``--replace`` was given.

    Raises
    ------
    Failed
        If the file exists and ``replace`` is False, or there is no folder to put it into; a usage error.
    """
    refuse_to_overwrite(path, replace=replace)
    if not path.parent.is_dir():
        raise Failed(f"{path} cannot be written: there is no folder {path.parent}", USAGE_ERROR)


def from_torch(module: str) -> Any:
    """Import a module of twofold.nn, or say in one line how to install what it needs.

    Parameters
    ----------
    module : str
        Its name below ``twofold.nn``.

    Returns
    -------
    module
        The module.

    Raises
    ------
    MissingExtra
        If torch is not installed.
    """
    from importlib import import_module

    try:
        return import_module(f"twofold.nn.{module}")
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtra('running networks needs torch: pip install "twofold[torch]"') from error


def progress(*, rate: bool = False) -> Progress:
    """Make a progress bar on stderr, which disappears when it is done; without a terminal nothing is shown.

    Parameters
    ----------
    rate : bool, default=False
        Whether to show how many steps a second are done and how long the rest takes.

    Returns
    -------
    rich.progress.Progress
        The bar, as a context manager.
    """
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
        """Show how many steps a second are done; at first that is not known."""

        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:.3g}/s")

    columns: list[ProgressColumn] = [BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn()]
    if rate:
        columns += [Rate(), TimeRemainingColumn()]
    columns.append(TextColumn("{task.description}"))
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
