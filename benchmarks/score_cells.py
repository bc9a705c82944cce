"""What claims on scores share: the command that decides them, and how they read a cell of ``which_score.csv``."""

from __future__ import annotations

from network_cells import Row
from score_choice import KEYS, Table

COMMAND = "python benchmarks/score_claims.py"
NEAR = ("cifar10", "cifar100", "tinyimagenet")


def is_cifar(row: Row) -> bool:
    """Check whether a cell belongs to a CIFAR network."""
    return row["modality"] == "small images"


def is_near(row: Row) -> bool:
    """Check whether the unknown set of a cell is near."""
    return row["judged_on"] in NEAR


def single_scores(row: Row) -> dict[str, float]:
    """Return the values of the single scores of a cell, by score."""
    values = {}
    for column, text in row.items():
        is_score = column not in (*KEYS, "command")
        is_pair = " + " in column
        if is_score and not is_pair and text:
            values[column] = float(text)
    return values


def cifar_networks(table: Table) -> list[str]:
    """List the CIFAR networks."""
    return [name for name, modality in table.networks.items() if modality == "small images"]
