"""Read and write the folder of a study: the file it belongs to, and the results of finished cells.

A folder that a study ran in has ``judged/CELL``; one that :func:`keep` wrote has ``cells.json`` and, of the results,
what the tables show. Both record what is finished, and a study resumes from either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from twofold._checks import Array
from twofold._files import json_with_digest, parse_json_with_digest, read_regular, replacing
from twofold.bench.cache import digest
from twofold.bench.results import Results
from twofold.bench.rows import VALIDATION, Key, ResultRow, key_of, method
from twofold.errors import InvalidInput, RunError
from twofold.metrics.evaluate import EvaluationMethod
from twofold.run import Run
from twofold.study.parse import command, loads
from twofold.study.spec import Study, StudyCell, TableColumn

STATE, CELL, CELLS = "study.json", "cell.json", "cells.json"
FORMAT, VERSION = "twofold-study", 2


class CellDigests(TypedDict):
    """Hold digests of what a cell is trained and extracted with, and of what it is judged by."""

    trained: str
    judged: str


class CellRecord(CellDigests):
    """Hold what a folder stores about a finished cell."""

    minutes: float
    images: int  # of the training set
    epochs: int
    steps: int
    window: float  # number of averaged weights
    compiled: NotRequired[bool]
    precision: NotRequired[str]
    sets: NotRequired[dict[str, int]]  # number of images by name and role


class FolderState(TypedDict):
    """Hold what a folder stores about its study."""

    name: str
    preset: str | None
    file: str
    method: EvaluationMethod


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
    rows: list[ResultRow] = []
    replicates: dict[Key, Array] = {}
    kept = []  # cells whose results are in the folder itself
    for name in finished(study, folder):
        if not (folder / "judged" / name / CELL).exists():
            kept.append(name)
            continue
        judged = Results.open(folder / "judged" / name)
        rows += judged.rows
        replicates |= judged.replicates
    if kept:
        small = Results.open(folder)
        own = [row for row in small.rows if row["run"] in kept]
        rows += own
        replicates |= _select_replicates(small, own)
    return Results.of(rows, replicates)


def _select_replicates(found: Results, rows: list[ResultRow]) -> dict[Key, Array]:
    """Select the replicates of some rows of results."""
    selected = {}
    for row in rows:
        key = key_of(row)
        if key in found.replicates:
            selected[key] = found.replicates[key]
    return selected


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
    new = read_records(study, folder)
    if not new:
        raise InvalidInput(f"no cell of {study.name} is finished in {folder}; there is nothing to keep")
    claim(study, target)
    for name, record in new.items():
        record["sets"] = count_images(record, folder / "runs" / name)
    records = new
    rows, replicates = _shown_results(study, results(study, folder), set(new))
    if _kept_records(target):
        old = read_records(study, target)
        records = old | new
        old_rows, old_replicates = _shown_results(study, results(study, target), set(old) - set(new))
        rows += old_rows
        replicates |= old_replicates
    order = {cell.name: place for place, cell in enumerate(study.cells())}
    rows.sort(key=lambda row: order[row["run"]])
    Results.of(rows, replicates).save(target)
    kept = {}
    for name in order:
        if name in records:
            kept[name] = records[name]
    write_json(target / CELLS, kept)
    return tuple(kept)


def _shown_results(study: Study, found: Results, cells: set[str]) -> tuple[list[ResultRow], dict[Key, Array]]:
    """Select the rows of some cells that tables show or choose by, and their replicates."""
    shown: set[TableColumn] = set()
    for table in study.tables:
        shown.update(table.columns)
    own: list[ResultRow] = []
    rows: list[ResultRow] = []
    for row in found.rows:
        place = row["metric"], row["shift"], row["protocol"]
        columns = {TableColumn(*place), TableColumn(*place, method(row))}
        if row["run"] in cells and (row["shift"] == VALIDATION or columns & shown):
            own.append(row)
            rows.append({**row, "command": command(study)})  # without the folders of a machine
    return rows, _select_replicates(found, own)


def count_images(record: Mapping[str, Any], run: Path) -> dict[str, int]:
    """Count the images of each data set that a cell saw.

    Parameters
    ----------
    record : mapping
        What is stored about the cell.
    run : Path
        Folder of its outputs, read where the counts are not stored.

    Returns
    -------
    dict of str to int
        Number of images by name and role; empty where neither source has them.
    """
    if "sets" in record:
        return dict(record["sets"])
    if not run.is_dir():
        return {}
    outputs = Run.open(run)
    return {f"{name} ({role})": len(outputs[name]) for name, role in outputs.roles.items()}


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
    return tuple(read_records(study, Path(out)))


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
    state = _read_state(Path(out))
    if state is None:
        raise InvalidInput(f"{out} holds no study: there is no {STATE} in it")
    study = loads(state["file"], where=f"{out}/{STATE}", preset=state["preset"])
    return replace(study, method=state["method"])


def _read_state(folder: Path) -> FolderState | None:
    """Read which study a folder belongs to: its name, preset and file; None where it belongs to none."""
    content = read_json(folder / STATE)
    if content is None:
        return None
    if isinstance(content, dict) and {"name", "preset", "file"} <= content.keys():
        name, preset, file = content["name"], content["preset"], content["file"]
        way: EvaluationMethod = "published" if content.get("method") == "published" else "exact"
        if isinstance(name, str) and isinstance(file, str) and (preset is None or isinstance(preset, str)):
            return {"name": name, "preset": preset, "file": file, "method": way}
    raise RunError(f"{folder / STATE} was not written by a study; delete it, and the same command makes it again")


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
        If the folder belongs to another study or preset, has a cell that was trained with other settings, or cannot be
        written to. What is in it stays as it is.
    """
    state = _read_state(folder)
    if state is not None and (state["name"], state["preset"]) != (study.name, study.preset):
        owner = state["name"]
        if state["preset"] is not None:
            owner += f" with preset {state['preset']}"
        raise RunError(f"{folder} holds the study {owner}; choose another folder")
    read_records(study, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        owned: dict[str, object] = {"name": study.name, "preset": study.preset, "file": study.text}
        if study.method != "exact":
            owned["method"] = study.method
        write_json(folder / STATE, owned)
    except OSError as error:
        raise RunError(f"{folder} cannot be written to ({error.strerror}); choose another folder") from error


def cell_digests(study: Study, cell: StudyCell) -> CellDigests:
    """Compute digests of what a cell is trained and extracted by, and of what it is judged by.

    Parameters
    ----------
    study : Study
        The study.
    cell : StudyCell
        The cell.

    Returns
    -------
    dict of str to str
        Digests ``trained`` and ``judged``.
    """
    row = asdict(cell.row)
    for key in ("name", "family", "scores", "pairs"):
        del row[key]
    for key in ("layers", "new_head"):  # cells that were kept before rows had these have none
        if not row[key]:
            del row[key]
    trained_by = [study.model, study.normalise, study.base, dict(study.settings), row, cell.train.data, cell.seed]
    if study.precision != "float32":  # cells that were kept before studies had a precision are in float32
        trained_by.append(study.precision)
    benchmark = cell.benchmark
    sets = [(one.name, one.role, one.data) for one in benchmark.sets]
    judged_by = [sets, cell.scores, cell.pairs, benchmark.protocols, benchmark.metrics, study.resamples]
    if study.method != "exact":
        judged_by.append(study.method)
    return {"trained": digest(*trained_by), "judged": digest(*judged_by)}


def read_records(study: Study, out: Path) -> dict[str, CellRecord]:
    """Read what is stored about each finished cell of a study.

    Parameters
    ----------
    study : Study
        The study.
    out : Path
        Its folder.

    Returns
    -------
    dict of str to CellRecord
        Record by name of the cell, in the order of the cells.

    Raises
    ------
    RunError
        If a cell was trained with other settings, or a file is damaged.
    """
    records = {}
    for cell in study.cells():
        record = read_record(study, cell, out)
        if record is not None:
            records[cell.name] = record
    return records


def read_record(study: Study, cell: StudyCell, out: Path) -> CellRecord | None:
    """Read what is stored about a finished cell.

    Parameters
    ----------
    study : Study
        The study.
    cell : StudyCell
        The cell.
    out : Path
        Folder of the study.

    Returns
    -------
    CellRecord or None
        None where the cell is not finished, or has to be judged again.

    Raises
    ------
    RunError
        If the cell was trained with other settings, or the file is damaged.
    """
    record = read_json(out / "judged" / cell.name / CELL) or _kept_records(out).get(cell.name)
    if record is None:
        return None
    if not isinstance(record, dict) or not {"trained", "judged"} <= record.keys():
        raise RunError(
            f"the record of {cell.name} in {out} was not written by a study; delete its file {CELL} or {CELLS}"
        )
    now = cell_digests(study, cell)
    if record["trained"] != now["trained"]:
        raise RunError(
            f"{cell.name} in {out} was trained with other settings than the study has now; choose another folder, or "
            f"delete {cell.name} in its folders training, runs and judged"
        )
    if record["judged"] != now["judged"]:
        return None
    return cast(CellRecord, record)


def _kept_records(out: Path) -> Mapping[str, object]:
    """Read the records of all cells that :func:`keep` wrote into a folder."""
    records = read_json(out / CELLS)
    if not records:
        return {}
    if not isinstance(records, dict):
        raise RunError(f"{out / CELLS} was not written by a study; delete it, and the same command makes it again")
    return records


def write_json(path: Path, value: object) -> None:
    """Write a JSON file with its digest, whole or not at all.

    Parameters
    ----------
    path : Path
        The file.
    value : object
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
