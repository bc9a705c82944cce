"""Train, extract and judge the cells of a study: one after the other, resumable at any point."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from twofold import _checks
from twofold.bench import runner
from twofold.bench.catalogue import Benchmark, DataSet
from twofold.errors import InvalidInput
from twofold.run import Run
from twofold.study.folder import CELL, claim, counts, marks, pairs_of, read_json, told_of, write_json
from twofold.study.page import REPORT, publish
from twofold.study.spec import Cell, Study, placed, torch_module

Done = Callable[[str, int, int], Any]  # what is at work, how much of it is done, of how much

CLOCK, SETS = "clock.json", "sets.json"
FORWARD = 2.0  # a pass of training costs about twice one of extraction
PROBE = 32  # images read to see how long a data set takes


@dataclass(frozen=True)
class Progress:
    """Report what a call of :func:`run` did, and what remains of what it was asked.

    Parameters
    ----------
    finished : tuple of str
        Cells that were finished by the call.
    left : tuple of str
        Cells that remain.
    minutes : float
        Duration of the call.
    """

    finished: tuple[str, ...]
    left: tuple[str, ...]
    minutes: float


def run(
    study: Study,
    out: str | Path,
    *,
    only: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    limit_minutes: float | None = None,
    root: str | Path | None = None,
    device: str = "cpu",
    compiled: bool = False,
    jobs: int = 1,
    done: Done = lambda label, count, total: None,
    expected: Callable[[Estimate], Any] | None = None,
) -> Progress:
    """Train, extract and judge the cells of a study that are not finished, one after the other.

    Results and the report page are written after every cell. An interrupted call resumes when it is repeated: training
    at its last epoch, extraction at its last block of rows, judging at its last value.

    Parameters
    ----------
    study : Study
        The study.
    out : str or Path
        Its folder.
    only : sequence of str, optional
        Names of rows or families; what they start from is included. By default all rows.
    seeds : sequence of int, optional
        Seeds to include; by default all.
    limit_minutes : float, optional
        Start no cell that, by the estimate, would end later than this.
    root : str or Path, optional
        The folder of data; by default that of the environment variable ``TWOFOLD_DATA``.
    device : str, default="cpu"
        Where to train and extract.
    compiled : bool, default=False
        Whether PyTorch compiles the passes of training, which the estimate does not account for.
    jobs : int, default=1
        Number of processes that judge.
    done : callable, optional
        Called with label, count and total as work proceeds.
    expected : callable, optional
        Called with the :class:`Estimate` of the remaining work before it starts.

    Returns
    -------
    Progress
        Cells finished and remaining.

    Raises
    ------
    InvalidInput
        If data are missing, ``limit_minutes`` is not positive or too short for the first cell, or a seed is unknown.
    UnknownName
        If there is no such row.
    RunError
        If the folder holds another study, a cell was trained with other settings, or the folder cannot be written to.
    MissingExtra
        If torch is not installed.
    """
    folder = Path(out)
    if limit_minutes is not None:
        _checks.number(limit_minutes, "limit_minutes", 0.0, math.inf, open_low=True, open_high=True)
    cells = study.cells(only, seeds)
    claim(study, folder)
    left = [cell for cell in cells if told_of(study, cell, folder) is None]
    if left:
        _check_data(left, root)
        if expected is not None:
            expected(estimate(study, folder, root=root, device=device, cells=left))
    begin = time.monotonic()
    made: list[str] = []
    for place, cell in enumerate(left):
        if limit_minutes is not None:
            spent = (time.monotonic() - begin) / 60
            needed = estimate(study, folder, root=root, device=device, cells=[cell]).minutes[cell.name]
            if spent + needed > limit_minutes:
                if not made:
                    raise InvalidInput(
                        f"the next cell, {cell.name}, needs about {needed:.1f} minutes, more than the "
                        f"{limit_minutes:g} that are given; give more"
                    )
                left = left[place:]
                break
        _make(study, cell, folder, root, device, compiled, jobs, done)
        made.append(cell.name)
        publish(study, folder)
    else:
        left = []
    if not made and not (folder / REPORT).exists():
        publish(study, folder)
    return Progress(tuple(made), tuple(cell.name for cell in left), (time.monotonic() - begin) / 60)


@dataclass(frozen=True)
class Estimate:
    """Hold the minutes of each cell, measured or estimated from a few steps, and the cells that are finished.

    Parameters
    ----------
    minutes : mapping of str to float
        Minutes by cell.
    finished : tuple of str
        Cells that are finished.

    Examples
    --------
    >>> Estimate({"plain-s0": 30.0, "plain-s1": 30.0}, ("plain-s0",)).hours_left
    0.5
    """

    minutes: Mapping[str, float]
    finished: tuple[str, ...]

    @property
    def hours(self) -> float:
        """Hours of all cells."""
        return sum(self.minutes.values()) / 60

    @property
    def hours_left(self) -> float:
        """Hours of the cells that are not finished."""
        return sum(m for name, m in self.minutes.items() if name not in self.finished) / 60


def estimate(
    study: Study,
    out: str | Path,
    *,
    root: str | Path | None = None,
    device: str = "cpu",
    cells: Sequence[Cell] | None = None,
) -> Estimate:
    """Estimate the minutes of cells.

    A cell takes as long as a finished cell of its row; otherwise a few training steps are run and a few images are
    read.

    Parameters
    ----------
    study : Study
        The study.
    out : str or Path
        Its folder.
    root : str or Path, optional
        The folder of data; by default that of the environment variable ``TWOFOLD_DATA``.
    device : str, default="cpu"
        Where to train and extract.
    cells : sequence of Cell, optional
        The cells; by default all of the study.

    Returns
    -------
    Estimate
        Minutes by cell.

    Notes
    -----
    Until a cell of the row is finished, judging is not counted.
    """
    chosen = study.cells() if cells is None else cells
    told = {cell.name: found for cell in study.cells() if (found := told_of(study, cell, Path(out))) is not None}
    seen = {(cell.row.name, cell.benchmark.name): told[cell.name] for cell in study.cells() if cell.name in told}
    guessed: dict[tuple[str, str], float] = {}
    reading: dict[str, float] = {}
    minutes = {}
    for cell in chosen:
        place = cell.row.name, cell.benchmark.name
        if cell.name in told or place in seen:
            minutes[cell.name] = float(told.get(cell.name, seen.get(place, {}))["minutes"])
            continue
        if place not in guessed:
            guessed[place] = _guess(study, cell, Path(out), reading, root, device)
        minutes[cell.name] = guessed[place]
    return Estimate(minutes, tuple(name for name in minutes if name in told))


def _guess(
    study: Study, cell: Cell, out: Path, reading: dict[str, float], root: str | Path | None, device: str
) -> float:
    """Estimate minutes of training and extraction from a few steps."""
    plan = study.plan(cell, out, root=root, device=device)
    told = replace(plan, checkpoint=None).describe(2)
    step = told["seconds_per_step"]
    forward = step / max(1, told["passes_per_step"]) / plan.settings.batch / FORWARD
    seconds = plan.steps * step
    for one in cell.benchmark.sets:
        images = torch_module("data").open(one.spec(root))
        if one.data not in reading:
            reading[one.data] = min(_reading(images), _reading(images))  # the first look may compile
        passes = 1 if one.role == "train" else 1 + max(cell.row.passes, plan.members - 1)
        passes += 4 if cell.row.odin is not None else 0  # forward, backward, forward
        seconds += len(images) * (reading[one.data] + passes * forward)
    return seconds / 60


def _reading(images: Any) -> float:
    """Measure the seconds that an image takes to read, on a few of them."""
    some = np.linspace(0, len(images) - 1, min(PROBE, len(images))).astype(int)
    begin = time.perf_counter()
    images.read(some)
    return (time.perf_counter() - begin) / len(some)


def _check_data(cells: Sequence[Cell], root: str | Path | None) -> None:
    """Raise one error that names all that is missing, before hours are spent."""
    sets = {one.data: one for cell in cells for one in cell.benchmark.sets}
    for cell in cells:
        if cell.row.outliers is not None:
            given = cell.row.outliers
            sets.setdefault(given, DataSet("outliers", "ood_val", given, get=f"what {cell.row.name} names"))
    every = Benchmark("study", "study", "study", 2, (), tuple(sets.values()))
    lost = [str(one) for one in every.status(root, torch_module("data").open) if not one.present]
    weights = {placed(cell.row.weights, root): cell.row.name for cell in cells if cell.row.weights is not None}
    lost += [
        f"{file}, weights that {row} starts from: no such file"
        for file, row in weights.items()
        if not Path(str(file)).is_file()
    ]
    if lost:
        raise InvalidInput(f"{len(lost)} data sets cannot be opened:\n" + "\n".join(f"- {one}" for one in lost))


class _Clock:
    """Count the seconds spent on a cell over all attempts, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = float((read_json(path) or {}).get("seconds", 0.0))
        self.begin = time.monotonic()

    def tick(self) -> float:
        """Write and return the seconds so far."""
        seconds = self.before + time.monotonic() - self.begin
        write_json(self.path, {"seconds": seconds})
        return seconds


def _make(
    study: Study,
    cell: Cell,
    out: Path,
    root: str | Path | None,
    device: str,
    compiled: bool,
    jobs: int,
    done: Done,
) -> None:
    """Train, extract and judge one cell."""
    plan, trained, clock = _train(study, cell, out, root, device, compiled, done)
    _extract(study, cell, out, plan, [one.model for one in trained], root, clock, done)
    judged, run = out / "judged" / cell.name, out / "runs" / cell.name
    runner.run(
        cell.benchmark,
        [run],
        judged,
        scores=cell.row.scores or None,
        pairs=pairs_of(cell),
        resamples=study.resamples,
        best=len(pairs_of(cell)),
        jobs=jobs,
        done=done,
    )
    told = {
        **marks(study, cell),
        "minutes": clock.tick() / 60,
        "images": len(plan.data),
        "epochs": plan.settings.epochs if plan.steps else 0,
        "steps": plan.steps,
        "compiled": plan.compiled,
        "precision": plan.precision,
        "window": float(np.mean([one.window for one in trained])),
        "sets": counts({}, run),
    }
    write_json(judged / CELL, told)


def _train(
    study: Study, cell: Cell, out: Path, root: str | Path | None, device: str, compiled: bool, done: Done
) -> tuple[Any, Sequence[Any], _Clock]:
    """Train the networks of a cell; what it starts from is trained first where its weights are missing."""
    if cell.start is not None and not (out / "training" / cell.start / torch_module("training").WEIGHTS).exists():
        start = next(one for one in study.cells(seeds=[cell.seed]) if one.name == cell.start)
        _train(study, start, out, root, device, compiled, done)
    place = out / "training" / cell.name
    place.mkdir(parents=True, exist_ok=True)
    clock = _Clock(place / CLOCK)
    plan = replace(study.plan(cell, out, root=root, device=device), compiled=compiled)
    count = 0

    def step(values: Mapping[str, float]) -> None:
        nonlocal count
        if "step" in values:
            count += 1
            done(f"{cell.name}: training", count, plan.steps)
        else:
            clock.tick()

    return plan, plan.run(place, step), clock


def _extract(
    study: Study,
    cell: Cell,
    out: Path,
    plan: Any,
    models: Sequence[Any],
    root: str | Path | None,
    clock: _Clock,
    done: Done,
) -> None:
    """Extract the outputs of a cell's networks on every data set; the training set needs no passes and one member."""
    extraction, perturb, data = torch_module("extraction"), torch_module("perturb"), torch_module("data")
    where = out / "runs" / cell.name
    known = read_json(clock.path.with_name(SETS)) or {}
    learned = {} if cell.row.odin is None else {"odin": perturb.Odin(**cell.row.odin, std=plan.prepare.std)}
    told = {"model": study.model, "recipe": cell.row.name, "study": study.name, "trained": cell.row.text}
    for one in cell.benchmark.sets:
        again = known.get(one.name, one.data) != one.data
        if not again and (where / "run.json").exists() and one.name in Run.open(where):
            continue
        known[one.name] = one.data
        write_json(clock.path.with_name(SETS), known)
        images = data.open(one.spec(root))
        rows = 0

        def some(more: int, label: str = one.name, total: int = len(images)) -> None:
            nonlocal rows
            rows += more
            done(f"{cell.name}: {label}", rows, total)

        train = one.role == "train"
        extraction.extract(
            models[0] if train or len(models) == 1 else models,
            images,
            where,
            name=one.name,
            role=one.role,
            prepare=plan.prepare,
            device=plan.device,
            passes=0 if train else cell.row.passes,
            learned=learned,
            seed=cell.seed,
            replace=again,
            done=some,
            **told,
        )
        clock.tick()
