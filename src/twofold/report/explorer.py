"""The threshold explorer: two sliders on the page, and the counts its script works on."""

from __future__ import annotations

from typing import TypedDict

from twofold.report.commands import card_arguments, gate_fit_start, gate_folders, no_gate_reason, report_command
from twofold.report.document import Markup, Section
from twofold.report.html import read_static
from twofold.report.measure import KIND_NAMES, Measurements
from twofold.report.scored import ReportSource
from twofold.report.threshold_grid import PackedGrid


class ExplorerPair(PackedGrid):
    """Hold what the page's script needs for one pair of scores, beside its grid.

    Parameters
    ----------
    id, ood : str
        The scores.
    odds : list of bool
        Whether each score is a log-odds, which is also shown as a probability.
    start : tuple of (int, int)
        Place on the grid of the gate of the verdict.
    command, card : str
        Beginnings of ``twofold gate fit`` and end of ``twofold gate card``; empty where no gate can be fitted.
    gate : str
        Why no gate can be fitted.
    folder : str
        Folder of the gate.
    """

    id: str
    ood: str
    odds: list[bool]
    start: tuple[int, int]
    command: str
    gate: str
    folder: str
    card: str


class ExplorerData(TypedDict):
    """Hold what the page's script reads.

    Parameters
    ----------
    pairs : list of ExplorerPair
        The pairs of scores.
    share : bool
        Whether commands name the share of unknown inputs.
    note : str
        What the command does with the chosen point.
    words : dict of str to str
        Kinds of inputs in words.
    """

    pairs: list[ExplorerPair]
    share: bool
    note: str
    words: dict[str, str]


def explorer_section(measurements: Measurements) -> Section:
    """Show two sliders on the page; other formats have a line that says where they are.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    Section
        The threshold explorer.
    """
    text = (
        "Move the two thresholds, or click on the map, and see what the gate does. An input is accepted if both "
        "scores reach their thresholds."
    )
    plain = f"The threshold explorer is on the HTML page: {report_command(measurements.source.path)}"
    return Section("explorer", "Try thresholds", (text, Markup(read_static("explorer.html"), plain)))


def explorer_data(measurements: Measurements) -> ExplorerData:
    """Collect what the page's script reads.

    Parameters
    ----------
    measurements : Measurements
        What several sections share.

    Returns
    -------
    ExplorerData
        Grids of counts, starting points and commands of each pair.
    """
    source = measurements.source
    folders = gate_folders(source.pairs)
    pairs: list[ExplorerPair] = []
    for pair, grid in measurements.grids.items():
        pairs.append(
            {
                "id": pair.id,
                "ood": pair.ood,
                "odds": [_ends_in_msp(pair.id), _ends_in_msp(pair.ood)],
                "start": grid.locate(measurements.thresholds[pair]),
                "command": gate_fit_start(source, pair),
                "gate": no_gate_reason(source, pair),
                "folder": folders[pair],
                "card": card_arguments(source, pair),
                **grid.pack(),
            }
        )
    return {"pairs": pairs, "share": source.gate_has_unknown, "note": _gate_note(source), "words": KIND_NAMES}


def _ends_in_msp(spec: str) -> bool:
    return spec.split("|")[-1] == "msp"


def _gate_note(source: ReportSource) -> str:
    """Say what the command does with the chosen point."""
    if source.no_gate_reason:
        return ""
    if not source.is_run:
        return (
            "Thresholds that you choose by these numbers are not tested by them: keep other data for that. With the "
            "other goals, the command chooses on this same file. With --objective risk, --delta 0.1 guarantees the "
            "risk with confidence 0.9."
        )
    note = (
        "Thresholds that you choose by these numbers carry no guarantee, because these are test data. With the other "
        "goals, the command chooses on validation data, so its thresholds differ a little from those above. With "
        "--objective risk, --delta 0.1 guarantees the risk with confidence 0.9."
    )
    if not source.gate_has_unknown:
        note += " The validation data hold no unknown inputs."
    return note
