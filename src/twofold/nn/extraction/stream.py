"""Stream the outputs of a network to a :class:`~twofold.run.Run`, shard by shard.

Rows are cut into batches by their position in the data set, and batches into shards. A shard is written as soon as it
is complete, so an interrupted extraction resumes where it stopped, several processes share the work, and the bytes are
the same however the work was cut. Memory holds one shard.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from twofold import _checks
from twofold._checks import Labels
from twofold.errors import InvalidInput, LowPrecision, RunError
from twofold.nn.data import Images, Texts, drop_unreadable
from twofold.nn.device import check_device
from twofold.nn.extraction.joining import announce_process, have_joined, remove_announcements
from twofold.nn.extraction.prepare import Prepare, explain_size_errors
from twofold.nn.extraction.reading import BatchDataset, InputBatch, RowNumbers, RowReader, Transform
from twofold.nn.extraction.recording import Arrays, Recorder, move_to
from twofold.nn.extraction.stored import recall_input
from twofold.nn.extraction.tokens import read_tokens
from twofold.nn.models import Classifier
from twofold.nn.perturb import Perturbation
from twofold.roles import OOD
from twofold.run import Run, Writer

SHARD = 2048  # rows in a shard, rounded down to whole batches
WAIT = 600.0  # seconds to wait for the other processes
POLL = 0.05  # seconds between two looks at what they have done


def _ignore_progress(rows: int) -> None:
    pass


def extract(
    model: nn.Module | Classifier | Sequence[nn.Module],
    /,
    data: object,
    out: Run | str | Path,
    *,
    name: str,
    role: str,
    prepare: Transform | None = None,
    head: str | None = None,
    batch: int = 256,
    device: str | torch.device = "cpu",
    features: npt.DTypeLike = "float32",
    layers: Sequence[str] | bool = (),
    passes: int = 0,
    keep_passes: bool = False,
    learned: Mapping[str, Perturbation] | None = None,
    workers: int = 0,
    on_bad: Literal["stop", "skip"] = "stop",
    seed: int | None = None,
    replace: bool = False,
    done: Callable[[int], object] = _ignore_progress,
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
    data : Images, Texts, DataLoader or Dataset
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
        Turns uint8 images (B, H, W, 3) into the inputs of the model. The default is the normalisation of the training
        where the model carries it (see Notes), else a division by 255. Only used with rows of :mod:`twofold.nn.data`.
        For texts it is a tokenizer of transformers; the default is the one in the folder of the model.
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
    on_bad : {"stop", "skip"}, default="stop"
        What an image that cannot be read does: end the extraction with its name, or be left out, with a warning that
        counts them. To skip, every image file is decoded once before the network runs.
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
    A network that twofold trained, or loaded from a training folder, carries how its images were resized, cropped and
    normalised, and the names of its classes. Rows of :mod:`twofold.nn.data` are brought to that size unasked; another
    normalisation, size or order of classes is an error.

    Under ``torchrun`` or ``accelerate`` (the variables ``RANK`` and ``WORLD_SIZE``) each process takes its share of the
    shards; the first one closes the data set. The masks of dropout depend on the seed, the row and the pass
    alone: neither resuming nor another ``batch`` changes them. Alpha dropout is the exception; its masks depend on the
    batch too.

    Texts are padded to the longest of their batch. Those of a shard are sorted by their number of tokens first and
    stored in the order of the data set. Names of classes are numbered by the model's ``label2id``.

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
    classifiers = _make_classifiers(model, head, passes)
    for classifier in classifiers:
        classifier.model.to(device).eval()
        _warn_of_low_precision(classifier.model)
    trained = recall_input(classifiers[0].model)
    if on_bad == "skip" and isinstance(data, Images):
        data = drop_unreadable(data, workers=workers)
    if trained is not None and isinstance(data, Images):
        trained.check_normalisation(prepare if isinstance(prepare, Prepare) else None)
        data = trained.fit(data, role)
        prepare = prepare or trained.image_input.prepare
    if isinstance(data, Texts):
        reader = read_tokens(data, prepare, classifiers[0].model, labelled=role not in OOD)
    else:
        reader = RowReader.of(data, prepare)
    recorder = Recorder(
        classifiers=classifiers,
        device=device,
        dtype=np.dtype(features),
        layers=layers,
        passes=_checks.whole(passes, "passes", 0),
        keep_passes=keep_passes,
        learned=dict(learned or {}),
        seed=seed or 0,
        has_known_classes=role not in OOD,
    )
    probe = _probe(reader, recorder)
    rank, world_size = _find_rank()
    if seed is not None:
        provenance["seed"] = seed
    class_names = reader.class_names if role not in OOD else None
    run = _open_run(out, classifiers[0], class_names, rank, provenance)
    writer = run.writer(
        name,
        role=role,
        rows=reader.rows,
        fields=_describe_fields(probe, reader),
        pass_count=recorder.count if "passes.mean_prob" in probe else None,
        replace=replace,
    )
    if rank > 0:
        announce_process(run.path, name, rank)
    missing = writer.missing()
    done(reader.rows - sum(stop - start for start, stop in missing))
    shards = _cut_shards(reader.rows, size)[rank::world_size]
    own = [shard for shard in shards if _overlaps(shard, missing)]
    _write_shards(own, reader, recorder, writer, size, workers, done)
    _close(writer, run, name, rank, world_size)
    return run


def _make_classifiers(
    model: nn.Module | Classifier | Sequence[nn.Module], head: str | None, passes: int
) -> list[Classifier]:
    """Wrap the network, or every member of an ensemble."""
    members: Sequence[nn.Module | Classifier]
    if isinstance(model, nn.Module | Classifier):
        members = [model]
    else:
        members = list(model)
    if not members:
        raise InvalidInput("model must be a module or a list of modules, got an empty list")
    if passes and len(members) > 1:
        raise InvalidInput("an ensemble and MC dropout cannot be recorded together; choose passes=0 or one model")
    classifiers = []
    for member in members:
        classifiers.append(member if isinstance(member, Classifier) else Classifier(member, head=head))
    return classifiers


def _warn_of_low_precision(model: nn.Module) -> None:
    kinds = {parameter.dtype for parameter in model.parameters()} & {torch.bfloat16, torch.float16}
    if kinds:
        warnings.warn(
            f"the model computes in {', '.join(sorted(map(str, kinds)))}: its logits have few digits, and confident "
            "samples will tie; extract with model.float() unless that is what you deploy",
            LowPrecision,
            stacklevel=3,
        )


def _probe(reader: RowReader, recorder: Recorder) -> Arrays:
    """Record two rows: this finds the heads and layers of the networks, and shows the shapes of all fields."""
    few = reader.read(range(min(2, reader.rows)))
    shape = few.inputs.shape if isinstance(few.inputs, Tensor) and few.inputs.ndim == 4 else (0, 0)
    with torch.no_grad(), explain_size_errors(lambda: shape[-2:]):
        for classifier in recorder.classifiers:
            classifier(move_to(few.inputs, recorder.device))
    return recorder.record(few, range(min(2, reader.rows)))


def _describe_fields(probe: Arrays, reader: RowReader) -> dict[str, tuple[npt.DTypeLike, tuple[int, ...]]]:
    """Return type and shape of one row of every field."""
    fields: dict[str, tuple[npt.DTypeLike, tuple[int, ...]]] = {}
    for name, array in probe.items():
        dtype = reader.ids if name == "ids" else array.dtype
        fields[name] = (dtype, array.shape[1:])
    return fields


def _cut_shards(rows: int, batch: int) -> list[range]:
    """Cut rows into shards of whole batches."""
    step = batch * max(1, SHARD // batch)
    return [range(start, min(start + step, rows)) for start in range(0, rows, step)]


def _overlaps(shard: range, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start < shard.stop and shard.start < stop for start, stop in spans)


def _write_shards(
    shards: Sequence[range],
    reader: RowReader,
    recorder: Recorder,
    writer: Writer,
    batch: int,
    workers: int,
    done: Callable[[int], object],
) -> None:
    """Record the shards batch by batch; a finished shard is on disk before the next begins."""
    batches = [rows for shard in shards for rows in _cut_batches(shard, batch, reader.lengths)]
    loader = DataLoader(BatchDataset(reader, batches), batch_size=None, collate_fn=_as_it_is, num_workers=workers)
    items: Iterator[InputBatch] = iter(loader)
    for shard in shards:
        own = _cut_batches(shard, batch, reader.lengths)
        parts = [recorder.record(next(items), rows) for rows in own]
        arrays = {field: np.concatenate([part[field] for part in parts]) for field in parts[0]}
        if reader.lengths is not None:
            arrays = _restore_order(arrays, own)
        writer.write(shard.start, **arrays)
        done(len(shard))


def _cut_batches(shard: range, batch: int, lengths: Labels | None) -> list[RowNumbers]:
    """Cut a shard into batches; rows with lengths are sorted first, so that those of a batch need little padding."""
    rows: RowNumbers = shard
    if lengths is not None:
        order = np.argsort(lengths[shard.start : shard.stop], kind="stable")
        rows = tuple((shard.start + order).tolist())
    return [rows[start : start + batch] for start in range(0, len(rows), batch)]


def _restore_order(arrays: Arrays, batches: Sequence[RowNumbers]) -> Arrays:
    """Bring the rows of sorted batches back to the order of the data set."""
    rows = np.concatenate([np.asarray(batch) for batch in batches])
    places = np.argsort(rows)
    return {field: array[places] for field, array in arrays.items()}


def _as_it_is(batch: Any) -> Any:
    """Leave a batch as it is; a named function, since workers cannot receive a lambda."""
    return batch


def _close(writer: Writer, run: Run, name: str, rank: int, world_size: int) -> None:
    """Close the data set in the first process once all have joined and written; the other processes wait for it."""
    if rank == 0:
        _wait_until(lambda: not writer.missing() and have_joined(run.path, name, world_size))
        writer.close()  # raises and names the missing rows if another process never finished
        remove_announcements(run.path, name)
    elif not _wait_until(lambda: _is_closed(writer) and name in run):
        raise RunError(
            f"the first process did not finish {name!r} within {WAIT:g} s after this one; see its messages, then run "
            "the same command again to resume"
        )


def _is_closed(writer: Writer) -> bool:
    """Tell whether another process closed the data set; a replaced one is in the run before, with its old outputs."""
    try:
        writer.missing()
    except RunError:
        return True
    return False


def _wait_until(is_true: Callable[[], bool]) -> bool:
    """Wait until something is true, and return False if it is not within WAIT seconds."""
    deadline = time.monotonic() + WAIT
    while not is_true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL)
    return True


def _find_rank() -> tuple[int, int]:
    """Return the rank of this process and the number of processes, as torchrun and accelerate set them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _open_run(
    out: Run | str | Path,
    classifier: Classifier,
    class_names: tuple[str, ...] | None,
    rank: int,
    provenance: Mapping[str, Any],
) -> Run:
    """Open the run to write to; the first process creates it if it does not exist."""
    if isinstance(out, Run):
        run = out
    else:
        marker = Path(out) / "run.json"
        if rank == 0 and not marker.exists():
            return _create_run(out, classifier, class_names, provenance)
        if not _wait_until(marker.exists):
            raise RunError(f"the first process made no run at {out} within {WAIT:g} s")
        run = Run.open(out)
    if run.head is not None and not run.head.same_as(classifier.head):
        raise InvalidInput(f"{run.path} holds outputs of another model (its last layer differs); make another run")
    return run


def _create_run(
    out: str | Path, classifier: Classifier, class_names: tuple[str, ...] | None, provenance: Mapping[str, Any]
) -> Run:
    if class_names is not None and len(class_names) != classifier.classes:
        class_names = None  # those of the data, which are not the classes of the model
    facts = {"model": type(classifier.model).__name__, **provenance}
    return Run.create(out, class_names=class_names, head=classifier.head, **facts)
