"""Train, extract and judge the cells of a study: one after the other, resumable at any point."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twofold import _checks
from twofold.bench import runner
from twofold.bench.catalogue import Benchmark, DataSet
from twofold.errors import InvalidInput
from twofold.run import Run
from twofold.study.folder import (
    CELL,
    CellRecord,
    cell_digests,
    claim,
    count_images,
    read_json,
    read_record,
    read_records,
    write_json,
)
from twofold.study.page import REPORT, publish
from twofold.study.spec import Study, StudyCell, insert_root, torch_module

if TYPE_CHECKING:
    from twofold.nn.data.images import Images
    from twofold.nn.training import Plan, Trained

ProgressCallback = Callable[[str, int, int], object]  # what is at work, how much of it is done, of how much

CLOCK, SETS = "clock.json", "sets.json"
FORWARD = 2.0  # a pass of training costs about twice one of extraction
PROBE = 32  # images read to see how long a data set takes


@dataclass(frozen=True)
class StudyProgress:
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
    done: ProgressCallback = lambda label, count, total: None,
    expected: Callable[[Estimate], object] | None = None,
) -> StudyProgress:
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
    StudyProgress
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
    waiting = [cell for cell in cells if read_record(study, cell, folder) is None]
    if waiting:
        _check_data(waiting, root)
        if expected is not None:
            expected(estimate(study, folder, root=root, device=device, cells=waiting))
    setup = _Setup(folder, root, device, compiled, jobs, done)
    begin = time.monotonic()
    made: list[str] = []
    for cell in waiting:
        if limit_minutes is not None:
            spent = (time.monotonic() - begin) / 60
            needed = estimate(study, folder, root=root, device=device, cells=[cell]).minutes[cell.name]
            if spent + needed > limit_minutes:
                if not made:
                    raise InvalidInput(
                        f"the next cell, {cell.name}, needs about {needed:.1f} minutes, more than the limit of "
                        f"{limit_minutes:g}; raise the limit"
                    )
                break
        _finish_cell(study, cell, setup)
        made.append(cell.name)
        publish(study, folder)
    if not made and not (folder / REPORT).exists():
        publish(study, folder)
    left = tuple(cell.name for cell in waiting if cell.name not in made)
    return StudyProgress(tuple(made), left, (time.monotonic() - begin) / 60)


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
        """Hours of all cells, finished or not.

        Examples
        --------
        >>> Estimate({"plain-s0": 30.0, "plain-s1": 30.0}, ("plain-s0",)).hours
        1.0
        """
        return sum(self.minutes.values()) / 60

    @property
    def hours_left(self) -> float:
        """Hours of the cells that are not finished."""
        return sum(minutes for name, minutes in self.minutes.items() if name not in self.finished) / 60


def estimate(
    study: Study,
    out: str | Path,
    *,
    root: str | Path | None = None,
    device: str = "cpu",
    cells: Sequence[StudyCell] | None = None,
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
    cells : sequence of StudyCell, optional
        The cells; by default all of the study.

    Returns
    -------
    Estimate
        Minutes by cell.

    Notes
    -----
    Until a cell of the row is finished, judging is not counted.
    """
    folder = Path(out)
    records = read_records(study, folder)
    known = {}  # minutes of a row on a benchmark
    for cell in study.cells():
        if cell.name in records:
            known[cell.row.name, cell.benchmark.name] = float(records[cell.name]["minutes"])
    reading_times: dict[str, float] = {}
    minutes = {}
    for cell in study.cells() if cells is None else cells:
        if cell.name in records:
            minutes[cell.name] = float(records[cell.name]["minutes"])
            continue
        place = cell.row.name, cell.benchmark.name
        if place not in known:
            known[place] = _measure_minutes(study, cell, folder, reading_times, root, device)
        minutes[cell.name] = known[place]
    return Estimate(minutes, tuple(name for name in minutes if name in records))


def _measure_minutes(
    study: Study, cell: StudyCell, out: Path, reading_times: dict[str, float], root: str | Path | None, device: str
) -> float:
    """Estimate minutes of training and extraction from a few steps; ``reading_times`` remembers data sets."""
    plan = study.plan(cell, out, root=root, device=device)
    measured = replace(plan, checkpoint=None, new_head=False).describe(2)
    step = measured["seconds_per_step"]
    forward = step / max(1, measured["passes_per_step"]) / plan.settings.batch / FORWARD
    seconds = plan.steps * step
    for one in cell.benchmark.sets:
        images = torch_module("data").open(one.spec(root))
        if one.data not in reading_times:  # twice, because the first look may compile
            reading_times[one.data] = min(_measure_reading(images), _measure_reading(images))
        passes = 1
        if one.role != "train":
            passes += max(cell.row.passes, plan.members - 1)
        if cell.row.odin is not None:
            passes += 4  # forward, backward, forward
        seconds += len(images) * (reading_times[one.data] + passes * forward)
    return seconds / 60


def _measure_reading(images: Images) -> float:
    """Measure the seconds that an image takes to read, on a few of them."""
    some = np.linspace(0, len(images) - 1, min(PROBE, len(images))).astype(int)
    begin = time.perf_counter()
    images.read(some)
    return (time.perf_counter() - begin) / len(some)


def _check_data(cells: Iterable[StudyCell], root: str | Path | None) -> None:
    """Raise one error that names all that is missing, before hours are spent."""
    sets: dict[str, DataSet] = {}
    mixers: dict[str, str] = {}
    weights: dict[str, str] = {}
    for cell in cells:
        row = cell.row
        for one in cell.benchmark.sets:
            sets[one.data] = one
        if row.outliers is not None and row.outliers not in sets:
            sets[row.outliers] = DataSet("outliers", "ood_val", row.outliers, get=f"what {row.name} names")
        if row.mixers is not None:
            mixers[str(insert_root(row.mixers, root))] = row.name
        if row.weights is not None:
            weights[str(insert_root(row.weights, root))] = row.name
    every = Benchmark("study", "study", "study", 2, (), tuple(sets.values()))
    problems = []
    for status in every.status(root, torch_module("data").open):
        if not status.present:
            problems.append(str(status))
    list_image_files = torch_module("data.image_files").list_image_files
    for folder, row_name in mixers.items():
        if not Path(folder).is_dir():
            problems.append(f"{folder}, pictures that {row_name} mixes in: no such folder")
        elif not list_image_files(Path(folder)):
            problems.append(f"{folder}, pictures that {row_name} mixes in: it holds no image files")
    for file, row_name in weights.items():
        if not Path(file).is_file():
            problems.append(f"{file}, weights that {row_name} starts from: no such file")
    if problems:
        inputs = "input" if len(problems) == 1 else "inputs"
        raise InvalidInput("\n- ".join([f"{len(problems)} {inputs} of the study cannot be opened:", *problems]))


@dataclass(frozen=True)
class _Clock:
    """Count the seconds spent on a cell over all attempts, in a file."""

    path: Path
    earlier: float  # seconds of earlier attempts
    begin: float

    @classmethod
    def start(cls, path: Path) -> _Clock:
        """Start the clock of this attempt; the file, if there is one, knows the earlier ones."""
        stored = read_json(path) or {}
        return cls(path, float(stored.get("seconds", 0.0)), time.monotonic())

    def tick(self) -> float:
        """Write and return the seconds so far."""
        seconds = self.earlier + time.monotonic() - self.begin
        write_json(self.path, {"seconds": seconds})
        return seconds


@dataclass(frozen=True)
class _Setup:
    """Hold where cells are made, with which data and on which device."""

    out: Path
    root: str | Path | None
    device: str
    compiled: bool
    jobs: int
    done: ProgressCallback


@dataclass(frozen=True)
class _Training:
    """Hold a finished plan: one trained network for each member."""

    plan: Plan
    members: Sequence[Trained]
    clock: _Clock


def _finish_cell(study: Study, cell: StudyCell, setup: _Setup) -> None:
    """Train, extract and judge one cell."""
    training = _train(study, cell, setup)
    _extract(study, cell, training, setup)
    judged = setup.out / "judged" / cell.name
    outputs = setup.out / "runs" / cell.name
    runner.run(
        cell.benchmark,
        [outputs],
        judged,
        scores=cell.row.scores or None,
        pairs=cell.pairs,
        resamples=study.resamples,
        best=len(cell.pairs),
        method=study.method,
        jobs=setup.jobs,
        done=setup.done,
    )
    plan = training.plan
    record: CellRecord = {
        **cell_digests(study, cell),
        "minutes": training.clock.tick() / 60,
        "images": len(plan.data),
        "epochs": plan.settings.epochs if plan.steps else 0,
        "steps": plan.steps,
        "compiled": plan.compiled,
        "precision": plan.precision,
        "window": float(np.mean([member.window for member in training.members])),
        "sets": count_images({}, outputs),
    }
    write_json(judged / CELL, record)


def _train(study: Study, cell: StudyCell, setup: _Setup) -> _Training:
    """Train the networks of a cell; what it starts from is trained first where its weights are missing."""
    weights_name = torch_module("training").WEIGHTS
    if cell.start is not None and not (setup.out / "training" / cell.start / weights_name).exists():
        for start in study.cells(seeds=[cell.seed]):
            if start.name == cell.start:
                _train(study, start, setup)
    folder = setup.out / "training" / cell.name
    folder.mkdir(parents=True, exist_ok=True)
    clock = _Clock.start(folder / CLOCK)
    plan = study.plan(cell, setup.out, root=setup.root, device=setup.device)
    plan = replace(plan, compiled=setup.compiled)
    steps = 0

    def report_step(values: Mapping[str, float]) -> None:
        nonlocal steps
        if "step" in values:
            steps += 1
            setup.done(f"{cell.name}: training", steps, plan.steps)
        else:
            clock.tick()

    return _Training(plan, plan.run(folder, report_step), clock)


def _extract(study: Study, cell: StudyCell, training: _Training, setup: _Setup) -> None:
    """Extract the outputs of a cell's networks on every data set that is not extracted yet."""
    folder = setup.out / "runs" / cell.name
    sets_file = training.clock.path.with_name(SETS)
    extracted = read_json(sets_file) or {}
    for one in cell.benchmark.sets:
        changed = extracted.get(one.name, one.data) != one.data
        if not changed and (folder / "run.json").exists() and one.name in Run.open(folder):
            continue
        extracted[one.name] = one.data
        write_json(sets_file, extracted)
        _extract_set(study, cell, one, training, setup, replace_old=changed)
        training.clock.tick()


def _extract_set(
    study: Study, cell: StudyCell, one: DataSet, training: _Training, setup: _Setup, *, replace_old: bool
) -> None:
    """Extract the outputs on one data set; the training set needs no passes and one member."""
    plan = training.plan
    images = torch_module("data").open(one.spec(setup.root))
    models = [member.model for member in training.members]
    passes = cell.row.passes
    if one.role == "train":
        models = models[:1]
        passes = 0
    learned = {}
    if cell.row.odin is not None:
        learned["odin"] = torch_module("perturb").Odin(**cell.row.odin, std=plan.prepare.std)
    rows = 0

    def report_rows(more: int) -> None:
        nonlocal rows
        rows += more
        setup.done(f"{cell.name}: {one.name}", rows, len(images))

    torch_module("extraction").extract(
        models[0] if len(models) == 1 else models,
        images,
        setup.out / "runs" / cell.name,
        name=one.name,
        role=one.role,
        prepare=plan.prepare,
        device=plan.device,
        passes=passes,
        layers=cell.row.layers,
        learned=learned,
        seed=cell.seed,
        replace=replace_old,
        done=report_rows,
        model=study.model,
        recipe=cell.row.name,
        study=study.name,
        trained=cell.row.text,
    )
