"""Read and write the folder of a study: the file it belongs to, and the results of finished cells.

A folder that a study ran in has ``judged/CELL``; one that :func:`keep` wrote has ``cells.json`` and, of the results,
what the tables show. Both record what is finished, and a study resumes from either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twofold._files import json_with_digest, parse_json_with_digest, read_regular, replacing
from twofold.bench.cache import digest
from twofold.bench.results import Results
from twofold.bench.rows import VALIDATION, key_of, method
from twofold.errors import InvalidInput, RunError
from twofold.run import Run
from twofold.study.spec import Cell, Study, command, loads

Told = Mapping[str, Any]  # a row of results, or what is known of a cell

STATE, CELL, CELLS = "study.json", "cell.json", "cells.json"
FORMAT, VERSION = "twofold-study", 2


def results(study: Study, out: str | Path) -> Results:
    """Read the results of all finished cells.

    Parameters
    ----------
    study : Study
        The study.
    out : str or Path
        Its folder.

    Returns
    -------
    Results
        Rows and replicates.

    Raises
    ------
    RunError
        If a cell was trained with other settings, or a file is damaged.
    """
    folder = Path(out)
    rows: list[Told] = []
    replicates: dict[tuple[str | None, ...], Any] = {}
    done = finished(study, folder)
    kept = [name for name in done if not (folder / "judged" / name / CELL).exists()]
    for name in done:
        if name not in kept:
            some = Results.open(folder / "judged" / name)
            rows += some.rows
            replicates |= some.replicates
    if kept:
        some = Results.open(folder)
        own = [row for row in some.rows if row["run"] in kept]
        rows += own
        replicates |= {key_of(row): some.replicates[key_of(row)] for row in own if key_of(row) in some.replicates}
    return Results.of(rows, replicates)


def keep(study: Study, out: str | Path, to: str | Path) -> tuple[str, ...]:
    """Add what the tables show of all finished cells to a small folder, from which a study can resume as well.

    Weights, outputs and all other results stay behind.

    Parameters
    ----------
    study : Study
        The study.
    out : str or Path
        Folder that the study ran in.
    to : str or Path
        The small folder; cells that it already holds are kept.

    Returns
    -------
    tuple of str
        The cells that the small folder holds now.

    Raises
    ------
    InvalidInput
        If no cell is finished.
    RunError
        If the small folder holds another study or cannot be written to.
    """
    folder, target = Path(out), Path(to)
    new = {cell.name: one for cell in study.cells() if (one := told_of(study, cell, folder)) is not None}
    if not new:
        raise InvalidInput(f"no cell of {study.name} is finished in {folder}; there is nothing to keep")
    claim(study, target)
    told = {name: one | {"sets": counts(one, folder / "runs" / name)} for name, one in new.items()}
    sources = [(results(study, folder), set(new))]
    if _kept(target):
        old = {cell.name: one for cell in study.cells() if (one := told_of(study, cell, target)) is not None}
        told = old | told
        sources.append((results(study, target), set(old) - set(new)))
    shown = {column for table in study.tables for column in table.columns}
    rows: list[Told] = []
    replicates: dict[tuple[str | None, ...], Any] = {}
    for found, cells in sources:
        own = [row for row in found.rows if row["run"] in cells]
        own = [row for row in own if row["shift"] == VALIDATION or _columns(row) & shown]
        rows += [{**row, "command": command(study)} for row in own]  # without the folders of a machine
        replicates |= {key_of(row): found.replicates[key_of(row)] for row in own if key_of(row) in found.replicates}
    order = {cell.name: place for place, cell in enumerate(study.cells())}
    rows.sort(key=lambda row: order[row["run"]])
    Results.of(rows, replicates).save(target)
    write_json(target / CELLS, {name: told[name] for name in order if name in told})
    return tuple(name for name in order if name in told)


def counts(told: Told, run: Path) -> dict[str, int]:
    """Count the images of each data set that a cell saw.

    Parameters
    ----------
    told : mapping
        What is stored about the cell.
    run : Path
        Folder of its outputs, read where the counts are not stored.

    Returns
    -------
    dict of str to int
        Number of images by name and role; empty where neither source has them.
    """
    if "sets" in told or not run.is_dir():
        return dict(told.get("sets", {}))
    seen = Run.open(run)
    return {f"{name} ({role})": len(seen[name]) for name, role in seen.roles.items()}


def _columns(row: Told) -> set[tuple[str, ...]]:
    """List the columns of a table that may show a row of results."""
    place = row["metric"], row["shift"], row["protocol"]
    return {place, (*place, method(row))}


def _kept(out: Path) -> dict[str, Any]:
    return read_json(out / CELLS) or {}


def finished(study: Study, out: str | Path) -> tuple[str, ...]:
    """List the cells of a study that are finished in a folder.

    Parameters
    ----------
    study : Study
        The study.
    out : str or Path
        The folder.

    Returns
    -------
    tuple of str
        Names of cells.

    Raises
    ------
    RunError
        If a cell was trained with other settings, or a file is damaged.
    """
    return tuple(cell.name for cell in study.cells() if told_of(study, cell, Path(out)) is not None)


def opened(out: str | Path) -> Study:
    """Load the study whose cells are in a folder.

    Parameters
    ----------
    out : str or Path
        The folder.

    Returns
    -------
    Study
        The study, with the preset it was run with.

    Raises
    ------
    InvalidInput
        If the folder holds no study.
    RunError
        If its file is damaged.
    """
    told = _state(Path(out))
    if told is None:
        raise InvalidInput(f"{out} holds no study: there is no {STATE} in it")
    return loads(told["file"], where=f"{out}/{STATE}", preset=told["preset"])


def _state(folder: Path) -> dict[str, Any] | None:
    """Read which study a folder belongs to: its name, preset and file; None where it belongs to none."""
    told = read_json(folder / STATE)
    if told is None:
        return None
    if not isinstance(told, dict):
        told = {}
    texts = [told.get("name"), told.get("file"), "" if told.get("preset") is None else told["preset"]]
    if not all(isinstance(text, str) for text in texts) or "preset" not in told:
        raise RunError(f"{folder / STATE} was not written by a study; delete it, and the same command makes it again")
    return told


def claim(study: Study, folder: Path) -> None:
    """Record in a folder which study it belongs to.

    Parameters
    ----------
    study : Study
        The study.
    folder : Path
        The folder; it is created if it does not exist.

    Raises
    ------
    RunError
        If the folder belongs to another study or preset, or cannot be written to.
    """
    told = _state(folder)
    if told is not None and (told["name"], told["preset"]) != (study.name, study.preset):
        was = told["name"] + ("" if told["preset"] is None else f" with preset {told['preset']}")
        raise RunError(f"{folder} holds the study {was}; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / STATE, {"name": study.name, "preset": study.preset, "file": study.text})
    except OSError as error:
        raise RunError(f"{folder} cannot be written to ({error.strerror}); choose another folder") from error


def pairs_of(cell: Cell) -> tuple[tuple[str, str], ...]:
    """List the pairs of scores that a cell is judged by.

    Parameters
    ----------
    cell : Cell
        The cell.

    Returns
    -------
    tuple of (str, str)
        Pairs of the row, or else of the benchmark.
    """
    return cell.row.pairs or cell.benchmark.pairs


def marks(study: Study, cell: Cell) -> dict[str, str]:
    """Compute digests of what a cell is trained and extracted by, and of what it is judged by.

    Parameters
    ----------
    study : Study
        The study.
    cell : Cell
        The cell.

    Returns
    -------
    dict of str to str
        Digests ``trained`` and ``judged``.
    """
    row, on = cell.row, cell.benchmark
    made = {key: value for key, value in asdict(row).items() if key not in ("name", "family", "scores", "pairs")}
    trained_by = [study.model, study.normalise, study.base, dict(study.settings), made, cell.train.data, cell.seed]
    if study.precision != "float32":  # cells that were kept before studies had a precision are in float32
        trained_by.append(study.precision)
    trained = digest(*trained_by)
    sets = [(one.name, one.role, one.data) for one in on.sets]
    judged = digest(sets, row.scores or on.scores, pairs_of(cell), on.protocols, on.metrics, study.resamples)
    return {"trained": trained, "judged": judged}


def told_of(study: Study, cell: Cell, out: Path) -> dict[str, Any] | None:
    """Read what is stored about a finished cell.

    Parameters
    ----------
    study : Study
        The study.
    cell : Cell
        The cell.
    out : Path
        Folder of the study.

    Returns
    -------
    dict or None
        None where the cell is not finished, or has to be judged again.

    Raises
    ------
    RunError
        If the cell was trained with other settings, or the file is damaged.
    """
    told = read_json(out / "judged" / cell.name / CELL) or _kept(out).get(cell.name)
    if told is None:
        return None
    if not isinstance(told, dict) or not {"trained", "judged"} <= told.keys():
        raise RunError(f"what {out} tells of {cell.name} was not written by a study; delete its file {CELL} or {CELLS}")
    now = marks(study, cell)
    if told["trained"] != now["trained"]:
        raise RunError(
            f"{cell.name} in {out} was trained with other settings than the study has now; choose another folder, or "
            f"delete {cell.name} in its folders training, runs and judged"
        )
    return told if told["judged"] == now["judged"] else None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file with its digest, whole or not at all.

    Parameters
    ----------
    path : Path
        The file.
    value : Any
        What JSON can hold.
    """
    with replacing(path) as file:
        file.write(json_with_digest(value, kind=FORMAT, version=VERSION))


def read_json(path: Path) -> Any:
    """Read a JSON file and check its digest.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    Any
        Its value; None where there is no file.

    Raises
    ------
    RunError
        If the file cannot be read or is damaged.
    """
    remedy = "delete it, and the same command makes it again"
    try:
        raw = read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror}); {remedy}") from error
    return parse_json_with_digest(raw, path, kind=FORMAT, version=VERSION, remedy=remedy)
