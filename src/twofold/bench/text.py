"""Text of results: units of metrics, the overview, and Markdown and LaTeX tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from twofold import metrics
from twofold.bench.rows import ResultRow, better_of, finest, group_rows, is_missing, method
from twofold.errors import InvalidInput, UnknownName

MAIN_METRICS = {
    "joint": ("ds_f1", "f1"),
    "joint_pooled": ("ds_f1", "f1"),
    "openood": ("auroc_ood",),
    "stratified": ("augrc", "aurc"),
}
"""Metrics that the overview of a protocol ranks by, the first that was measured; AURC for protocols not named here."""

OVERVIEW_LENGTH = 15  # methods that the overview lists

_REMOVES_ERRORS = "without misclassified ID samples beside OOD samples"
SAMPLES_JUDGED = {
    "fd_shifts": _REMOVES_ERRORS,
    "open_set": _REMOVES_ERRORS,
    "stratified": _REMOVES_ERRORS,
    "fd_shifts_original": "with every ID sample counted as correct beside OOD samples",
}
"""Protocols whose areas are of other samples than those of ``twofold evaluate``, and how these differ."""


def scale(metric: str) -> tuple[int, str]:
    """Look up the factor and unit in which people print a metric: areas under risk x1000, other rates in percent.

    Parameters
    ----------
    metric : str
        Name of the metric, with or without the suffix ``_ood``.

    Returns
    -------
    tuple of (int, str)
        Factor and unit; ``(1, "")`` for metrics that exceed 1 or are not registered.

    Examples
    --------
    >>> scale("ds_aurc"), scale("auroc_ood"), scale("nll")
    ((1000, 'x1000'), (100, '%'), (1, ''))
    """
    try:
        largest = metrics.info(metric).bounds[1]
    except UnknownName:
        return 1, ""
    if largest > 1:
        return 1, ""
    if "aurc" in metric or "augrc" in metric:
        return 1000, "x1000"
    return 100, "%"


def title(metric: str) -> str:
    """Write the name of a metric with its unit.

    Parameters
    ----------
    metric : str
        Name of the metric.

    Returns
    -------
    str
        The name, and the unit in parentheses if it has one.

    Examples
    --------
    >>> title("aurc"), title("nll")
    ('aurc (x1000)', 'nll')
    """
    _, unit = scale(metric)
    if not unit:
        return metric
    return f"{metric} ({unit})"


def decimals(metric: str) -> int:
    """Look up how many digits after the decimal point the text of a comparison shows.

    Parameters
    ----------
    metric : str
        Name of the metric.

    Returns
    -------
    int
        2 for metrics in percent or x1000, 4 for others.

    Examples
    --------
    >>> decimals("aurc"), decimals("nll")
    (2, 4)
    """
    factor, _ = scale(metric)
    if factor > 1:
        return 2
    return 4


def coverage_of(metric: str, protocol: str | None = None) -> str:
    """Say whose coverage an area is taken over, as the end of a clause.

    Parameters
    ----------
    metric : str
        Name of the metric.
    protocol : str, optional
        The protocol it was measured under, which may leave samples out.

    Returns
    -------
    str
        The clause; empty for a metric that is not an area.

    Examples
    --------
    >>> coverage_of("aurc_id"), coverage_of("auroc_ood")
    (', coverage of ID samples', '')
    >>> coverage_of("aurc", "fd_shifts")
    ', coverage of all samples (without misclassified ID samples beside OOD samples)'
    """
    note = metrics.coverage_note([metric])
    if not note:
        return ""
    clause = note.replace(f"{metric}: ", ", ")
    if protocol in SAMPLES_JUDGED:
        clause += f" ({SAMPLES_JUDGED[protocol]})"
    return clause


def count(number: int, noun: str) -> str:
    """Write a number with its noun, in the plural unless there is one.

    Parameters
    ----------
    number : int
        How many there are.
    noun : str
        The noun in the singular.

    Returns
    -------
    str
        The phrase.

    Examples
    --------
    >>> count(1, "block"), count(3, "block")
    ('1 block', '3 blocks')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


# --- the overview ---------------------------------------------------------------------------------------------------


def format_overview(rows: Sequence[ResultRow]) -> str:
    """List the methods of each protocol by the mean of its main metric, best first.

    Parameters
    ----------
    rows : sequence of mapping
        Rows of results.

    Returns
    -------
    str
        A paragraph per protocol; ``"no values"`` if there are none.
    """
    paragraphs = []
    for members in group_rows(rows, ("protocol",)).values():
        paragraph = _rank_methods(members[0]["protocol"], members)
        if paragraph:
            paragraphs.append(paragraph)
    return "\n\n".join(paragraphs) or "no values"


def _rank_methods(protocol: str | None, rows: Sequence[ResultRow]) -> str:
    """Rank methods by the first main metric that has values; return an empty text where none has."""
    by_metric: dict[str, list[ResultRow]] = {}
    for row in finest(rows):
        if not is_missing(row["value"]):
            by_metric.setdefault(row["metric"], []).append(row)
    preferred = MAIN_METRICS.get(str(protocol), ("aurc",))
    for metric in (*preferred, *by_metric):
        if metric in by_metric:
            return _format_ranking(protocol, metric, by_metric[metric])
    return ""


def _format_ranking(protocol: str | None, metric: str, rows: Sequence[ResultRow]) -> str:
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(method(row), []).append(row["value"])
    means = {name: float(np.mean(own)) for name, own in values.items()}
    most_values = max(map(len, values.values()))
    better = better_of(rows)
    sign = -1 if better == "higher" else 1

    def rank(name: str) -> tuple[bool, float, str]:
        is_incomplete = len(values[name]) < most_values
        return is_incomplete, sign * means[name], name

    ranking = sorted(values, key=rank)
    heading = title(metric)
    if protocol is not None:
        heading = f"{protocol}: {heading}"
    direction = f"{better} is better{coverage_of(metric, protocol)}"
    lines = [f"{heading}, {direction}, mean of {count(most_values, 'value')}"]
    factor, _ = scale(metric)
    listed = ranking[:OVERVIEW_LENGTH]
    numbers = [f"{factor * means[name]:.{decimals(metric)}f}" for name in listed]
    width = max(map(len, numbers))
    for name, number in zip(listed, numbers, strict=True):
        line = f"  {number:>{width}}  {name}"
        if len(values[name]) < most_values:
            line += f"  (of {len(values[name])} only)"
        lines.append(line)
    if len(ranking) > OVERVIEW_LENGTH:
        lines.append(f"  and {len(ranking) - OVERVIEW_LENGTH} more")
    return "\n".join(lines)


# --- tables ---------------------------------------------------------------------------------------------------------


def _wrap_each(characters: str, before: str, after: str = "") -> dict[str, str]:
    return {character: before + character + after for character in characters}


_MARKDOWN = {**_wrap_each("\\`*_{}[]()#+!|~$", "\\"), "<": "&lt;", ">": "&gt;", "&": "&amp;"}
_LATEX = {
    **_wrap_each("&%$#_{}", "\\"),
    **_wrap_each("[]*", "{", "}"),  # which the end of a row takes for its arguments
    **_wrap_each("\"'`-", "{", "}"),  # which form ligatures
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}
_LATEX_OWN = {"×": r"$\times$", "–": "--", "—": "---", "…": r"\dots{}", "†": r"$\dagger$", "’": "'"}


def escape_markdown(text: str) -> str:
    r"""Escape text so that Markdown shows it character by character, on one line.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        Markdown; characters that cannot be printed become spaces.

    Examples
    --------
    >>> print(escape_markdown("a_b < c"))
    a\_b &lt; c
    """
    return _escape(text, _MARKDOWN)


def escape_latex(text: str) -> str:
    r"""Escape text so that LaTeX shows it character by character, on one line.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str
        LaTeX; characters that cannot be printed become spaces, and letters that LaTeX does not know by itself their
        number, such as U+4E2D.

    Examples
    --------
    >>> print(escape_latex("50% of a_b"))
    50\% of a\_b
    """
    return "".join(map(_latex_character, _escape(text, _LATEX)))


def _latex_character(character: str) -> str:
    """Write a character beyond Latin-1 as its number, since compilers that do not know it would stop."""
    if character in _LATEX_OWN:
        return _LATEX_OWN[character]
    if ord(character) < 0x100:
        return character
    return rf"\texttt{{U+{ord(character):04X}}}"


def _escape(text: str, replacements: Mapping[str, str]) -> str:
    escaped = []
    for character in text:
        shown = character if character.isprintable() else " "
        escaped.append(replacements.get(shown, shown))
    return "".join(escaped)


def markdown_table(
    index: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]], caption: str, notes: Sequence[str]
) -> str:
    """Write a table as Markdown, then its caption and a list of notes.

    Parameters
    ----------
    index, columns : sequence of str
        Labels of the rows and columns, as plain text.
    cells : sequence of sequence of str
        The cells, as Markdown.
    caption : str
        The caption, as plain text.
    notes : sequence of str
        Notes below the caption, as plain text.

    Returns
    -------
    str
        Markdown.

    Examples
    --------
    >>> print(markdown_table(["msp"], ["svhn"], [["**0.1**"]], "AURC.", []), end="")
    | | svhn |
    |---|---:|
    | msp | **0.1** |
    <BLANKLINE>
    AURC.
    """
    heading = " | ".join(["", *map(escape_markdown, columns)])
    lines = [f"|{heading} |", "|---|" + "---:|" * len(columns)]
    for label, line in zip(index, cells, strict=True):
        lines.append(f"| {' | '.join([escape_markdown(label), *line])} |")
    lines += ["", escape_markdown(caption)]
    if notes:
        lines.append("")
        lines += [f"- {escape_markdown(note)}" for note in notes]
    return "\n".join(lines) + "\n"


def latex_table(
    index: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    caption: str,
    notes: Sequence[str],
    *,
    label: str | None = None,
) -> str:
    """Write a table as a LaTeX float with the rules of booktabs; its caption ends with notes.

    Parameters
    ----------
    index, columns : sequence of str
        Labels of the rows and columns, as plain text.
    cells : sequence of sequence of str
        The cells, as LaTeX.
    caption : str
        The caption, as plain text.
    notes : sequence of str
        Notes at the end of the caption, as plain text without full stops.
    label : str, optional
        Name for references to the table: letters, digits and ``:.-``.

    Returns
    -------
    str
        LaTeX that needs the package booktabs.

    Raises
    ------
    InvalidInput
        If the label has other characters.
    """
    heading = " & ".join(["", *map(escape_latex, columns)])
    lines = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{l{'r' * len(columns)}}}", r"\toprule"]
    lines += [rf"{heading} \\", r"\midrule"]
    for name, line in zip(index, cells, strict=True):
        lines.append(rf"{' & '.join([escape_latex(name), *line])} \\")
    sentences = [caption, *(f"{note}." for note in notes)]
    escaped = " ".join(map(escape_latex, sentences))
    lines += [r"\bottomrule", r"\end{tabular}", rf"\caption{{{escaped}}}"]
    if label is not None:
        if not re.fullmatch(r"[A-Za-z0-9:.-]+", label):
            raise InvalidInput(f"label must hold letters, digits and :.- only, got {label!r}")
        lines.append(rf"\label{{{label}}}")
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def latex_document(body: str) -> str:
    """Wrap LaTeX tables into a document that compiles as it is.

    Parameters
    ----------
    body : str
        What :func:`latex_table` returns, or several of them.

    Returns
    -------
    str
        A document with the packages that the tables need.
    """
    packages = [r"\documentclass{article}", r"\usepackage[landscape,margin=1.5cm]{geometry}", r"\usepackage{booktabs}"]
    return "\n".join([*packages, r"\begin{document}", body.rstrip("\n"), r"\end{document}"]) + "\n"
