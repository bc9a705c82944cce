"""What the command line says when something goes wrong: in terms of options and files, on one line."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress

import click


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
    path = error.filename if error.filename2 is None else error.filename2
    if path is None:
        path = _full_output()
    reason = (error.strerror or str(error) or type(error).__name__).strip()
    reason = reason[0].lower() + reason[1:]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason += "; free some and run the command again"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
        reason += "; files that were complete are unchanged"
    return reason if path is None else f"{os.fsdecode(path)}: {reason}"


def _full_output() -> str | None:
    """Name the standard output if it can no longer be written; what it still holds is dropped then."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return "standard output"
    return None


IN_WORDS_OF_COMMANDS = {
    "pass labels= to Outputs(...)": "add an array labels to the file",
    "pass passes= to Outputs(...): (M, N, C) logits of several passes, or Passes": (
        "add an array passes, (M, N, C) logits of several passes, to the file"
    ),
    "make one with Run.create(path, model=...)": "make one with `twofold extract` or `twofold demo`",
    "pass train=, or a fitted chain": "pass its outputs with --train, or a run with a data set of the role train",
    "write it again with Watch.save": "write it again with --save",
    'fix the score, or pass nan="reject" to rank such rows lowest': "give every row a number",
    ', or pass nan="reject" to rank such rows lowest': "; `twofold logs evaluate --reject-nan` ranks such rows lowest",
    "; pass head=None if there is none": "; leave head.weight out if there is none",
    "add one, or pass labelled Outputs": "add one, or give an npz file with logits and labels",
    "; call .fit(train) on the chain first": "; pass the outputs of a training set with --train",
    "ood_share reweights OOD against ID samples; pass is_id with at least one of each": (
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
    for python, words in IN_WORDS_OF_COMMANDS.items():
        message = message.replace(python, words)
    if command is None:
        return message
    for param in command.params:
        if not isinstance(param, click.Option):
            continue
        for option in param.opts:
            message = _name_option(message, option, is_flag=param.is_flag)
    return message


def _name_option(message: str, option: str, *, is_flag: bool) -> str:
    """Write a Python argument as the option of the same name."""
    name = re.escape(option.lstrip("-").replace("-", "_"))
    alone = r"(?<![\w.(?&-])"  # not the end of a longer name, nor a setting inside a score or a data set
    if is_flag:
        return re.sub(rf"{alone}{name}=True\b", option, message)
    message = re.sub(rf"{alone}{name}='([\w.-]+)'", rf"{option} \1", message)
    message = re.sub(rf"{alone}{name}=(?=[\s,;.)]|$)", option, message)
    return re.sub(rf"^{name}(?= (must|belongs|needs) )", option, message)
