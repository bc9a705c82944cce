"""What the verbs share: options, progress, errors without a traceback."""

from __future__ import annotations

import codecs
import errno
import os
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from twofold.errors import Damaged, Infeasible, InvalidInput, TooFewBlocks, TwofoldError, TwofoldWarning, UnknownName

if TYPE_CHECKING:
    from rich.progress import Progress

    from twofold.outputs import Outputs

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


REPLACE = click.option("--replace", is_flag=True, help="Overwrite what is there already.")


OK, NO, USAGE, INPUT, STOPPED = 0, 1, 2, 3, 130
"""Exit codes: success; check failed or infeasible (a damaged run, a broken promise); usage error, a mistyped name among
them; invalid input data; interrupted."""


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
    """One line on stderr and an exit code."""

    def __init__(self, message: str, code: int = INPUT) -> None:
        signs = [sign if sign.isprintable() else " " for sign in message]  # no line breaks, no codes of a terminal
        super().__init__(" ".join("".join(signs).split()))
        self.exit_code = code  # type: ignore[misc]


class Verbs(click.Group):
    """Errors of twofold end the command with one line on stderr, not with a traceback; --debug shows it."""

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
            raise Failed(message, STOPPED) from stop
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
        If the file exists and ``replace`` is False; a usage error.
    """
    if path.exists() and not replace:
        raise Failed(f"{path} exists; pass --replace to overwrite it, or choose another place", USAGE)


def describe_os_error(error: OSError) -> str:
    """Say in one line what the system refused, and where.

    Parameters
    ----------
    error : OSError
        What was raised while files were read or written.

    Returns
    -------
    str
        The reason, the file if it is known, and what to do where that is clear.

    Examples
    --------
    >>> describe_os_error(OSError(errno.ENOSPC, "No space left on device", "report.html"))
    'report.html: no space left on device; free some and run the command again; files that were complete are unchanged'
    """
    place = error.filename if error.filename2 is None else error.filename2
    if place is None:
        place = _full_output()
    reason = (error.strerror or str(error) or type(error).__name__).strip()
    reason = reason[0].lower() + reason[1:]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason += "; free some and run the command again"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
        reason += "; files that were complete are unchanged"
    return reason if place is None else f"{os.fsdecode(place)}: {reason}"


def _full_output() -> str | None:
    """The name of the standard output if it can no longer be written; what it still holds is dropped then."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "standard output"
    return None


ASCII = str.maketrans({"↑": "^", "↓": "v", "→": "->", "–": "-", "—": "-", "≥": ">=", "≤": "<=", "×": "x", "−": "-"})
"""What stands for the signs of our texts on a console that lacks them."""


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
    """While open, a warning is one line on stderr, without the line of code that it comes from, and is said once."""
    said: set[str] = set()

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            click.echo(f"Warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", TwofoldWarning)
        warnings.showwarning = show
        yield


def _exit_code(error: TwofoldError) -> int:
    if isinstance(error, Infeasible | Damaged | TooFewBlocks):
        return NO
    return USAGE if isinstance(error, UnknownName) else INPUT


FOR_THE_COMMAND_LINE = {
    "pass labels= to Outputs(...)": "add an array labels to the file",
    "pass passes= to Outputs(...): (M, N, C) logits of several passes, or Passes": (
        "add an array passes, (M, N, C) logits of several passes, to the file"
    ),
    "make one with Run.create(path, model=...)": "make one with `twofold extract` or `twofold demo`",
    "pass train=, or a fitted chain": "pass its outputs with --train, or a run with a data set of the role train",
    'mend the score, or pass nan="reject" to rank such rows lowest': "give every row a number",
    "; pass head=None if there is none": "; leave head.weight out if there is none",
    "add one, or pass labelled Outputs": "add one, or give an npz file with logits and labels",
    "; call .fit(train) on the chain first": "; pass the outputs of a training set with --train",
    "ood_share re-weighs OOD against ID samples; pass is_id with at least one of each": (
        "--ood-share weighs OOD against ID samples, and one of the two is missing; give unknown inputs with --unknown, "
        "by the label -1 or by is_id"
    ),
    ", which evaluate was not given": (
        "; with logits, give --ood and unknown inputs (--unknown, or the label -1); with confidences, add the arrays"
    ),
    "add one with run.add(..., role='test')": "add one with `twofold extract`",
}
"""What the library says to a Python programmer, and what the command line says instead."""


def in_terms_of_options(message: str, command: click.Command | None) -> str:
    """Rewrite a message of the library so that it names options and not Python arguments.

    Parameters
    ----------
    message : str
        What an error of the library says.
    command : click.Command or None
        The command that the user gave; only its own options are named.

    Returns
    -------
    str
        The message with ``risk=``, ``objective='risk'`` and a leading ``ood_share must`` written as ``--risk``,
        ``--objective risk`` and ``--ood-share must``.

    Examples
    --------
    >>> command = click.Command("fit", params=[click.Option(["--risk"]), click.Option(["--ood-share"])])
    >>> in_terms_of_options("ood_share must be in [0, 1), got 2.0", command)
    '--ood-share must be in [0, 1), got 2.0'
    >>> in_terms_of_options("objective='risk' needs risk=", command)
    "objective='risk' needs --risk"
    """
    for python, words in FOR_THE_COMMAND_LINE.items():
        message = message.replace(python, words)
    if command is None:
        return message
    for param in command.params:
        if not isinstance(param, click.Option):
            continue
        for option in param.opts:
            argument = option.lstrip("-").replace("-", "_")
            name = re.escape(argument)
            if param.is_flag:
                message = re.sub(rf"(?<![\w.(?&-]){name}=True\b", option, message)
                continue
            message = re.sub(rf"(?<![\w.(?&-]){name}='([\w.-]+)'", rf"{option} \1", message)
            message = re.sub(rf"(?<![\w.(?&-]){name}=(?=[\s,;.)]|$)", option, message)
            message = re.sub(rf"^{name}(?= (must|belongs|needs) )", option, message)
    return message


def read_outputs(path: Path) -> Outputs:
    """Read an npz file of outputs, and say on stderr what is lost where it holds probabilities."""
    from twofold.outputs import Outputs

    outputs = Outputs.from_npz(path)
    if outputs.classes == 1:
        raise InvalidInput(
            f"{path}: logits has one column, and a classifier has at least two classes; for a model with one output z "
            "write np.column_stack([np.zeros_like(z), z])"
        )
    if outputs.is_scale_lost:
        click.echo(
            f"{path} holds probabilities: scores of the softmax (msp, entropy, gen, ...) are unchanged, those that "
            "read the scale of the logits (energy, mls, ...) have lost it.",
            err=True,
        )
    return outputs


def check_same_model(first: Path, outputs: Outputs, second: Path, others: Outputs) -> None:
    """Raise unless two files have the same classes, and the same features where both have some.

    Parameters
    ----------
    first, second : Path
        The files, for the message.
    outputs, others : Outputs
        What they hold.

    Raises
    ------
    InvalidInput
        If they cannot come from one model.
    """
    if outputs.classes != others.classes:
        raise InvalidInput(
            f"{second} has {others.classes} classes but {first} has {outputs.classes}; both must come from one model"
        )
    if outputs.features is None or others.features is None:
        return
    here, there = outputs.features.shape[1], others.features.shape[1]
    if here != there:
        raise InvalidInput(f"{second} has {there} features but {first} has {here}; both must come from one model")


def check_target(path: Path, *, replace: bool) -> None:
    """Stop before any work is done where a file cannot be written: it exists, or its folder does not.

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
        raise Failed(f"{path} cannot be written: there is no folder {path.parent}", USAGE)


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
