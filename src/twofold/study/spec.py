"""Define what a study is: rows, cells, table layouts, and the training plan of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from twofold.bench.catalogue import Benchmark, DataSet
from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.metrics.evaluate import EvaluationMethod

if TYPE_CHECKING:
    from twofold.nn.training import Plan

ROW_KEYS = (
    *("name", "recipe", "checkpoint", "new_head", "outliers", "mixers", "dropout", "passes", "odin", "layers"),
    *("scores", "pairs"),
)
WEIGHTS = (".safetensors", ".npz", ".pt", ".pth")  # endings of a checkpoint that is a file


@dataclass(frozen=True)
class StudyRow:
    """Describe one row of a study.

    Parameters
    ----------
    name : str
        Name of the row.
    family : str
        Name that the file uses, the same for all values of a list.
    recipe : str
        The training recipe.
    checkpoint : str, optional
        What it starts from: another row, whose weights of the same seed are used, or a file of weights.
    new_head : bool, default=False
        Whether the head of the checkpoint is left out, for another kind of head.
    outliers : str, optional
        Data set of outliers, in the grammar of :mod:`twofold.nn.data`.
    mixers : str, optional
        Folder of pictures that PixMix mixes in; by default fractals are drawn.
    dropout : float, default=0.0
        Dropout rate.
    passes : int, default=0
        Number of stochastic passes of extraction; needs dropout.
    odin : mapping of str to float, optional
        Settings of ODIN in extraction.
    layers : bool, default=False
        Whether extraction records statistics of the layers, which scores such as gram need.
    scores : tuple of str, default=()
        Scores to judge by; empty means those of the benchmark.
    pairs : tuple of (str, str), default=()
        Pairs of scores to judge by; empty means those of the benchmark.
    settings : mapping, default={}
        Training settings that this row changes.

    Examples
    --------
    >>> row = StudyRow("tuned", "tuned", "aurc_finetune", checkpoint="basic", settings={"lr": 0.01})
    >>> row.start, row.text
    ('basic', 'aurc_finetune, lr 0.01')
    """

    name: str
    family: str
    recipe: str
    checkpoint: str | None = None
    new_head: bool = False
    outliers: str | None = None
    mixers: str | None = None
    dropout: float = 0.0
    passes: int = 0
    odin: Mapping[str, float] | None = None
    layers: bool = False
    scores: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def start(self) -> str | None:
        """The row that it starts from, or None where it starts from a file of weights or from nothing."""
        if self.weights is not None:
            return None
        return self.checkpoint

    @property
    def weights(self) -> str | None:
        """The file of weights that it starts from, or None.

        Examples
        --------
        >>> StudyRow("tuned", "tuned", "aurc_finetune", checkpoint="{data}/start.npz").weights
        '{data}/start.npz'
        """
        if self.checkpoint is None or not self.checkpoint.endswith(WEIGHTS):
            return None
        return self.checkpoint

    @property
    def text(self) -> str:
        """The recipe and what the row changes, as text."""
        parts = [self.recipe]
        if self.dropout:
            parts.append(f"dropout {self.dropout}")
        for key, value in self.settings.items():
            parts.append(f"{key} {value}")
        return ", ".join(parts)


@dataclass(frozen=True)
class StudyCell:
    """Describe a row of a study with a seed, on one benchmark.

    Parameters
    ----------
    name : str
        Name of the cell and of its folders.
    row : StudyRow
        The row.
    benchmark : Benchmark
        The benchmark.
    seed : int
        The seed.
    start : str or None
        The cell whose weights it starts from.
    """

    name: str
    row: StudyRow
    benchmark: Benchmark
    seed: int
    start: str | None

    @property
    def train(self) -> DataSet:
        """The training set of the benchmark."""
        return self.benchmark[self.benchmark.names("train")[0]]

    @property
    def val(self) -> DataSet:
        """The validation set of the benchmark."""
        return self.benchmark[self.benchmark.names("val")[0]]

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores that the cell is judged by: those of the row, or else of the benchmark."""
        return self.row.scores or self.benchmark.scores

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of scores that the cell is judged by: those of the row, or else of the benchmark."""
        return self.row.pairs or self.benchmark.pairs


@dataclass(frozen=True)
class TableColumn:
    """Describe a column of a table of the report.

    Parameters
    ----------
    metric, shift, protocol : str
        What is measured, on which data, under which protocol.
    method : str, optional
        The score or pair of the column; without it the table has a line for every score or pair.
    """

    metric: str
    shift: str
    protocol: str
    method: str | None = None

    @property
    def place(self) -> tuple[str, str, str]:
        """Metric, shift and protocol."""
        return self.metric, self.shift, self.protocol

    @property
    def heading(self) -> str:
        """The heading of the column.

        Examples
        --------
        >>> TableColumn("aurc", "near", "joint", "msp").heading
        'aurc near, msp'
        """
        heading = f"{self.metric} {self.shift}"
        if self.method is not None:
            heading += f", {self.method}"
        return heading


@dataclass(frozen=True)
class TableBaseline:
    """Describe the value that the first column of a table is compared with.

    Parameters
    ----------
    row : str
        Row of the study, by the name that the file uses.
    method : str
        Score or pair.
    """

    row: str
    method: str


@dataclass(frozen=True)
class StudyTable:
    """Describe a table of the report.

    Parameters
    ----------
    title : str
        Heading of the table.
    columns : tuple of TableColumn
        The columns.
    baseline : TableBaseline, optional
        One more column then shows how much better the first column is, in percent of the baseline.
    """

    title: str
    columns: tuple[TableColumn, ...]
    baseline: TableBaseline | None = None


@dataclass(frozen=True)
class Study:
    """Hold what a study file says.

    Parameters
    ----------
    name, title, source : str
        Name, heading and origin of the study.
    model : str
        The network.
    normalise : str
        Normalisation of the images.
    precision : {"float32", "bf16"}
        Precision of the passes of training.
    base : str
        Preset of the training settings.
    settings : mapping
        Training settings that differ from the preset.
    seeds : tuple of int
        Seeds of the cells.
    tuning_seeds : tuple of int
        Seeds whose validation values choose among the rows of a family.
    rows : tuple of StudyRow
        The rows.
    benchmarks : tuple of Benchmark
        Where the rows are trained and judged.
    tables : tuple of StudyTable
        Tables of the report.
    resamples : int
        Number of bootstrap resamples.
    preset : str or None
        The preset of the file that was applied.
    text : str
        The file itself.
    method : {"exact", "published"}, default="exact"
        Whether joint metrics are also measured as the released code of SURE+ does.

    Examples
    --------
    >>> from twofold.study import load
    >>> study = load("paradigms")
    >>> study.name, study.cells()[0].seed == study.seeds[0]
    ('paradigms', True)
    """

    name: str
    title: str
    source: str
    model: str
    normalise: str
    precision: str
    base: str
    settings: Mapping[str, object]
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    rows: tuple[StudyRow, ...]
    benchmarks: tuple[Benchmark, ...]
    tables: tuple[StudyTable, ...]
    resamples: int
    preset: str | None
    text: str = field(repr=False)
    method: EvaluationMethod = "exact"

    def __getitem__(self, name: str) -> StudyRow:
        for row in self.rows:
            if row.name == name:
                return row
        raise UnknownName.of(f"row of {self.name}", name, [row.name for row in self.rows])

    @property
    def families(self) -> tuple[str, ...]:
        """The names that the file gives to rows, without the numbers of rows made from lists."""
        return tuple(dict.fromkeys(row.family for row in self.rows))

    def cells(self, only: Sequence[str] | None = None, seeds: Sequence[int] | None = None) -> tuple[StudyCell, ...]:
        """List the cells, seed by seed, each after the one it starts from.

        Parameters
        ----------
        only : sequence of str, optional
            Names of rows or families; what they start from is included. By default all rows.
        seeds : sequence of int, optional
            Seeds to include; by default all.

        Returns
        -------
        tuple of StudyCell
            The cells.

        Raises
        ------
        UnknownName
            If there is no such row.
        InvalidInput
            If a seed is not one of the study, or rows start from one another in a circle.
        """
        rows = self._select_rows(only)
        for seed in seeds or ():
            if seed not in self.seeds:
                raise InvalidInput(f"seed {seed} is not a seed of {self.name}; its seeds are {join_names(self.seeds)}")
        cells = []
        for seed in self.seeds:
            if seeds and seed not in seeds:
                continue
            for benchmark in self.benchmarks:
                for row in rows:
                    cells.append(self._cell(row, benchmark, seed))
        return tuple(cells)

    def _select_rows(self, only: Sequence[str] | None) -> list[StudyRow]:
        """List the rows of these names or families, each after the rows it starts from."""
        known = {row.name for row in self.rows} | {*self.families}
        for name in only or ():
            if name not in known:
                raise UnknownName.of(f"row of {self.name}", name, known)
        needed: dict[str, StudyRow] = {}
        for row in self.rows:
            if only and row.name not in only and row.family not in only:
                continue
            for start in self.starts(row.name):
                needed[start.name] = start
            needed[row.name] = row
        return list(needed.values())

    def _cell(self, row: StudyRow, benchmark: Benchmark, seed: int) -> StudyCell:
        prefix = f"{benchmark.name}-" if len(self.benchmarks) > 1 else ""
        start = None
        if row.start is not None:
            start = f"{prefix}{row.start}-s{seed}"
        return StudyCell(f"{prefix}{row.name}-s{seed}", row, benchmark, seed, start)

    def starts(self, name: str) -> tuple[StudyRow, ...]:
        """List the rows that a row starts from, directly or through others.

        Parameters
        ----------
        name : str
            Name of the row.

        Returns
        -------
        tuple of StudyRow
            The rows, each after the one it starts from; empty where the row starts from none.

        Raises
        ------
        UnknownName
            If there is no such row.
        InvalidInput
            If rows start from one another in a circle.
        """
        chain = [name]
        start = self[name].start
        while start is not None:
            if start in chain:
                raise InvalidInput(f"rows start from one another in a circle: {join_names([start, *chain])}")
            chain.insert(0, start)
            start = self[start].start
        return tuple(self[one] for one in chain[:-1])

    def plan(self, cell: StudyCell, out: str | Path, *, root: str | Path | None = None, device: str = "cpu") -> Plan:
        """Plan the training of a cell.

        Parameters
        ----------
        cell : StudyCell
            The cell.
        out : str or Path
            Folder of the study, which holds the weights of other cells.
        root : str or Path, optional
            The folder of data; by default that of the environment variable ``TWOFOLD_DATA``.
        device : str, default="cpu"
            Where to train.

        Returns
        -------
        twofold.nn.training.Plan
            The plan.

        Raises
        ------
        MissingExtra
            If torch is not installed.
        """
        recipes = torch_module("recipes")
        training = torch_module("training")
        row = cell.row
        checkpoint = insert_root(row.weights, root)
        if cell.start is not None:
            checkpoint = str(Path(out) / "training" / cell.start / training.WEIGHTS)
        settings = {**self.settings, **row.settings, "seed": cell.seed}
        plan: Plan = training.Plan.of(
            row.recipe,
            self.model,
            cell.train.spec(root),
            outliers=insert_root(row.outliers, root),
            mixers=insert_root(row.mixers, root),
            checkpoint=checkpoint,
            new_head=row.new_head,
            normalise=self.normalise,
            preset=self.base,
            device=device,
            precision=self.precision,
            **settings,
        )
        if row.dropout:
            plan = replace(plan, recipe=plan.recipe | recipes.Dropout(row.dropout))
        if plan.members > 1:  # no two ensembles share a member
            plan = replace(plan, settings=replace(plan.settings, seed=cell.seed * plan.members))
        if plan.settings.keep != "last":
            plan = replace(plan, val=torch_module("data").open(cell.val.spec(root)))
        return plan


def torch_module(module: str) -> ModuleType:
    """Import a module of ``twofold.nn``.

    Parameters
    ----------
    module : str
        Its name, such as ``"training"``.

    Returns
    -------
    module
        The module.

    Raises
    ------
    MissingExtra
        If torch is not installed.
    """
    try:
        return import_module(f"twofold.nn.{module}")
    except ImportError as error:
        if error.name != "torch":
            raise
        raise MissingExtra('studies train networks, which needs torch: pip install "twofold[torch]"') from error


def insert_root(spec: str | None, root: str | Path | None) -> str | None:
    """Insert the folder of data into the spec of outliers, or into the path of mixers or of a file of weights.

    Parameters
    ----------
    spec : str or None
        The spec or path, with ``{data}`` for the folder.
    root : str or Path or None
        The folder; None means that of the environment variable ``TWOFOLD_DATA``.

    Returns
    -------
    str or None
        What to open; None for None.

    Raises
    ------
    InvalidInput
        If a folder is needed and none is named.

    Examples
    --------
    >>> insert_root("{data}/weights.pt", "/data")
    '/data/weights.pt'
    """
    if spec is None:
        return None
    return DataSet("outliers", "ood_val", spec).spec(root)


def join_names(names: Iterable[object]) -> str:
    """Join names with commas.

    Parameters
    ----------
    names : iterable
        The names.

    Returns
    -------
    str
        The names as text.

    Examples
    --------
    >>> join_names([0, 1])
    '0, 1'
    """
    return ", ".join(map(str, names))
