"""Cells in which choices of scores were judged on one network, and averages over them with their draws."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from drawn_gains import DRAWS
from twofold.typing import Array

Row = Mapping[str, str]
CellValue = Callable[[Row], float | None]
"""A value of a cell; None leaves the cell out."""


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True)
class Average:
    """Hold the mean of a value over the cells of a network, its mean in each draw, and which draws have a cell."""

    mean: float
    drawn: Array
    has_cell: Array


@dataclass(frozen=True)
class NetworkCells:
    """Hold the cells of a quantity on a network, and how often the sets of each cell are in each draw.

    Parameters
    ----------
    rows : list of mapping
        The cells.
    weights : array of shape (n_cells, n_draws)
        How often the sets of each are in each draw.
    """

    rows: list[Row]
    weights: Array

    def average(self, value: CellValue) -> Average | None:
        """Average a value over the cells that have it; None if no cell does."""
        values, kept = [], []
        for index, row in enumerate(self.rows):
            number = value(row)
            if number is not None:
                values.append(number)
                kept.append(index)
        if not kept:
            return None
        weights = self.weights[kept]
        total = weights.sum(axis=0)
        has_cell = total > 0
        drawn = np.divide(np.array(values) @ weights, total, out=np.zeros(DRAWS), where=has_cell)
        return Average(float(np.mean(values)), drawn, has_cell)
