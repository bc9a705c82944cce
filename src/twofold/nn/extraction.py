"""One pass of a network over a data set, streamed to a :class:`~twofold.store.Run`.

Rows are cut into batches by their place in the data set, and batches into shards. A shard is written as soon as it is
done, so a killed extraction goes on where it stopped, several processes share the work, and the bytes are the same
however it was cut. Memory holds one shard.
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
from twofold.steps import Chain, scorer
from twofold.store import Run, Writer

Arrays = dict[str, npt.NDArray[Any]]
Item = tuple[Any, npt.NDArray[np.int64] | None, npt.NDArray[Any] | None]  # inputs, labels, ids

SHARD = 2048  # rows of a shard, about
POWERS = (1, 2, 3, 4, 5)
OUTSIDE = ("near", "mid", "far", "ood_val")  # roles of inputs that belong to no class of the model
WAIT = 600.0  # seconds for the other processes
SINGLE = np.dtype(np.float32)


@dataclass(frozen=True)
class Prepare:
    """From uint8 images (B, H, W, 3) to normalised float32 (B, 3, H, W): (x / 255 - mean) / std by channel."""

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __call__(self, images: npt.NDArray[np.uint8]) -> Tensor:
        """Normalise a batch."""
        return torch.from_numpy(normalise(images, self.mean, self.std))

    def floats(self, pixels: npt.NDArray[np.float32]) -> Tensor:
        """The same for pixels in [0, 1]."""
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
    """Run a network once over a data set and add what it said to a run, which is made if it does not exist.

    ``model``: any module whose last layer is linear, or several for one task: a deep ensemble, whose members count as
    passes (features and logits are those of the first). ``data``: rows of :mod:`twofold.nn.data` (then ``prepare``
    turns images into inputs, by default x / 255), a ``DataLoader`` in order, or a map-style ``Dataset`` of
    ``(input, label)`` or of dictionaries with ``labels``. ``layers``: names of modules, or True for all blocks, whose
    channel means, variances and Gram rows are recorded. ``passes``: stochastic passes with dropout on and all else
    frozen; their running means are kept, or all of them with ``keep_passes``. ``learned``: further values by name,
    computed with gradients (see :mod:`twofold.nn.perturb`). ``features`` may be float16; logits are float32 always.
    With the roles near, mid, far and ood_val every label is -1, whatever the data say. ``seed`` is that of the passes,
    and is kept with a new run as the seed of its network.
    ``done`` is told how many rows were finished. Under torchrun or accelerate each process takes its share of the
    shards.
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
        known=role not in OUTSIDE,
    )
    few = source.read(range(min(2, source.rows)))
    with torch.no_grad():
        for one in classifiers:
            one(_moved(few[0], device))  # finds head and layers
    probe = recorder.record(few, 0)  # tells the shapes
    rank, world = _process()
    names = source.class_names if role not in OUTSIDE else None
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
    """The first process closes the data set once all rows are there; the others wait for it."""
    until = time.monotonic() + WAIT
    while (writer.missing() if rank == 0 else name not in run) and time.monotonic() < until:
        time.sleep(0.05)
    if rank == 0:
        writer.close()  # an error that names what is missing, if another process never came


def _process() -> tuple[int, int]:
    """The number of this process and how many there are, as torchrun and accelerate tell it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _run(
    out: Run | str | Path,
    classifier: Classifier,
    class_names: tuple[str, ...] | None,
    rank: int,
    provenance: dict[str, Any],
) -> Run:
    """The run to write to: opened, or made by the first process."""
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
    """Extract data sets given as text, ``(spec, role, name)`` each, with a model given as text; what the command does.

    Sets that the run holds already are passed over, so that giving the same command again finishes what is missing.
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
    """mds, fitted on the training outputs of the run."""
    train = Run.open(out).names("train") if (Path(out) / "run.json").exists() else []
    if not train:
        raise InvalidInput(
            "the perturbed Mahalanobis score is fitted on train; extract a data set with role train first"
        )
    return scorer("mds").fit(Run.open(out)[train[0]])


# Where rows come from


@dataclass(frozen=True)
class _Source:
    """Rows by place: inputs as the model takes them, labels and ids."""

    rows: int
    read: Callable[[range], Item]
    class_names: tuple[str, ...] | None = None
    ids: str = "int64"  # how they are stored

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


# What is recorded


@dataclass(frozen=True)
class _Recorder:
    """What a batch leaves in the run: arrays by field, rows first."""

    classifiers: list[Classifier]
    device: torch.device
    kind: np.dtype[Any]  # of features
    layers: Sequence[str] | bool
    passes: int
    keep_passes: bool
    learned: dict[str, Perturbation]
    seed: int
    known: bool  # whether labels are those of the model's classes

    @property
    def count(self) -> int:
        """How many passes or members there are."""
        return self.passes or len(self.classifiers)

    def record(self, item: Item, first: int) -> Arrays:
        """Run the network on one batch, which begins at row ``first`` of the data set."""
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
        """Logits of passes or members, or their running means; of passes also mean features and learned values."""
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
        """Passes with dropout on; the generators are set by row and pass, so that resuming changes nothing."""
        if not dropouts:
            raise InvalidInput("passes need dropout layers with a rate above 0, and the model has none")
        with torch.random.fork_rng():
            for s in range(self.passes):
                with _dropping(dropouts, np.random.SeedSequence((self.seed, first, s))):
                    captured = main(inputs) if last is None else main.at_head(dropouts[0](last))
                yield captured


@contextmanager
def _dropping(dropouts: Sequence[nn.Module], seed: np.random.SeedSequence) -> Iterator[None]:
    """While open, the dropout layers drop; plain dropout does so by :func:`_drop`, the other kinds as PyTorch does."""
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
    """Dropout by 16 random bits an entry, far faster on a CPU than PyTorch's; the rate is rounded to 1/65536."""
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return functional.dropout(x, rate)
    from twofold._kernels import drop

    result = torch.empty_like(x)  # in one piece of memory, the axes in the order of x
    source = x if x.stride() == result.stride() else result.copy_(x)
    before, after = (t.as_strided((t.numel(),), (1,)).numpy() for t in (source, result))
    limit = round(rate * 65536)
    drawn = bits.random_raw(-(-after.size // 4)).view(np.uint16)
    drop(before, drawn, np.uint32(limit), np.float32(65536 / (65536 - limit) if limit < 65536 else 0.0), after)
    return result


@contextmanager
def _hearing(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """While open, the inputs of the modules are collected."""
    given: list[Tensor] = []
    hooks = [m.register_forward_pre_hook(lambda module, args: given.append(args[0])) for m in modules]
    try:
        yield given
    finally:
        for hook in hooks:
            hook.remove()


def _before_head(captured: Captured, given: Sequence[Tensor]) -> Tensor | None:
    """The input of the only dropout layer, if its output goes straight to the head: one backbone pass then does.

    Out of training mode dropout hands its input on, so the head saw the same memory.
    """
    features = captured.features if captured.raw is None else captured.raw
    straight = len(given) == 1 and given[0].shape == features.shape and given[0].data_ptr() == features.data_ptr()
    return given[0] if straight else None


@contextmanager
def _listening(main: Classifier, layers: Sequence[str] | bool) -> Iterator[dict[str, Tensor]]:
    """While open, channel statistics of the named modules are collected from what they put out."""
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
    """Signed roots of the row sums of the channels' Gram matrix of a power of the maps (N, channels, positions)."""
    scale = maps.abs().amax(dim=(1, 2), keepdim=True).clamp_min(1e-30)  # divided out, so that no power overflows
    a = (maps / scale) ** power
    r = torch.einsum("ncp,np->nc", a, a.sum(dim=1))
    return r.sign() * r.abs() ** (1.0 / power) * scale[:, 0] ** 2


def _plain(captured: Captured, kind: np.dtype[Any]) -> Arrays:
    """Logits, features and what the network says of itself."""
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
