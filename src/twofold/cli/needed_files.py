"""The files that the data sets of a benchmark need: what ``bench show`` lists and ``data check`` verifies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from twofold.cli.shared import CHECK_FAILED, progress
from twofold.errors import InvalidInput

if TYPE_CHECKING:
    from twofold.bench.catalogue import Benchmark, DataSet, Status
    from twofold.nn.data import ExpectedFile, FileStatus, Images, Texts


@dataclass(frozen=True)
class NeededFile:
    """Hold a file or folder, and the names of the data sets that need it.

    Parameters
    ----------
    file : ExpectedFile
        The file.
    sets : tuple of str
        Names of data sets.
    """

    file: ExpectedFile
    sets: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return plain values for JSON.

        Returns
        -------
        dict
            Values by name.
        """
        return {
            "path": str(self.file.path),
            "kind": "folder" if self.file.is_folder else "file",
            "present": self.file.present,
            "expected": self.file.count or None,
            "unit": self.file.unit,
            "published_md5": self.file.md5 or None,
            "note": self.file.note,
            "sets": list(self.sets),
        }


def list_needed_files(benchmark: Benchmark, root: Path | None) -> list[NeededFile]:
    """List each file and folder that the data sets of a benchmark need, once.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark.
    root : Path or None
        The folder of data; None means that of the environment variable ``TWOFOLD_DATA``.

    Returns
    -------
    list of NeededFile
        In the order of the data sets.
    """
    from twofold.nn.data import expected_files

    needed: dict[Path, NeededFile] = {}
    for one in benchmark.sets:
        for file in expected_files(_name_data(one, root), one.rows):
            known = needed.get(file.path)
            if known is None:
                needed[file.path] = NeededFile(file, (one.name,))
            else:
                better = file if file.count and not known.file.count else known.file  # a part of a file has no count
                needed[file.path] = NeededFile(better, (*known.sets, one.name))
    return list(needed.values())


def _name_data(one: DataSet, root: Path | None) -> str:
    """Return what to open, also where no folder of data is named."""
    try:
        return one.spec(root)
    except InvalidInput:
        return one.data.replace("{data}", "$TWOFOLD_DATA")


def print_needed_files(needed: Sequence[NeededFile]) -> None:
    """Print the files of a benchmark, each with whether it is there.

    Parameters
    ----------
    needed : sequence of NeededFile
        The files.
    """
    if not needed:
        return
    click.echo("\nfiles:")
    for one in needed:
        word = "here   " if one.file.present else "missing"
        click.echo(f"  {word}  {one.file}")


def check_needed_files(name: str, root: Path | None, *, as_json: bool) -> None:
    """Verify the files of a benchmark and the number of rows of its data sets, and print what is wrong.

    Parameters
    ----------
    name : str
        A benchmark of the catalogue, or a TOML file.
    root : Path or None
        The folder of data; None means that of the environment variable ``TWOFOLD_DATA``.
    as_json : bool
        Whether to print JSON.

    Raises
    ------
    InvalidInput
        If no folder of data is named.
    click.exceptions.Exit
        With the code of a failed check, if something is wrong.
    """
    from twofold.bench.catalogue import load
    from twofold.nn.data import check_file, open_any

    benchmark = load(name)
    benchmark.specs(root)  # raises if no folder of data is named
    needed = list_needed_files(benchmark, root)
    with progress() as bar:
        task = bar.add_task("checking", total=len(needed) + len(benchmark.sets))
        found = []
        for one in needed:
            found.append(check_file(one.file))
            bar.advance(task)

        def opened(spec: str) -> Images | Texts:
            bar.advance(task)
            return open_any(spec)

        broken = _sets_with_problems(needed, found)
        whole_sets = tuple(one for one in benchmark.sets if one.name not in broken)
        sets = replace(benchmark, sets=whole_sets).status(root, opened)
    problems = _list_problems(needed, found, sets)
    if as_json:
        click.echo(json.dumps(_as_json(benchmark.name, needed, found, sets, problems), indent=2))
    else:
        for line in problems:
            click.echo(line)
        click.echo(_summarise(benchmark, found, sets))
    if problems:
        raise click.exceptions.Exit(CHECK_FAILED)


def _sets_with_problems(needed: Sequence[NeededFile], found: Sequence[FileStatus]) -> set[str]:
    """Name the data sets that need a file with a problem."""
    names: set[str] = set()
    for one, status in zip(needed, found, strict=True):
        if status.problem:
            names.update(one.sets)
    return names


def _list_problems(needed: Sequence[NeededFile], found: Sequence[FileStatus], sets: Sequence[Status]) -> list[str]:
    """List problems of files, and of data sets whose files have none."""
    problems = []
    for one, status in zip(needed, found, strict=True):
        if status.problem:
            problems.append(f"{status.problem} (needed by {', '.join(one.sets)})")
    problems += filter(None, map(_find_set_problem, sets))
    return problems


def _find_set_problem(status: Status) -> str:
    if status.rows is None:
        return f"{status.set.name}: cannot be opened: {status.reason}"
    if status.published is False:
        return f"{status.set.name}: {status.rows:,} rows, published {status.set.rows:,}"
    return ""


def _summarise(benchmark: Benchmark, found: Sequence[FileStatus], sets: Sequence[Status]) -> str:
    """Say in one line how much is here and how much was compared."""
    here = sum(status.file.present for status in found)
    counted = sum(status.count is not None for status in found)
    hashed = sum(bool(status.file.md5) and status.file.present for status in found)
    good = sum(not _find_set_problem(status) for status in sets)
    return (
        f"{benchmark.name}: {here} of {len(found)} files and folders are here ({counted} counted, {hashed} with a "
        f"published MD5 sum); {good} of {len(benchmark.sets)} data sets are complete"
    )


def _as_json(
    name: str,
    needed: Sequence[NeededFile],
    found: Sequence[FileStatus],
    sets: Sequence[Status],
    problems: Sequence[str],
) -> dict[str, object]:
    files = []
    for one, status in zip(needed, found, strict=True):
        measured = {"count": status.count, "md5": status.md5 or None, "problem": status.problem}
        files.append({**one.as_dict(), **measured})
    opened = []
    for one_set in sets:
        facts = {"name": one_set.set.name, "rows": one_set.rows, "published_rows": one_set.set.rows or None}
        opened.append({**facts, "problem": _find_set_problem(one_set)})
    return {"benchmark": name, "files": files, "sets": opened, "problems": list(problems)}
