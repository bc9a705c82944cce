"""How much every recipe of a comparison gains over plain training, with intervals over test images and seeds."""

from __future__ import annotations

from collections.abc import Sequence

from study_cells import Contender, FinishedCells
from study_claim_files import name_column
from study_differences import difference, shared_runs
from study_sure_plus import MAIN_COLUMNS
from sure_plus_cells import PRINTED, Comparison, label_of
from tables import markdown
from twofold.bench.text import scale

EXPLANATION = (
    "Gains are in percentage points, for AURC and DS-AURC in thousandths, and positive is better. Their 95 % intervals are over test images "
    "and seeds; claims that compare with the best of several rivals have wider ones."
)


def gain_table(comparison: Comparison, names: Sequence[str], benchmark: str) -> list[str]:
    """Write the gains of a comparison on one benchmark; nothing where no row has two seeds.

    Parameters
    ----------
    comparison : Comparison
        The comparison.
    names : sequence of str
        Its rows, plain training first.
    benchmark : str
        Name of the benchmark.
    """
    cells = FinishedCells.open(comparison.folder)
    if cells is None:
        return []
    cells = cells.on_benchmark(benchmark)
    labels = {row.name: label_of(row) for row in cells.study.rows}
    lines = []
    for name, rival in compared_pairs(names):
        gains = write_gains(cells, name, rival)
        if gains:
            lines.append([labels[name], labels[rival], *gains])
    if not lines:
        return []
    head = ["recipe", "gain over", *(name_column(column) for column, _ in MAIN_COLUMNS)]
    return [markdown(head, lines)]


def compared_pairs(names: Sequence[str]) -> list[tuple[str, str]]:
    """Pair every row with plain training, and SURE+ with itself at the printed radius where that has a row.

    There is no pair where the trials have not chosen the rate of plain training yet, so that it is not the first.
    """
    plain = names[0]
    if not plain.startswith("basic"):
        return []
    pairs = [(name, plain) for name in names[1:]]
    for name in names:
        is_chosen = name.startswith("sure_plus-") and name != PRINTED
        if is_chosen and PRINTED in names:
            pairs.append((name, PRINTED))
    return pairs


def write_gains(cells: FinishedCells, name: str, rival: str) -> list[str]:
    """Write the gain of one row over another in every column; nothing where they share fewer than two seeds."""
    written = []
    for column, method_name in MAIN_COLUMNS:
        contender, other = Contender(name, method_name), Contender(rival, method_name)
        if len(shared_runs(cells, contender, other, column)) < 2:
            return []
        gain = difference(cells, contender, other, column)
        factor, _ = scale(column.metric)
        written.append(f"{factor * gain.mean:+.2f} [{factor * gain.low:+.2f}, {factor * gain.high:+.2f}]")
    return written
