"""Training of the missing cells of all studies, seed by seed, and what is kept of a finished cell."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from script import announce, refresh

from study_catalogue import KEPT, STUDIES, VARIANTS, has_kept_cells, load_study
from study_released import add_released_metrics
from twofold import study as studies
from twofold.errors import InvalidInput
from twofold.study import StudyCell

LEAST_MINUTES = 0.01  # a limit must be positive


def planned_cells() -> Iterator[tuple[str, StudyCell]]:
    """Yield the names of studies and their cells, in the order in which they are trained."""
    by_name = {name: load_study(name) for name in STUDIES}
    seeds: set[int] = set()
    for study in by_name.values():
        seeds.update(study.seeds)
    for seed in sorted(seeds):
        for name, study in by_name.items():
            for cell in study.cells():
                if cell.seed == seed:
                    yield name, cell
    for name, variant in VARIANTS.items():
        for cell in load_study(name).cells(variant.rows, variant.seeds):
            yield name, cell


def train(work: Path, minutes: float, compiled: bool) -> None:
    """Train every cell that is not finished, and keep what the tables need of it.

    Parameters
    ----------
    work : Path
        Folder of the weights and outputs.
    minutes : float
        Start no cell that would end later; infinite for no limit.
    compiled : bool
        Whether PyTorch compiles the passes of training.
    """
    begin = time.monotonic()
    copy_kept_cells(work)
    for name, cell in planned_cells():
        study = load_study(name)
        if cell.name in studies.finished(study, work / name):
            continue
        announce(f"{name}: {cell.name}")
        limit = None
        if not math.isinf(minutes):
            spent = (time.monotonic() - begin) / 60
            limit = max(minutes - spent, LEAST_MINUTES)
        try:
            studies.run(
                study,
                work / name,
                only=[cell.row.name],
                seeds=[cell.seed],
                limit_minutes=limit,
                compiled=compiled,
                done=show_progress,
            )
        except InvalidInput as error:
            if "more than the limit" not in str(error):
                raise
            print(f"\n{error}", file=sys.stderr)
            return
        keep(name, work / name)


def copy_kept_cells(work: Path) -> None:
    """Copy the cells that other machines finished from ``results/studies``."""
    for name in (*STUDIES, *VARIANTS):
        if has_kept_cells(name):
            announce(f"{name}: copying finished cells")
            studies.keep(load_study(name), KEPT / name, work / name)


def show_progress(label: str, count: int, total: int) -> None:
    """Show how far a cell is."""
    refresh(f"{label} {count} of {total}")


def keep(name: str, work: Path) -> None:
    """Add the finished cells of a folder to those in ``results/studies``."""
    study = load_study(name)
    studies.keep(study, work, KEPT / name)
    if name == "sure_plus":
        add_released_metrics(study, work)
