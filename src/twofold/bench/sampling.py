"""Make a benchmark smaller: a seeded sample of each data set in place of all its images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twofold import _checks
from twofold._data_spec import DataSpec
from twofold.bench.catalogue import Benchmark, DataSet
from twofold.errors import UnknownName
from twofold.roles import ROLES

EVERY = "all"  # stands for every data set that is not named otherwise


def sample_images(benchmark: Benchmark, images: Mapping[str, int]) -> Benchmark:
    """Keep at most so many images of each data set, drawn by a seed.

    Parameters
    ----------
    benchmark : Benchmark
        The benchmark.
    images : mapping from str to int
        Number of images by name of a data set, by role, or ``"all"`` for the others; the name comes before the role,
        and the role before ``"all"``. Data sets that none of them names are left whole.

    Returns
    -------
    Benchmark
        The benchmark with smaller data sets, under its own name. Where images are corrupted as they are read, the
        number is that of the clean images.

    Raises
    ------
    UnknownName
        If a key is neither a data set of the benchmark, nor a role, nor ``"all"``.
    InvalidInput
        If a number is not a whole number from 1.

    Examples
    --------
    >>> from twofold.bench.catalogue import load
    >>> small = sample_images(load("cifar10-real"), {"far": 100, "svhn": 200})
    >>> small["svhn"].rows, small["textures"].rows, small["test"].rows
    (200, 100, 9000)
    >>> small["textures"].data
    'sheet:{data}/ood_textures.webp?labels=image_labels.npz&sample=100'
    """
    known = (EVERY, *ROLES, *benchmark.names())
    for key, count in images.items():
        if key not in known:
            raise UnknownName.of("data set, role or 'all'", key, known)
        _checks.whole(count, f"images of {key}", 1)
    sets = []
    for one in benchmark.sets:
        for key in (one.name, one.role, EVERY):
            if key in images:
                one = _sample_set(one, images[key])
                break
        sets.append(one)
    return replace(benchmark, sets=tuple(sets))


def _sample_set(one: DataSet, count: int) -> DataSet:
    """Keep at most so many images of a data set."""
    spec = DataSpec.parse(one.data)
    data = str(spec.having(sample=str(count)))
    if "sample" in spec.keys:  # corrupted copies of a sample
        before = int(spec.keys["sample"])
        if before <= count:
            return one
        return replace(one, data=data, rows=one.rows * count // before)
    if one.embedded or 0 < one.rows <= count:
        return one
    return replace(one, data=data, rows=count)
