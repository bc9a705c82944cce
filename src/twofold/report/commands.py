"""Build the commands of a page: each is complete, so that running it again reproduces the numbers beside it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from twofold.report.document import ReportTable
from twofold.report.options import SUFFIXES, Format, ReportOptions, name_scores
from twofold.report.scored import ReportSource, ScorePair
from twofold.report.threshold_grid import Thresholds
from twofold.scores.chain import scorer
from twofold.scores.registry import plugins


@dataclass(frozen=True)
class Command:
    """Hold a command line of a page.

    Parameters
    ----------
    line : str
        The command line.
    gives : str
        What it makes or prints.
    """

    line: str
    gives: str


def quote_path(path: str | Path) -> str:
    """Quote a path as a word of a command that is never taken for an option.

    Parameters
    ----------
    path : str or Path
        The path.

    Returns
    -------
    str
        The word.

    Examples
    --------
    >>> quote_path("a run"), quote_path("-run")
    ("'a run'", './-run')
    """
    text = str(path)
    if text.startswith("-"):
        text = f"./{text}"
    return shlex.quote(text)


def page_command(path: str | Sequence[str], options: ReportOptions) -> Command:
    """Build the command that makes the page of a run or a file again.

    Parameters
    ----------
    path : str or sequence of str
        What the report is on.
    options : ReportOptions
        The options of the report.

    Returns
    -------
    Command
        The command of the options where it is set; else one with the same options.
    """
    if options.command is not None:
        return Command(options.command, "this page")
    images = []
    if isinstance(options.images, str | Path):
        images.append(str(options.images))
    line = report_command(
        path,
        id=options.id,
        ood=options.ood,
        scores=options.scores or (),
        images=images,
        resamples=options.resamples,
        seed=options.seed,
        columns=options.columns or {},
        format=options.format,
    )
    if isinstance(options.images, Mapping) or options.ood_classes is not None:
        return Command(line, "this page, without images and classes that were passed as arrays")
    return Command(line, "this page")


def report_command(
    source: str | Path | Sequence[str | Path],
    *,
    id: str | None = None,  # noqa: A002 - the name of the design
    ood: str | None = None,
    scores: Sequence[str] = (),
    images: Sequence[str] = (),
    ood_classes: str | Path | None = None,
    resamples: int | None = None,
    seed: int | None = None,
    columns: Mapping[str, str] | None = None,
    format: Format = "html",  # noqa: A002 - what every writer calls it
) -> str:
    """Build the command that writes a report again.

    Parameters
    ----------
    source : str or Path, or sequence of these
        What the report is on.
    id, ood : str, optional
        The pair of scores, where it was asked for.
    scores, images : sequence of str, default=()
        The words of ``--score`` and ``--images``.
    ood_classes : str or Path, optional
        The file of ``--ood-classes``.
    resamples, seed : int, optional
        Settings of the intervals, where the report has some.
    columns : mapping of str to str, optional
        Columns of a table of logged predictions.
    format : {"html", "md", "latex", "json"}, default="html"
        Format of the report.

    Returns
    -------
    str
        One line for a shell.

    Examples
    --------
    >>> report_command("run", id="msp", resamples=200, seed=0)
    'twofold report run --id msp --resamples 200 --seed 0 -o report.html --replace'
    """
    options: list[tuple[str, object]] = [("--id", id), ("--ood", ood)]
    options += [("--score", score) for score in scores]
    options += [("--images", word) for word in images]
    options += [(f"--{name.replace('_', '-')}", text) for name, text in (columns or {}).items()]
    options += [("--ood-classes", ood_classes), ("--resamples", resamples), ("--seed", seed)]
    sources = [source] if isinstance(source, str | Path) else source
    words = ["twofold report", *map(quote_path, sources)]
    for name, value in options:
        if value is not None:
            words.append(f"{name} {shlex.quote(str(value))}")
    words.append(f"-o report{SUFFIXES[format]} --replace")
    return " ".join(words) + plugin_options(name_scores(id, ood, *scores))


def gate_folders(pairs: Sequence[ScorePair]) -> dict[ScorePair, str]:
    """Choose a folder for the gate of each pair, all different, of letters, digits and hyphens.

    Parameters
    ----------
    pairs : sequence of ScorePair
        Pairs of scores.

    Returns
    -------
    dict of ScorePair to str
        Names of folders.

    Examples
    --------
    >>> list(gate_folders([ScorePair("msp", "energy"), ScorePair("msp", "msp")]).values())
    ['gate-msp-energy', 'gate-msp']
    """
    folders: dict[ScorePair, str] = {}
    for pair in pairs:
        name = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(["gate", *pair.scores])).strip("-")[:60]
        folder = name
        number = 2
        while folder in folders.values():
            folder = f"{name}-{number}"
            number += 1
        folders[pair] = folder
    return folders


def plugin_options(specs: Sequence[str]) -> str:
    """Build the options that import the plugin modules which some of these scores come from.

    Parameters
    ----------
    specs : sequence of str
        Scores.

    Returns
    -------
    str
        Options with a leading space; empty where all scores are twofold's own.

    Examples
    --------
    >>> plugin_options(["msp", "energy"])
    ''
    """
    modules: dict[str, None] = {}
    waiting = [scorer(spec) for spec in specs]
    while waiting:
        chain = waiting.pop()
        for step in chain.steps:
            modules[step.info.maker.__module__] = None
            waiting += step.inner_chains
    options = ""
    for module in modules:
        if module in plugins():
            options += f" --plugin {module}"
    return options


def gate_fit_start(source: ReportSource, pair: ScorePair) -> str:
    """Build the part of ``twofold gate fit`` that names the source and the scores.

    Parameters
    ----------
    source : ReportSource
        What the report is made from.
    pair : ScorePair
        Scores of the gate.

    Returns
    -------
    str
        Beginning of a command; empty where no gate can be fitted.
    """
    if no_gate_reason(source, pair):
        return ""
    second = shlex.quote(pair.second or "none")
    scores = f"--id {shlex.quote(pair.id)} --ood {second}{plugin_options(pair.scores)}"
    return f"twofold gate fit {quote_path(source.path)} {scores}"


def no_gate_reason(source: ReportSource, pair: ScorePair) -> str:
    """Say why no command makes the gate of a pair as the page shows it.

    Parameters
    ----------
    source : ReportSource
        What the report is made from.
    pair : ScorePair
        Scores of the gate.

    Returns
    -------
    str
        The reason; empty where a command does.
    """
    if source.no_gate_reason:
        return source.no_gate_reason
    first = source.pairs[0].id
    if source.judges.get(pair.id) != source.judges.get(first):
        return f"{first} and {pair.id} judge different predictions, and this page counts as correct what {first} judges"
    return ""


def fit_command(source: ReportSource, pair: ScorePair, thresholds: Thresholds, folder: str) -> str:
    """Build the command that makes the gate of a pair with the thresholds of the page.

    Thresholds that the gate itself chose are chosen again, on the same data and for the same share of unknown inputs;
    those that were read off the data shown are passed as numbers.

    Parameters
    ----------
    source : ReportSource
        What the report is made from.
    pair : ScorePair
        Scores of the gate.
    thresholds : tuple of float
        Threshold of the ID score and of the OOD score.
    folder : str
        Where the gate is saved.

    Returns
    -------
    str
        The command; empty where no gate can be fitted.
    """
    start = gate_fit_start(source, pair)
    if not start:
        return ""
    tau_id, tau_ood = thresholds
    if source.gate_chooses:
        objective = "--objective f1"
    elif pair.is_single:
        objective = f"--objective given --tau-id={max(tau_id, tau_ood)!r}"
    else:
        objective = f"--objective given --tau-id={tau_id!r} --tau-ood={tau_ood!r}"
    if source.gate_share is not None:
        objective += f" --ood-share {source.gate_share!r}"
    return f"{start} {objective} --out {folder} --replace"


def card_arguments(source: ReportSource, pair: ScorePair) -> str:
    """List the source and the sets of the headline as words of ``twofold gate card``.

    Parameters
    ----------
    source : ReportSource
        What the report is made from.
    pair : ScorePair
        Scores of the gate.

    Returns
    -------
    str
        The words; empty where no gate can be fitted.
    """
    if no_gate_reason(source, pair):
        return ""
    names = "".join(f" --name {shlex.quote(name)}" for name in source.headline_sets)
    return f"{quote_path(source.path)}{names}{plugin_options(pair.scores)}"


def gate_commands(source: ReportSource, pair: ScorePair, thresholds: Thresholds, folder: str) -> list[Command]:
    """Build the commands of one pair: its gate, what it does on all data shown, and on each set.

    Parameters
    ----------
    source : ReportSource
        What the report is made from.
    pair : ScorePair
        Scores of the gate.
    thresholds : tuple of float
        Threshold of the ID score and of the OOD score.
    folder : str
        Where the gate is saved.

    Returns
    -------
    list of Command
        The commands; empty where no gate can be fitted.
    """
    fit = fit_command(source, pair, thresholds, folder)
    if not fit:
        return []
    card = f"twofold gate card {folder} {card_arguments(source, pair)}"
    commands = [
        Command(fit, f"the gate of {pair.name}, with its thresholds"),
        Command(card, f"coverage and risk of {pair.name} on all data shown"),
    ]
    if source.has_test_role:
        each = f"twofold gate card {folder} {quote_path(source.path)}{plugin_options(pair.scores)}"
        commands.append(Command(each, f"the same of {pair.name} for each data set"))
    return commands


def commands_table(commands: Sequence[Command], notes: tuple[str, ...] = ()) -> ReportTable:
    """Tabulate the commands of a page.

    Parameters
    ----------
    commands : sequence of Command
        The commands.
    notes : tuple of str, default=()
        Remarks below the table.

    Returns
    -------
    ReportTable
        Each command, and what it gives.
    """
    lines = tuple((command.line, command.gives) for command in commands)
    return ReportTable("commands", "Commands", ("command", "gives"), lines, notes=notes)


def json_threshold(threshold: float) -> float | str:
    """Convert a threshold to what JSON can hold: infinities become text.

    Parameters
    ----------
    threshold : float
        The threshold.

    Returns
    -------
    float or str
        The number, or ``"inf"`` or ``"-inf"``.

    Examples
    --------
    >>> json_threshold(0.5), json_threshold(-math.inf)
    (0.5, '-inf')
    """
    return threshold if math.isfinite(threshold) else str(threshold)
