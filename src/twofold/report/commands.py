"""Build the commands of a page: each is complete, so that running it again reproduces the numbers beside it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from twofold.report.material import Material, Pair
from twofold.scores.chain import scorer
from twofold.scores.registry import plugins

SUFFIXES = {"html": ".html", "md": ".md", "latex": ".tex", "json": ".json"}
"""Formats of a report, and how their files end."""


def place(source: str | Path) -> str:
    """Quote a path as a word of a command that is never taken for an option.

    Parameters
    ----------
    source : str or Path
        The path.

    Returns
    -------
    str
        The word.

    Examples
    --------
    >>> place("a run"), place("-run")
    ("'a run'", './-run')
    """
    text = str(source)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def report_command(
    source: str | Path,
    *,
    id: str | None = None,  # noqa: A002 - the name of the design
    ood: str | None = None,
    scores: Sequence[str] = (),
    images: Sequence[str] = (),
    ood_classes: str | Path | None = None,
    resamples: int | None = None,
    seed: int | None = None,
    format: str = "html",  # noqa: A002 - what every writer calls it
) -> str:
    """Build the command that writes a report again.

    Parameters
    ----------
    source : str or Path
        What the report is on.
    id, ood : str, optional
        The pair of scores, where it was asked for.
    scores, images : sequence of str, default=()
        The words of ``--score`` and ``--images``.
    ood_classes : str or Path, optional
        The file of ``--ood-classes``.
    resamples, seed : int, optional
        Settings of the intervals, where the report has some.
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
    words = ["twofold report", place(source)]
    options: list[tuple[str, object]] = [("--id", id), ("--ood", ood)]
    options += [("--score", score) for score in scores]
    options += [("--images", word) for word in images]
    options += [("--ood-classes", ood_classes), ("--resamples", resamples), ("--seed", seed)]
    specs = [spec for spec in (id, ood, *scores) if spec is not None and spec != "none"]
    for name, value in options:
        if value is not None:
            words.append(f"{name} {shlex.quote(str(value))}")
    return " ".join([*words, f"-o report{SUFFIXES[format]} --replace"]) + plugin_options(specs)


def gate_folders(pairs: Sequence[Pair]) -> dict[Pair, str]:
    """Choose a folder for the gate of each pair, no two alike, of letters, digits and hyphens.

    Parameters
    ----------
    pairs : sequence of Pair
        Pairs of scores.

    Returns
    -------
    dict of Pair to str
        Names of folders.

    Examples
    --------
    >>> list(gate_folders([Pair("msp", "energy"), Pair("msp", "msp")]).values())
    ['gate-msp-energy', 'gate-msp']
    """
    folders: dict[Pair, str] = {}
    for pair in pairs:
        scores = [pair.id] if pair.id == pair.ood else [pair.id, pair.ood]
        name = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(["gate", *scores])).strip("-")[:60]
        taken = list(folders.values())
        number = 2
        folder = name
        while folder in taken:
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
    return "".join(f" --plugin {module}" for module in modules if module in plugins())


def gate_scores(material: Material, pair: Pair) -> str:
    """Build the part of ``twofold gate fit`` that names the source and the scores.

    Parameters
    ----------
    material : Material
        What the report is made from.
    pair : Pair
        Scores of the gate.

    Returns
    -------
    str
        Beginning of a command; empty where no gate can be fitted.
    """
    if why_no_gate(material, pair):
        return ""
    second = "none" if pair.id == pair.ood else pair.ood
    scores = f"--id {shlex.quote(pair.id)} --ood {shlex.quote(second)}{plugin_options([pair.id, pair.ood])}"
    return f"twofold gate fit {place(material.source)} {scores}"


def why_no_gate(material: Material, pair: Pair) -> str:
    """Say why no command makes the gate of a pair as the page shows it.

    Parameters
    ----------
    material : Material
        What the report is made from.
    pair : Pair
        Scores of the gate.

    Returns
    -------
    str
        The reason; empty where a command does.
    """
    if material.gate:
        return material.gate
    if material.judges.get(pair.id) != material.judges.get(material.pairs[0].id):
        return (
            f"{material.pairs[0].id} and {pair.id} judge different predictions, and right and wrong on this page are "
            f"those of {material.pairs[0].id}"
        )
    return ""


def fit_command(material: Material, pair: Pair, thresholds: tuple[float, float], folder: str) -> str:
    """Build the command that makes the gate of a pair with the thresholds of the page.

    Thresholds that the gate itself chose are chosen again, on the same data and for the same share of unknown inputs;
    those that were read off the data shown are passed as numbers.

    Parameters
    ----------
    material : Material
        What the report is made from.
    pair : Pair
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
    scores = gate_scores(material, pair)
    if not scores:
        return ""
    if material.chosen_by_gate:
        asked = "--objective f1"
    elif pair.id == pair.ood:
        asked = f"--objective given --tau-id={max(thresholds)!r}"
    else:
        asked = f"--objective given --tau-id={thresholds[0]!r} --tau-ood={thresholds[1]!r}"
    share = "" if material.gate_share is None else f" --ood-share {material.gate_share!r}"
    return f"{scores} {asked}{share} --out {folder} --replace"


def pooled_sets(material: Material, pair: Pair) -> str:
    """List the source and the sets of the headline as words of ``twofold gate card``.

    Parameters
    ----------
    material : Material
        What the report is made from.
    pair : Pair
        Scores of the gate.

    Returns
    -------
    str
        The words; empty where no gate can be fitted.
    """
    if why_no_gate(material, pair):
        return ""
    names = "".join(f" --name {shlex.quote(name)}" for name in material.pooled)
    return f"{place(material.source)}{names}{plugin_options([pair.id, pair.ood])}"


def gate_commands(
    material: Material, pair: Pair, thresholds: tuple[float, float], folder: str
) -> list[tuple[str, str]]:
    """Build the commands of one pair: its gate, what it does on all data shown, and on each set.

    Parameters
    ----------
    material : Material
        What the report is made from.
    pair : Pair
        Scores of the gate.
    thresholds : tuple of float
        Threshold of the ID score and of the OOD score.
    folder : str
        Where the gate is saved.

    Returns
    -------
    list of (str, str)
        Each command and what it makes; empty where no gate can be fitted.
    """
    fit = fit_command(material, pair, thresholds, folder)
    if not fit:
        return []
    found = [
        (fit, f"the gate of {pair.name}, with its thresholds"),
        (
            f"twofold gate card {folder} {pooled_sets(material, pair)}",
            f"coverage and risk of {pair.name} on all data shown",
        ),
    ]
    if material.has_test:
        each = f"twofold gate card {folder} {place(material.source)}{plugin_options([pair.id, pair.ood])}"
        found.append((each, f"the same of {pair.name} with each set by itself"))
    return found


def threshold_value(threshold: float) -> float | str:
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
    >>> threshold_value(0.5), threshold_value(-math.inf)
    (0.5, '-inf')
    """
    return threshold if math.isfinite(threshold) else str(threshold)
