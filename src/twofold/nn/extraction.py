"""Run a network once over a data set and stream its outputs to a :class:`~twofold.run.Run`.

Rows are cut into batches by their position in the data set, and batches into shards. A shard is written as soon as it
is complete, so an interrupted extraction resumes where it stopped, several processes share the work, and the bytes are
the same however the work was cut. Memory holds one shard.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, default_collate

from twofold import _checks
from twofold.errors import InvalidInput, LowPrecision, RunError, UnknownName
from twofold.nn.data.views import normalise
from twofold.nn.device import check_device
from twofold.nn.models import Captured, Classifier, load
from twofold.nn.perturb import Mahalanobis, Odin, Perturbation, RankFeat
from twofold.outputs import PASS_ARRAYS, Passes
from twofold.roles import OOD
from twofold.run import Run, Writer
from twofold.scores.chain import Chain, scorer

Arrays = dict[str, npt.NDArray[Any]]
Item = tuple[Any, npt.NDArray[np.int64] | None, npt.NDArray[Any] | None]  # inputs, labels, ids

SHARD = 2048  # rows in a shard, rounded down to whole batches
POWERS = (1, 2, 3, 4, 5)
WAIT = 600.0  # seconds to wait for the other processes
SINGLE = np.dtype(np.float32)


@dataclass(frozen=True)
class Prepare:
    """Turn uint8 images (B, H, W, 3) into normalised float32 (B, 3, H, W): (x / 255 - mean) / std by channel.

    Parameters
    ----------
    mean : tuple of 3 floats, default=(0.0, 0.0, 0.0)
        Mean of each channel, of values in [0, 1]. Use what the network was trained with, such as
        ``twofold.nn.data.STATISTICS["cifar10"].mean``.
    std : tuple of 3 floats, default=(1.0, 1.0, 1.0)
        Standard deviation of each channel, likewise. The defaults only divide by 255.

    Examples
    --------
    >>> prepare = Prepare(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    >>> prepare(np.full((2, 4, 4, 3), 255, dtype=np.uint8)).shape
    torch.Size([2, 3, 4, 4])
    """

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __call__(self, images: npt.NDArray[np.uint8]) -> Tensor:
        """Normalise a batch of 8-bit images.

        Parameters
        ----------
        images : ndarray of uint8, shape (B, H, W, 3)
            The images, channels last.

        Returns
        -------
        Tensor of float32, shape (B, 3, H, W)
            The normalised images, channels first.

        Raises
        ------
        InvalidInput
            If the images have another type or shape, or ``std`` is not above 0.
        """
        return torch.from_numpy(normalise(images, self.mean, self.std))

    def floats(self, pixels: npt.NDArray[np.float32]) -> Tensor:
        """Normalise a batch of pixels that are already in [0, 1].

        Parameters
        ----------
        pixels : ndarray of float32, shape (B, H, W, 3)
            The images, channels last.

        Returns
        -------
        Tensor of float32, shape (B, 3, H, W)
            ``(pixels - mean) / std`` by channel, channels first.

        Examples
        --------
        >>> Prepare().floats(np.ones((1, 2, 2, 3), dtype=np.float32)).shape
        torch.Size([1, 3, 2, 2])
        """
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (self.mean, self.std))
        return ((torch.from_numpy(pixels).permute(0, 3, 1, 2) - mean) / std).contiguous()


def extract(
    model: nn.Module | Classifier | Sequence[nn.Module],
    /,
    data: Any,
    out: Run | str | Path,
    *,
    name: str,
    role: str,
    prepare: Callable[[npt.NDArray[np.uint8]], Any] | None = None,
    head: str | None = None,
    batch: int = 256,
    device: str | torch.device = "cpu",
    features: npt.DTypeLike = "float32",
    layers: Sequence[str] | bool = (),
    passes: int = 0,
    keep_passes: bool = False,
    learned: Mapping[str, Perturbation] | None = None,
    workers: int = 0,
    seed: int | None = None,
    replace: bool = False,
    done: Callable[[int], Any] = lambda rows: None,
    **provenance: Any,
) -> Run:
    """Run a network once over a data set and add its outputs to a run, which is created if it does not exist.

    Logits, features, labels and ids are always recorded where they exist; layer statistics, stochastic passes and
    gradient-based values on request. Call it again with the same arguments to resume an interrupted extraction.

    Parameters
    ----------
    model : nn.Module, Classifier, or sequence of nn.Module
        Any module whose last layer is linear. Several modules for the same task are a deep ensemble: its members count
        as passes, and features and logits are those of the first. The modules are moved to ``device`` and set to
        evaluation mode.
    data : Images, DataLoader or Dataset
        Rows of :mod:`twofold.nn.data`; a ``DataLoader`` that does not shuffle; or a map-style ``Dataset`` of
        ``(input, label)`` or of dictionaries with ``labels``. Of a ``DataLoader`` the data set and the collate function
        are used, not the batch size.
    out : Run, str or Path
        The run to write to, or its folder.
    name : str
        What the data set is called in the run, such as ``"cifar10-test"``.
    role : str
        What the data set is for: ``"train"``, ``"val"``, ``"test"``, ``"shift"``, ``"near"``, ``"mid"``, ``"far"`` or
        ``"ood_val"``. With the last four every label is stored as -1, whatever the data say.
    prepare : callable, default=Prepare()
        Turns uint8 images (B, H, W, 3) into the inputs of the model; the default divides by 255. Only used with rows of
        :mod:`twofold.nn.data`.
    head : str, optional
        Name of the last linear layer, as :class:`~twofold.nn.models.Classifier` takes it. By default it is found.
    batch : int, default=256
        Rows in a batch. Lower it when memory runs out.
    device : str or torch.device, default="cpu"
        Where the network runs.
    features : dtype, default="float32"
        How features and layer statistics are stored; ``"float16"`` halves the space. Logits are always float32.
    layers : sequence of str or bool, default=()
        Names of modules, or True for all blocks, whose channel means, variances and Gram rows are recorded.
    passes : int, default=0
        Number of stochastic passes (MC dropout), with dropout on and everything else frozen.
    keep_passes : bool, default=False
        Store the logits of every pass or ensemble member instead of the means over them.
    learned : mapping of str to Perturbation, optional
        Further values by name, computed with gradients (see :mod:`twofold.nn.perturb`).
    workers : int, default=0
        Processes of the ``DataLoader`` that read ahead; 0 reads in this process.
    seed : int, optional
        Seed of the stochastic passes (0 by default). It is also kept with a new run as the seed of its network.
    replace : bool, default=False
        Write a data set again that the run already holds under this name.
    done : callable, optional
        Called with a number of rows: first those that an earlier call finished, then those of each finished shard. Use
        it to show progress.
    **provenance
        Facts to keep with a new run, such as ``recipe="sure_plus"``; they must fit in JSON.

    Returns
    -------
    Run
        The run, which holds the data set under ``name``.

    Raises
    ------
    InvalidInput
        If ``model`` is an empty list, an ensemble is combined with ``passes``, ``passes`` is asked of a model without
        dropout, the data have no fixed order, a named layer gives no feature maps, or the run holds outputs of another
        model.
    RunError
        If the run already holds ``name`` and ``replace`` is False, or another process did not finish its part within
        600 seconds.

    Warns
    -----
    LowPrecision
        If the model computes in float16 or bfloat16: confident samples will tie.

    Notes
    -----
    Under ``torchrun`` or ``accelerate`` (the variables ``RANK`` and ``WORLD_SIZE``) each process takes its share of the
    shards; the first one closes the data set. The random numbers of the passes depend on the seed, the first row of the
    batch and the pass, so resuming changes nothing, but another ``batch`` draws other masks.

    Examples
    --------
    >>> import tempfile
    >>> from twofold.nn.data import open
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = extract(model, open("noise:uniform?n=6&size=8"), f"{folder}/run", name="noise", role="far")
    ...     run["noise"].logits.shape, run["noise"].labels[:2].tolist()
    ((6, 4), [-1, -1])
    """
    size = _checks.whole(batch, "batch", 1)
    device = check_device(device)
    members = [model] if isinstance(model, nn.Module | Classifier) else list(model)
    if not members:
        raise InvalidInput("model must be a module or a list of modules, got an empty list")
    if passes and len(members) > 1:
        raise InvalidInput("an ensemble and MC dropout cannot be recorded together; choose passes=0 or one model")
    classifiers = [m if isinstance(m, Classifier) else Classifier(m, head=head) for m in members]
    for one in classifiers:
        one.model.to(device).eval()
        _check_precision(one.model)
    source = _Source.of(data, prepare)
    count = _checks.whole(passes, "passes", 0)
    recorder = _Recorder(
        classifiers,
        device,
        np.dtype(features),
        layers,
        count,
        keep_passes,
        dict(learned or {}),
        seed or 0,
        known=role not in OOD,
    )
    few = source.read(range(min(2, source.rows)))
    with torch.no_grad():
        for one in classifiers:
            one(_moved(few[0], device))  # finds the head and the layers
    probe = recorder.record(few, 0)  # shows the shapes
    rank, world = _process()
    names = source.class_names if role not in OOD else None
    run = _run(out, classifiers[0], names, rank, provenance | ({} if seed is None else {"seed": seed}))
    writer = run.writer(
        name,
        role=role,
        rows=source.rows,
        fields={field: (source.ids if field == "ids" else a.dtype, a.shape[1:]) for field, a in probe.items()},
        pass_count=recorder.count if "passes.mean_prob" in probe else None,
        replace=replace,
    )
    step = size * max(1, SHARD // size)
    missing = writer.missing()
    done(source.rows - sum(b - a for a, b in missing))
    shards = [range(a, min(a + step, source.rows)) for a in range(0, source.rows, step)]
    mine = [s for s in shards[rank::world] if any(a < s.stop and s.start < b for a, b in missing)]
    _write(mine, source, recorder, writer, size, workers, done)
    _close(writer, run, name, rank)
    return run


def _write(
    shards: Sequence[range],
    source: _Source,
    recorder: _Recorder,
    writer: Writer,
    batch: int,
    workers: int,
    done: Callable[[int], Any],
) -> None:
    """Record the shards batch by batch; a finished shard is on disk before the next begins."""
    batches = [range(a, min(a + batch, s.stop)) for s in shards for a in range(s.start, s.stop, batch)]
    starts = {s.stop: s.start for s in shards}
    held: list[Arrays] = []
    loader = DataLoader(_Batches(source, batches), batch_size=None, collate_fn=_as_it_is, num_workers=workers)
    for rows, item in zip(batches, loader, strict=True):
        held.append(recorder.record(item, rows.start))
        if rows.stop in starts:
            start = starts[rows.stop]
            writer.write(start, **{field: np.concatenate([part[field] for part in held]) for field in held[0]})
            done(rows.stop - start)
            held = []


def _close(writer: Writer, run: Run, name: str, rank: int) -> None:
    """Close the data set in the first process once all rows are written; the other processes wait for it."""
    until = time.monotonic() + WAIT
    while (writer.missing() if rank == 0 else name not in run) and time.monotonic() < until:
        time.sleep(0.05)
    if rank == 0:
        writer.close()  # raises and names the missing rows if another process never finished


def _process() -> tuple[int, int]:
    """Return the rank of this process and the number of processes, as torchrun and accelerate set them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _run(
    out: Run | str | Path,
    classifier: Classifier,
    class_names: tuple[str, ...] | None,
    rank: int,
    provenance: dict[str, Any],
) -> Run:
    """Open the run to write to; the first process creates it if it does not exist."""
    if not isinstance(out, Run):
        until = time.monotonic() + WAIT
        while not (Path(out) / "run.json").exists():
            if rank == 0:
                kept = {"model": type(classifier.model).__name__, **provenance}
                names = class_names if class_names is not None and len(class_names) == classifier.classes else None
                return Run.create(out, class_names=names, head=classifier.head, **kept)
            if time.monotonic() > until:
                raise RunError(f"the first process made no run at {out} within {WAIT:g} s")
            time.sleep(0.05)
    run = out if isinstance(out, Run) else Run.open(out)
    if run.head is not None and not run.head.same_as(classifier.head):
        raise InvalidInput(f"{run.path} holds outputs of another model (its last layer differs); make another run")
    return run


def _check_precision(model: nn.Module) -> None:
    kinds = {p.dtype for p in model.parameters()} & {torch.bfloat16, torch.float16}
    if kinds:
        warnings.warn(
            f"the model computes in {', '.join(sorted(map(str, kinds)))}: its logits have few digits, and confident "
            "samples will tie; extract with model.float() unless that is what you deploy",
            LowPrecision,
            stacklevel=3,
        )


def extract_all(
    model: str,
    sets: Sequence[tuple[str, str, str]],
    out: str | Path,
    *,
    checkpoints: Sequence[str] = (),
    classes: int | None = None,
    head: str | None = None,
    normalise: str = "none",
    layers: str | None = None,
    odin: float | None = None,
    mahalanobis: float | None = None,
    rankfeat: str | None = None,
    half: bool = False,
    begin: Callable[[str, int], Any] = lambda name, rows: None,
    replace: bool = False,
    **options: Any,
) -> Run:
    """Extract several data sets with a model, all named by text; the command ``twofold extract`` calls this.

    Data sets that the run already holds are skipped, so repeating the same call finishes what is missing.

    Parameters
    ----------
    model : str
        A model as :func:`twofold.nn.models.load` takes it.
    sets : sequence of (spec, role, name)
        Each data set: its specification for :func:`twofold.nn.data.open`, its role and its name in the run. Put the
        training set first if ``mahalanobis`` is set.
    out : str or Path
        Folder of the run, created if it does not exist.
    checkpoints : sequence of str, default=()
        Weights to load into the model; several make a deep ensemble.
    classes : int, optional
        Number of classes, where the model does not say it.
    head : str, optional
        Name of the last linear layer; by default it is found.
    normalise : str, default="none"
        Name of the channel statistics, one of ``twofold.nn.data.STATISTICS``, or ``"none"`` to only divide by 255.
    layers : str, optional
        Names of modules separated by commas, or ``"all"``, whose channel statistics are recorded.
    odin : float, optional
        Step size of ODIN's input perturbation; by default its values are not recorded.
    mahalanobis : float, optional
        Step size of the perturbed Mahalanobis score, which is fitted on the first training set of the run. Not recorded
        for data sets with role ``"train"``.
    rankfeat : str, optional
        Names of modules separated by commas, for RankFeat.
    half : bool, default=False
        Store features and layer statistics as float16.
    begin : callable, optional
        Called with the name and number of rows of each data set before it is extracted.
    replace : bool, default=False
        Extract data sets again that the run already holds.
    **options
        Further arguments of :func:`extract`, such as ``batch``, ``device``, ``passes`` or ``done``; the rest is kept
        with the run.

    Returns
    -------
    Run
        The run with all data sets.

    Raises
    ------
    UnknownName
        If there are no statistics called ``normalise``.
    InvalidInput
        If ``mahalanobis`` is set and no training set has been extracted; also what :func:`extract` raises.
    """
    from twofold.nn import data

    members = [load(model, classes=classes, checkpoint=c) for c in checkpoints] or [load(model, classes=classes)]
    if normalise not in ("none", *data.STATISTICS):
        raise UnknownName.of("statistics", normalise, ["none", *data.STATISTICS])
    prepare = Prepare() if normalise == "none" else Prepare(*data.STATISTICS[normalise])
    rows = {name: data.open(spec) for spec, _, name in sets}
    for _, role, name in sets:
        if (Path(out) / "run.json").exists() and name in Run.open(out) and not replace:
            continue
        learned: dict[str, Perturbation] = {}
        if odin is not None:
            learned["odin"] = Odin(epsilon=odin, std=prepare.std)
        if mahalanobis is not None and role != "train":
            learned["mds_perturbed"] = Mahalanobis(_fitted_mds(out), mahalanobis, prepare.std)
        if rankfeat is not None:
            learned["rankfeat"] = RankFeat(tuple(rankfeat.split(",")))
        begin(name, len(rows[name]))
        extract(
            members if len(members) > 1 else members[0],
            rows[name],
            out,
            name=name,
            role=role,
            prepare=prepare,
            head=head,
            features="float16" if half else "float32",
            layers=True if layers == "all" else layers.split(",") if layers else (),
            learned=learned,
            replace=replace,
            **{"model": model, "normalise": normalise, **options},
        )
    return Run.open(out)


def _fitted_mds(out: str | Path) -> Chain:
    """Fit ``mds`` on the training outputs of the run."""
    train = Run.open(out).names("train") if (Path(out) / "run.json").exists() else []
    if not train:
        raise InvalidInput(
            "the perturbed Mahalanobis score is fitted on train; extract a data set with role train first"
        )
    return scorer("mds").fit(Run.open(out)[train[0]])


# Reading rows


@dataclass(frozen=True)
class _Source:
    """Read rows by their position: inputs as the model takes them, labels and ids."""

    rows: int
    read: Callable[[range], Item]
    class_names: tuple[str, ...] | None = None
    ids: str = "int64"  # dtype in which they are stored

    @classmethod
    def of(cls, data: Any, prepare: Callable[[npt.NDArray[np.uint8]], Any] | None) -> _Source:
        if isinstance(data, DataLoader):
            if isinstance(data.dataset, IterableDataset):
                raise InvalidInput("an iterable dataset has no rows to return to; pass a map-style Dataset")
            if not isinstance(data.sampler, SequentialSampler):
                raise InvalidInput("the DataLoader shuffles; build it with shuffle=False, so that row i stays row i")
            return cls._of_dataset(data.dataset, data.collate_fn)
        if hasattr(data, "read"):
            return cls._of_images(data, prepare or Prepare())
        if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
            return cls._of_dataset(data, default_collate)
        raise InvalidInput(
            f"data must be rows of twofold.nn.data, a DataLoader or a Dataset with a length, got {type(data).__name__}"
        )

    @classmethod
    def _of_images(cls, images: Any, prepare: Callable[[npt.NDArray[np.uint8]], Any]) -> _Source:
        ids = getattr(images, "ids", None)
        names = None if ids is None else np.asarray(ids)
        text = names is not None and names.dtype.kind == "U"
        kind = f"S{np.char.encode(names, 'utf-8').dtype.itemsize}" if text else "int64"  # type: ignore[arg-type]

        def read(rows: range) -> Item:
            some = slice(rows.start, rows.stop)
            labels = None if images.labels is None else np.asarray(images.labels[some], dtype=np.int64)
            return prepare(images.read(some)), labels, None if names is None else names[some]

        return cls(len(images), read, getattr(images, "class_names", None), kind)

    @classmethod
    def _of_dataset(cls, dataset: Any, collate: Callable[[list[Any]], Any]) -> _Source:
        def read(rows: range) -> Item:
            item = collate([dataset[i] for i in rows])
            if isinstance(item, Mapping):
                return {k: v for k, v in item.items() if k != "labels"}, _labels(item.get("labels")), None
            if isinstance(item, tuple | list):
                return item[0], _labels(item[1]) if len(item) > 1 else None, None
            return item, None, None

        names = getattr(dataset, "classes", None)
        return cls(len(dataset), read, tuple(names) if isinstance(names, list | tuple) else None)


def _labels(value: Any) -> npt.NDArray[np.int64] | None:
    return None if value is None else np.asarray(value, dtype=np.int64)


class _Batches(Dataset[Any]):
    """Whole batches as items, so that the workers of a DataLoader read ahead."""

    def __init__(self, source: _Source, batches: Sequence[range]) -> None:
        self.source, self.batches = source, batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, i: int) -> Item:
        return self.source.read(self.batches[i])


def _as_it_is(item: Any) -> Any:
    return item


# Recording outputs


@dataclass(frozen=True)
class _Recorder:
    """Compute what is stored of a batch: arrays by field, rows first."""

    classifiers: list[Classifier]
    device: torch.device
    kind: np.dtype[Any]  # of stored features
    layers: Sequence[str] | bool
    passes: int
    keep_passes: bool
    learned: dict[str, Perturbation]
    seed: int
    known: bool  # whether labels are those of the model's classes

    @property
    def count(self) -> int:
        """Number of passes or ensemble members."""
        return self.passes or len(self.classifiers)

    def record(self, item: Item, first: int) -> Arrays:
        """Run the network on one batch that starts at row ``first`` of the data set.

        Parameters
        ----------
        item : tuple of (inputs, labels, ids)
            One batch; labels and ids may be None.
        first : int
            Row of the data set at which the batch starts; it seeds the stochastic passes.

        Returns
        -------
        dict of str to ndarray
            Arrays by field of the store, rows first.
        """
        inputs, labels, ids = item
        inputs = _moved(inputs, self.device)
        main = self.classifiers[0]
        with torch.no_grad():
            dropouts = main.dropouts() if self.passes else []
            with _listening(main, self.layers) as found, _hearing(dropouts) as given:
                captured = main(inputs)
            arrays = _plain(captured, self.kind)
            arrays |= {f"layers/{key}": _numpy(value, self.kind) for key, value in found.items()}
            if self.passes or len(self.classifiers) > 1:
                last = _before_head(captured, given) if len(dropouts) == 1 else None
                arrays |= self._several(main, inputs, captured, dropouts, last, first)
        for name, perturbation in self.learned.items():
            arrays[f"learned/{name}"] = _numpy(perturbation(main, inputs), SINGLE)
        if not self.known:
            arrays["labels"] = np.full(len(arrays["logits"]), -1)
        elif labels is not None:
            arrays["labels"] = labels
        if ids is not None:
            arrays["ids"] = ids
        return arrays

    def _several(
        self,
        main: Classifier,
        inputs: Any,
        captured: Captured,
        dropouts: Sequence[nn.Module],
        last: Tensor | None,
        first: int,
    ) -> Arrays:
        """Compute logits of passes or members, or their means; for passes also mean features and learned values."""
        ensemble = len(self.classifiers) > 1
        kept: list[npt.NDArray[Any]] = []
        sums: dict[str, Tensor] = {}

        def logits() -> Iterator[npt.NDArray[Any]]:
            drawn = self._members(inputs, captured) if ensemble else self._dropped(main, inputs, dropouts, last, first)
            for one in drawn:
                values = {} if ensemble else {"layers/passes/features": one.features.float()}
                values |= {f"learned/passes/{name}": value.float() for name, value in one.learned.items()}
                for name, value in values.items():
                    sums[name] = sums[name] + value if name in sums else value
                z = _numpy(one.logits, SINGLE)
                if self.keep_passes:
                    kept.append(z)
                yield z

        means = Passes.from_logits(logits())
        arrays = {n: _numpy(v / self.count, self.kind if n.startswith("layers") else SINGLE) for n, v in sums.items()}
        if self.keep_passes:
            return arrays | {"passes": np.stack(kept, axis=1)}
        return arrays | {f"passes.{name}": getattr(means, name).astype(SINGLE) for name in PASS_ARRAYS}

    def _members(self, inputs: Any, captured: Captured) -> Iterator[Captured]:
        yield captured
        for one in self.classifiers[1:]:
            yield one(inputs)

    def _dropped(
        self, main: Classifier, inputs: Any, dropouts: Sequence[nn.Module], last: Tensor | None, first: int
    ) -> Iterator[Captured]:
        """Run passes with dropout on; generators are seeded by row and pass, so that resuming changes nothing."""
        if not dropouts:
            raise InvalidInput("passes need dropout layers with a rate above 0, and the model has none")
        with torch.random.fork_rng():
            for s in range(self.passes):
                with _dropping(dropouts, np.random.SeedSequence((self.seed, first, s))):
                    captured = main(inputs) if last is None else main.at_head(dropouts[0](last))
                yield captured


@contextmanager
def _dropping(dropouts: Sequence[nn.Module], seed: np.random.SeedSequence) -> Iterator[None]:
    """Switch the dropout layers on while open; plain dropout uses :func:`_drop`, the other kinds that of PyTorch."""
    torch.manual_seed(int(seed.generate_state(1, np.uint64)[0] >> 1))
    bits = np.random.SFC64(seed)
    plain = [d for d in dropouts if type(d) is nn.Dropout]
    others = [d for d in dropouts if type(d) is not nn.Dropout]
    hooks = [d.register_forward_hook(lambda module, given, result: _drop(given[0], module.p, bits)) for d in plain]
    for other in others:
        other.train()
    try:
        yield
    finally:
        for other in others:
            other.eval()
        for hook in hooks:
            hook.remove()


def _drop(x: Tensor, rate: float, bits: np.random.SFC64) -> Tensor:
    """Apply dropout by 16 random bits an entry, far faster on a CPU than PyTorch's; the rate is rounded to 1/65536."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return functional.dropout(x, rate)
    from twofold._kernels import drop

    result = torch.empty_like(x)  # contiguous memory with the axes in the order of x
    source = x if x.stride() == result.stride() else result.copy_(x)
    before, after = (t.as_strided((t.numel(),), (1,)).numpy() for t in (source, result))
    limit = round(rate * 65536)
    drawn = bits.random_raw(-(-after.size // 4)).view(np.uint16)
    drop(before, drawn, np.uint32(limit), np.float32(65536 / (65536 - limit) if limit < 65536 else 0.0), after)
    return result


@contextmanager
def _hearing(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Collect the inputs of the modules while open."""
    given: list[Tensor] = []
    hooks = [m.register_forward_pre_hook(lambda module, args: given.append(args[0])) for m in modules]
    try:
        yield given
    finally:
        for hook in hooks:
            hook.remove()


def _before_head(captured: Captured, given: Sequence[Tensor]) -> Tensor | None:
    """Return the input of the only dropout layer if its output goes straight to the head, else None.

    In evaluation mode dropout returns its input, so the head saw the same memory. One backbone pass is then enough.
    """
    features = captured.features if captured.raw is None else captured.raw
    straight = len(given) == 1 and given[0].shape == features.shape and given[0].data_ptr() == features.data_ptr()
    return given[0] if straight else None


@contextmanager
def _listening(main: Classifier, layers: Sequence[str] | bool) -> Iterator[dict[str, Tensor]]:
    """Collect channel statistics of the output maps of the named modules while open."""
    found: dict[str, Tensor] = {}
    modules = main.layers(None if layers is True else list(layers)) if layers else {}

    def listen(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, result: Any) -> None:
            maps = result[0] if isinstance(result, tuple) else result
            if maps.ndim != 4:
                raise InvalidInput(
                    f"layer {name} puts out shape {tuple(maps.shape)}; statistics need (N, channels, H, W)"
                )
            flat = maps.detach().flatten(2).float()
            found[f"{name}/mean"], found[f"{name}/var"] = flat.mean(dim=2), flat.var(dim=2, unbiased=False)
            for power in POWERS:
                found[f"{name}/gram{power}"] = gram_rows(flat, power)

        return hook

    hooks = [module.register_forward_hook(listen(name)) for name, module in modules.items()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def gram_rows(maps: Tensor, power: int) -> Tensor:
    r"""Compute signed roots of the row sums of the channels' Gram matrix, for a power of the maps.

    .. math:: r_c = \sum_{j} \sum_{q} F_{cq}^p F_{jq}^p, \qquad g_c = \mathrm{sign}(r_c) \, |r_c|^{1/p}

    with maps :math:`F` of one image, channels :math:`c, j`, positions :math:`q` and power :math:`p`.

    Parameters
    ----------
    maps : Tensor, shape (N, channels, positions)
        Feature maps with flattened positions.
    power : int
        The power :math:`p`, at least 1.

    Returns
    -------
    Tensor, shape (N, channels)
        One value for each channel.

    Notes
    -----
    Each image is divided by its largest absolute value first, and the result scaled back, so that no power overflows.

    Examples
    --------
    >>> gram_rows(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 1)
    tensor([[16., 36.]])
    """
    scale = maps.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-30)  # divided out, so that no power overflows
    a = (maps / scale) ** power
    r = torch.einsum("ncp,np->nc", a, a.sum(dim=1))
    return r.sign() * r.abs() ** (1.0 / power) * scale[:, 0] ** 2


def _plain(captured: Captured, kind: np.dtype[Any]) -> Arrays:
    """Return logits, features and the values that the network itself predicts."""
    arrays = {"logits": _numpy(captured.logits, SINGLE), "features": _numpy(captured.features, kind)}
    if captured.raw is not None:
        arrays["layers/penultimate/raw"] = _numpy(captured.raw, kind)
    return arrays | {f"learned/{name}": _numpy(value, SINGLE) for name, value in captured.learned.items()}


def _numpy(tensor: Tensor, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    wide = tensor.detach().to("cpu")
    return (wide.float() if wide.dtype == torch.bfloat16 else wide).numpy().astype(kind, copy=False)


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {k: _moved(v, device) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_moved(v, device) for v in value)
    return value
