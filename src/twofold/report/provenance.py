"""Where the numbers of a report come from: provenance, commands that repeat them, and the headline as data."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from twofold._math import sigmoid
from twofold.report.commands import Command, commands_table, gate_commands, gate_folders, json_threshold, quote_path
from twofold.report.document import ReportTable, Section
from twofold.report.measure import Measurements


def list_commands(measurements: Measurements, page_command: Command) -> list[Command]:
    """List every command of the page: the page, the gates of the verdict, and the check that the run is intact.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.
    page_command : Command
        The command that makes the page again.

    Returns
    -------
    list of Command
        The commands.
    """
    source = measurements.source
    folders = gate_folders(source.pairs)
    commands = [page_command]
    for pair in dict.fromkeys((measurements.pair, measurements.single)):
        commands += gate_commands(source, pair, measurements.thresholds[pair], folders[pair])
    if source.is_run:
        commands.append(Command(f"twofold verify {quote_path(source.path)}", "a check that the run is intact"))
    return commands


def provenance_section(measurements: Measurements, commands: Sequence[Command]) -> Section:
    """List where the numbers come from and the commands that repeat them.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.
    commands : sequence of Command
        The commands.

    Returns
    -------
    Section
        Two tables.
    """
    from twofold import __version__

    source = measurements.source
    facts = {
        "source": source.path,
        **source.facts,
        "report made with": f"twofold {__version__}, Python {platform.python_version()}, numpy {np.__version__}",
        "seed of the resampling": str(measurements.seed),
        "thresholds": _threshold_text(measurements),
    }
    notes: tuple[str, ...] = ()
    if source.gate_share is not None:
        notes = (
            "Thresholds are chosen, and the risk is computed, for the share of unknown inputs in the data shown, "
            f"{source.gate_share:.6g}. The interval of that risk that gate card prints is wider than the one here, "
            "because it does not treat the share as part of the sample.",
        )
    facts_table = ReportTable("facts", "Provenance", ("what", "value"), tuple(facts.items()))
    return Section("provenance", "Where this comes from", (facts_table, commands_table(commands, notes)))


def _threshold_text(measurements: Measurements) -> str:
    """Format the thresholds of the pair; that of msp, a log-odds, also as a probability."""
    texts = []
    for spec, threshold in _gate_thresholds(measurements).items():
        text = f"{spec} >= {threshold:.6g}"
        if spec == "msp":
            text += f" (probability {float(sigmoid(np.array(threshold))):.6g})"
        texts.append(text)
    return ", ".join(texts)


def _gate_thresholds(measurements: Measurements) -> dict[str, float]:
    """List thresholds of the pair by score; one where one score does both."""
    pair = measurements.pair
    tau_id, tau_ood = measurements.thresholds[pair]
    if pair.is_single:
        return {pair.id: max(tau_id, tau_ood)}
    return {pair.id: tau_id, pair.ood: tau_ood}


class HeadlineSummary(TypedDict):
    """Hold the headline of a report as plain values, for programs that read the page.

    Parameters
    ----------
    id : str
        The first score.
    ood : str or None
        The second score; None where one score does both.
    tau_id, tau_ood : float, str or None
        Their thresholds; infinite ones are text.
    coverage, risk : float
        What the gate accepts of known inputs, and how much of all it accepts is wrong.
    ood_share : float
        Share of unknown inputs in the data shown.
    commands : list of str
        The commands of the page.
    """

    id: str
    ood: str | None
    tau_id: float | str
    tau_ood: float | str | None
    coverage: float
    risk: float
    ood_share: float
    commands: list[str]


def headline_summary(measurements: Measurements, commands: Sequence[Command]) -> HeadlineSummary:
    """Summarise the headline as data: the pair, its thresholds, and what they do on all data shown.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.
    commands : sequence of Command
        The commands of the page.

    Returns
    -------
    HeadlineSummary
        Plain values; infinite thresholds are text.
    """
    pool, pair = measurements.pool, measurements.pair
    accepted = measurements.accepts(pool)
    thresholds = _gate_thresholds(measurements)
    n_known, n_accepted = int(pool.is_id.sum()), int(accepted.sum())
    risk = 0.0
    if n_accepted:
        risk = int((accepted & ~pool.correct).sum()) / n_accepted
    tau_ood = None
    if pair.second is not None:
        tau_ood = json_threshold(thresholds[pair.second])
    return {
        "id": pair.id,
        "ood": pair.second,
        "tau_id": json_threshold(thresholds[pair.id]),
        "tau_ood": tau_ood,
        "coverage": int((accepted & pool.is_id).sum()) / n_known,
        "risk": risk,
        "ood_share": int((~pool.is_id).sum()) / len(pool.is_id),
        "commands": [command.line for command in commands],
    }
