"""What steps leave behind for tables and drawings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from twofold.bench.estimators import EstimatorCell
from twofold.bench.rows import ResultRow


@dataclass(frozen=True)
class Material:
    """Hold what the steps of a plan computed.

    Parameters
    ----------
    cells : tuple of EstimatorCell
        Estimators of AURC on batches of saved outputs.
    rows : tuple of mapping
        Tidy results of benchmarks and studies.
    runs : tuple of Path
        Folders of the runs that were extracted or judged.
    """

    cells: tuple[EstimatorCell, ...] = ()
    rows: tuple[ResultRow, ...] = ()
    runs: tuple[Path, ...] = ()

    @classmethod
    def join(cls, parts: Iterable[Material]) -> Material:
        """Put the material of several steps together.

        Parameters
        ----------
        parts : iterable of Material
            What each step left.

        Returns
        -------
        Material
            All of it, in order; each run once.
        """
        cells: list[EstimatorCell] = []
        rows: list[ResultRow] = []
        runs: dict[Path, None] = {}
        for part in parts:
            cells += part.cells
            rows += part.rows
            runs |= dict.fromkeys(part.runs)
        return cls(tuple(cells), tuple(rows), tuple(runs))
