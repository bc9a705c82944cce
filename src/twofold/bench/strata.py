r"""How far OOD sets lie from an ID set in an embedding, and their division into near, mid and far.

The four measures and the division of a CLIP-stratified study (Claros Olivares and Brockmeier, "A Systematic Analysis of
Out-of-Distribution Detection Under Representation and Training Paradigm Shifts"), on any embedding: CLIP's where a
person has it (:func:`clip`), else the features of the model under test, which then measure what *that* model
distinguishes and should be reported as such. All are distances: lower is closer.

Notation: rows u, v of the embeddings; :math:`\mu, \Sigma` their mean and covariance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._math import TINY, unit
from twofold.errors import InvalidInput, MissingExtra, UnknownName
from twofold.roles import OOD_TEST
from twofold.typing import Array, ArrayLike, Floats

BLOCK = 2048  # rows at a time; a kernel block is then 32 MB
MOST_SETS = 14  # which have 788,970 partitions into three groups
NAMES: Mapping[int, tuple[str, ...]] = {2: ("near", "far"), 3: OOD_TEST}


def frechet(a: ArrayLike, b: ArrayLike) -> float:
    r"""Compute the squared Frechet distance of the Gaussians fitted to two sets of rows.

    .. math:: |\mu_a - \mu_b|^2 + \mathrm{tr}(\Sigma_a + \Sigma_b) - 2 \lVert \Sigma_a^{1/2} \Sigma_b^{1/2} \rVert_*

    Parameters
    ----------
    a, b : array-like of shape (n_rows, n_columns)
        Embeddings, at least two rows each. Rows are used as they are; the study's have length 1.

    Returns
    -------
    float
        The distance, 0 for equal Gaussians.

    Raises
    ------
    InvalidInput
        If a set has fewer than two rows, or the numbers of columns differ.

    Notes
    -----
    The nuclear norm equals :math:`\mathrm{tr}\,(\Sigma_a^{1/2} \Sigma_b \Sigma_a^{1/2})^{1/2}` and needs no root of a
    product, so covariances without full rank (fewer rows than columns) are harmless. Covariances divide by n - 1, as in
    the Frechet inception distance.

    Examples
    --------
    >>> frechet([[0.0], [2.0]], [[3.0], [5.0]])
    9.0
    """
    one, two = _check_pair(a, b, least=2)
    return _frechet_distance(_fit_gaussian(one), _fit_gaussian(two))


def mmd(
    a: ArrayLike, b: ArrayLike, *, degree: int = 3, coef0: float = 1.0, scale: float | Literal["dim"] = "dim"
) -> float:
    r"""Compute the unbiased squared maximum mean discrepancy with the polynomial kernel.

    .. math:: \mathrm{mean}_{i \ne j} k(a_i, a_j) + \mathrm{mean}_{i \ne j} k(b_i, b_j)
              - 2\, \mathrm{mean}_{i, j} k(a_i, b_j), \quad k(u, v) = (s\, u^T v + c_0)^d

    Parameters
    ----------
    a, b : array-like of shape (n_rows, n_columns)
        Embeddings, at least two rows each.
    degree : int, default=3
        Degree d of the kernel.
    coef0 : float, default=1.0
        Constant c0 of the kernel.
    scale : float or "dim", default="dim"
        Scale s of the inner product; ``"dim"`` is 1 over the number of columns.

    Returns
    -------
    float
        The discrepancy; it is unbiased, so a little below 0 for equal distributions.

    Raises
    ------
    InvalidInput
        If a set has fewer than two rows, or the numbers of columns differ.

    Notes
    -----
    The study does not state s, c0 and d; the sizes it prints fit these defaults, those of the kernel inception
    distance. Memory is constant.

    Examples
    --------
    >>> mmd([[1.0], [-1.0]], [[1.0], [-1.0]], degree=1)
    -2.0
    """
    one, two = _check_pair(a, b, least=2)
    kernel = _make_kernel(one.shape[1], degree, coef0, scale)
    return kernel.within(one) + kernel.within(two) - 2.0 * kernel.between(one, two)


def centroid(
    embeddings: ArrayLike,
    id_embeddings: ArrayLike,
    id_labels: ArrayLike,
    *,
    kind: Literal["angular", "cosine"] = "angular",
) -> float:
    """Compute the mean distance of rows to the nearest class centroid of the ID set.

    Parameters
    ----------
    embeddings : array-like of shape (n_rows, n_columns)
        Embeddings of the OOD set.
    id_embeddings : array-like of shape (n_id, n_columns)
        Embeddings of the ID set.
    id_labels : array-like of int, shape (n_id,)
        Classes of the ID set.
    kind : {"angular", "cosine"}, default="angular"
        ``angular`` is the angle in radians, ``cosine`` is 1 - cos.

    Returns
    -------
    float
        The mean distance.

    Raises
    ------
    InvalidInput
        If a row is zero, the embeddings of a class cancel out, or the numbers of columns differ.

    Notes
    -----
    Rows have length 1 before and centroids after averaging. The study's text says angular and its appendix cosine; the
    values it prints (0.60 to 1.15) fit the angle.

    Examples
    --------
    >>> centroid([[1.0, 1.0]], [[2.0, 0.0], [0.0, 3.0]], [0, 1], kind="cosine").__round__(4)
    0.2929
    """
    rows, known = _check_pair(embeddings, id_embeddings, names=("embeddings", "id_embeddings"))
    return _centroid_distance(rows, _class_directions(known, id_labels), kind)


def text(embeddings: ArrayLike, class_texts: ArrayLike) -> float:
    """Compute the mean over image rows of 1 - cos to the nearest class text.

    Parameters
    ----------
    embeddings : array-like of shape (n_rows, n_columns)
        Embeddings of images.
    class_texts : array-like of shape (n_classes, n_columns)
        One row per ID class. A class with several prompts enters as the mean of its prompt embeddings.

    Returns
    -------
    float
        The mean distance.

    Raises
    ------
    InvalidInput
        If a row is zero, or the numbers of columns differ.

    Examples
    --------
    >>> text([[2.0, 0.0], [0.0, 2.0]], [[1.0, 0.0]])
    0.5
    """
    rows, prototypes = _check_pair(embeddings, class_texts, names=("embeddings", "class_texts"))
    return _text_distance(rows, _normalise(prototypes, "class_texts"))


@dataclass(frozen=True, eq=False)
class Distances:
    """Hold a table of distances: one row per OOD set, one column per measure.

    Parameters
    ----------
    sets : tuple of str
        Names of the OOD sets.
    measures : tuple of str
        Names of the measures.
    values : ndarray of shape (n_sets, n_measures)
        The distances.
    """

    sets: tuple[str, ...]
    measures: tuple[str, ...]
    values: Array  # (sets, measures)

    @classmethod
    def of(cls, table: Mapping[str, Mapping[str, float]]) -> Self:
        """Make the table from nested mappings, for distances that come from elsewhere.

        Parameters
        ----------
        table : mapping of str to mapping of str to float
            Distance by OOD set and measure.

        Returns
        -------
        Distances
            The table.

        Raises
        ------
        InvalidInput
            If the table is empty, sets have different measures, or a distance is not finite.

        Examples
        --------
        >>> Distances.of({"SVHN": {"frechet": 0.7}, "Textures": {"frechet": 0.6}}).values
        array([[0.7],
               [0.6]])
        """
        measures: tuple[str, ...] = ()
        if table:
            measures = tuple(next(iter(table.values())))
        if not measures:
            raise InvalidInput("distances are empty; give at least one set with one measure")
        rows = []
        for name, row in table.items():
            if set(row) != set(measures):
                raise InvalidInput(f"{name!r} has the measures {', '.join(row)}, other sets {', '.join(measures)}")
            rows.append([row[measure] for measure in measures])
        values = _checks.floats(rows, "distances", ndim=2)
        _checks.finite(values, "distances")
        return cls(tuple(table), measures, values.astype(np.float64))

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Convert the table to nested dictionaries.

        Returns
        -------
        dict of str to dict of str to float
            Distance by OOD set and measure.
        """
        table = {}
        for name, row in zip(self.sets, self.values.tolist(), strict=True):
            table[name] = dict(zip(self.measures, row, strict=True))
        return table


@dataclass(frozen=True)
class Strata:
    """Hold OOD sets by proximity.

    Parameters
    ----------
    groups : dict of str to tuple of str
        Names of the sets in near, mid and far.
    centres : dict of str to float
        Mean standardised distance of each group.
    within : float
        Sum of squares inside the groups.
    runner_up : float
        ``within`` of the second-best partition; when it is hardly larger, the division is a matter of chance.
    total : float
        Sum of squares of all sets.
    """

    groups: dict[str, tuple[str, ...]]
    centres: dict[str, float]
    within: float
    runner_up: float
    total: float

    def of(self, name: str) -> str:
        """Look up the group of a set.

        Parameters
        ----------
        name : str
            The OOD set.

        Returns
        -------
        str
            ``"near"``, ``"mid"`` or ``"far"``.

        Raises
        ------
        UnknownName
            If the set is in no group.
        """
        known: list[str] = []
        for group, members in self.groups.items():
            if name in members:
                return group
            known += members
        raise UnknownName.of("OOD set", name, known)


def distances(
    id_embeddings: ArrayLike,
    id_labels: ArrayLike,
    sets: Mapping[str, ArrayLike],
    *,
    text: ArrayLike | None = None,
    kind: Literal["angular", "cosine"] = "angular",
) -> Distances:
    """Compute the Frechet, MMD, centroid and, with class texts, text distance of every OOD set from the ID set.

    Rows are scaled to length 1 first, as in the study. What depends on the ID set alone is computed once.

    Parameters
    ----------
    id_embeddings : array-like of shape (n_id, n_columns)
        Embeddings of the ID set.
    id_labels : array-like of int, shape (n_id,)
        Classes of the ID set.
    sets : mapping of str to array-like of shape (n_rows, n_columns)
        Embeddings of each OOD set, at least two rows each.
    text : array-like of shape (n_classes, n_columns), optional
        Embeddings of class texts, one row per ID class.
    kind : {"angular", "cosine"}, default="angular"
        Distance to the centroids, as in :func:`centroid`.

    Returns
    -------
    Distances
        A row per OOD set.

    Raises
    ------
    InvalidInput
        If there is no OOD set, a set has fewer than two rows or a row of zeros, or the numbers of columns differ.

    Examples
    --------
    >>> found = distances([[1, 0], [0, 1], [1, 0.1]], [0, 1, 0], {"far": [[-1, 0.2], [-1, -0.2]]})
    >>> found.measures, found.values.shape
    (('frechet', 'mmd', 'centroid'), (1, 3))
    """
    if not isinstance(sets, Mapping) or not sets:
        raise InvalidInput(f"sets must map names of OOD sets to embeddings, at least one, got {type(sets).__name__}")
    known = _normalise(_check_rows(id_embeddings, "id_embeddings", least=2), "id_embeddings")
    width = known.shape[1]
    gaussian = _fit_gaussian(known)
    centres = _class_directions(known, id_labels)
    kernel = _make_kernel(width, 3, 1.0, "dim")
    known_similarity = kernel.within(known)
    texts = None
    if text is not None:
        texts = _normalise(_check_rows(text, "text", width=width), "text")
    table: dict[str, dict[str, float]] = {}
    for name, embeddings in sets.items():
        label = f"sets[{name!r}]"
        rows = _normalise(_check_rows(embeddings, label, least=2, width=width), label)
        table[name] = {
            "frechet": _frechet_distance(gaussian, _fit_gaussian(rows)),
            "mmd": known_similarity + kernel.within(rows) - 2.0 * kernel.between(known, rows),
            "centroid": _centroid_distance(rows, centres, kind),
        }
        if texts is not None:
            table[name]["text"] = _text_distance(rows, texts)
    return Distances.of(table)


def strata(distances: Distances, *, groups: int = 3) -> Strata:
    """Find the best division of the OOD sets of one source into near, mid and far (or near and far).

    Every measure is standardised over the sets (one that is equal everywhere is left out). Of all partitions into
    non-empty groups the one with the least sum of squares inside groups is taken: the optimum that k-means looks for,
    without its dependence on a start. Groups are ordered by their mean standardised distance.

    Parameters
    ----------
    distances : Distances
        Distances of at most 14 OOD sets.
    groups : {2, 3}, default=3
        2 for near and far, 3 for near, mid and far.

    Returns
    -------
    Strata
        The division.

    Raises
    ------
    InvalidInput
        If ``groups`` is neither 2 nor 3, there are fewer sets than groups or more than 14, or all distances are equal.

    Notes
    -----
    Equal partitions, and equal groups, are decided by the names of the sets, so their order never matters.

    Examples
    --------
    >>> table = {"a": {"d": 0.1}, "b": {"d": 9.0}, "c": {"d": 0.2}, "e": {"d": 5.0}}
    >>> strata(Distances.of(table)).groups
    {'near': ('a', 'c'), 'mid': ('e',), 'far': ('b',)}
    """
    if groups not in NAMES:
        raise InvalidInput(f"groups must be 2 (near, far) or 3 (near, mid, far), got {groups!r}")
    count = len(distances.sets)
    if not groups <= count <= MOST_SETS:
        raise InvalidInput(
            f"{groups} groups need {groups} to {MOST_SETS} OOD sets (all partitions are compared), got {count}"
        )
    order = sorted(range(count), key=lambda place: distances.sets[place])
    names = [distances.sets[place] for place in order]
    standardised = _standardise(distances.values[order])
    total = float((standardised**2).sum())
    if total == 0.0:
        raise InvalidInput("all OOD sets have the same distances; there is nothing to divide them by")
    partitions = _list_partitions(count, groups)
    within = total - _explained_squares(partitions, standardised, groups)
    best = int(np.argmax(within <= within.min() + 1e-9 * total))  # the first of equals, in the order of names
    labels = partitions[best]
    centres = [float(standardised[labels == group].mean()) for group in range(groups)]
    near_to_far = sorted(range(groups), key=lambda group: (round(centres[group], 9), int(np.argmax(labels == group))))
    members: dict[str, tuple[str, ...]] = {}
    centre_of: dict[str, float] = {}
    for title, group in zip(NAMES[groups], near_to_far, strict=True):
        members[title] = tuple(names[place] for place in np.flatnonzero(labels == group))
        centre_of[title] = centres[group]
    runner_up = math.inf
    if len(within) > 1:
        runner_up = max(float(np.delete(within, best).min()), 0.0)
    return Strata(
        groups=members,
        centres=centre_of,
        within=max(float(within[best]), 0.0),
        runner_up=runner_up,
        total=total,
    )


class Clip(NamedTuple):
    """Hold a CLIP model with its image transform and tokenizer, as open_clip returns them.

    Parameters
    ----------
    model : torch.nn.Module
        The model in evaluation mode.
    preprocess : callable
        Transform from a PIL image to a tensor.
    tokenizer : callable
        Function from a list of texts to a tensor of tokens.
    """

    model: Any
    preprocess: Callable[[object], Any]
    tokenizer: Callable[[Sequence[str]], Any]


def clip(folder: str | Path) -> Clip:
    """Load a CLIP model from a local folder through open_clip; nothing is downloaded.

    ``model.encode_image`` on images that went through ``preprocess`` computes embeddings, and
    ``model.encode_text(tokenizer([...]))``, averaged over the prompts of a class, the class texts.

    Parameters
    ----------
    folder : str or Path
        A folder in the layout of open_clip's hub models: ``open_clip_config.json`` beside
        ``open_clip_model.safetensors``.

    Returns
    -------
    Clip
        Model, image transform and tokenizer.

    Raises
    ------
    MissingExtra
        If open_clip is not installed.
    InvalidInput
        If a file is missing, the model cannot be loaded, or its text model would have to be downloaded.
    """
    folder = Path(folder)
    try:
        open_clip = import_module("open_clip")
    except ImportError as error:
        raise MissingExtra("CLIP embeddings need open_clip: pip install open_clip_torch") from error
    for file in ("open_clip_config.json", "open_clip_model.safetensors"):
        if not (folder / file).is_file():
            raise InvalidInput(f"{folder} holds no {file}; give the folder of a model saved by open_clip")
    try:
        config = json.loads((folder / "open_clip_config.json").read_bytes())["model_cfg"]
        if "hf_model_name" in config["text_cfg"]:
            raise InvalidInput(
                f"{folder} names a text model that open_clip would download; take a self-contained model"
            )
        model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
        tokenizer = open_clip.get_tokenizer(f"local-dir:{folder}")
    except InvalidInput:
        raise
    except Exception as error:  # open_clip, torch and safetensors each raise their own kinds
        raise InvalidInput(f"{folder} cannot be loaded by open_clip: {type(error).__name__}: {error}") from error
    return Clip(model.eval(), preprocess, tokenizer)


class _Gaussian(NamedTuple):
    mean: Array
    trace: float
    half: Array  # (R, D), half.T @ half is the covariance


class _Kernel(NamedTuple):
    """Average a polynomial kernel over all pairs, a block at a time."""

    degree: int
    coef0: float
    scale: float

    def between(self, a: Floats, b: Floats) -> float:
        """Average k over all pairs of a row of ``a`` and a row of ``b``."""
        total = 0.0
        for x in _blocks(a):
            for y in _blocks(b):
                total += float(self(x, y).sum())
        return total / (len(a) * len(b))

    def within(self, a: Floats) -> float:
        """Average k over all pairs of two different rows; each block above the diagonal counts twice."""
        total = 0.0
        for i, x in enumerate(_blocks(a)):
            own = self(x, x)
            total += float(own.sum() - np.trace(own))
            above = 0.0
            for y in _blocks(a[(i + 1) * BLOCK :]):
                above += float(self(x, y).sum())
            total += 2.0 * above
        return total / (len(a) * (len(a) - 1))

    def __call__(self, x: Array, y: Array) -> Array:
        base = (self.scale * x) @ y.T + self.coef0
        result = base.copy()
        for _ in range(self.degree - 1):
            result *= base
        return result


def _make_kernel(width: int, degree: int, coef0: float, scale: float | str) -> _Kernel:
    if isinstance(scale, str):
        _checks.choice(scale, "scale", ("dim",))
        factor = 1.0 / width
    else:
        factor = _checks.number(scale, "scale", 0.0, np.inf, open_low=True, open_high=True)
    shift = _checks.number(coef0, "coef0", 0.0, np.inf, open_high=True)
    return _Kernel(_checks.whole(degree, "degree", 1), shift, factor)


def _check_rows(value: ArrayLike, name: str, *, least: int = 1, width: int | None = None) -> Floats:
    rows = _checks.floats(value, name, ndim=2)
    _checks.finite(rows, name)
    if len(rows) < least:
        raise InvalidInput(f"{name} must have at least {least} rows, got {len(rows)}")
    if width is not None and rows.shape[1] != width:
        raise InvalidInput(f"{name} has {rows.shape[1]} columns, the ID embeddings {width}; use one model for both")
    return rows


def _check_pair(
    a: ArrayLike, b: ArrayLike, *, least: int = 1, names: tuple[str, str] = ("a", "b")
) -> tuple[Floats, Floats]:
    """Check two sets of rows of the same width."""
    one = _check_rows(a, names[0], least=least)
    two = _check_rows(b, names[1], least=least)
    if one.shape[1] != two.shape[1]:
        raise InvalidInput(
            f"{names[0]} has {one.shape[1]} columns and {names[1]} {two.shape[1]}; use one model for both"
        )
    return one, two


def _blocks(rows: Floats) -> Iterator[Array]:
    for start in range(0, len(rows), BLOCK):
        yield np.asarray(rows[start : start + BLOCK], dtype=np.float64)


def _normalise(rows: Floats, name: str) -> Array:
    """Scale rows to length 1; a row of zeros has no direction and is an error."""
    empty = ~rows.any(axis=1)
    if empty.any():
        raise InvalidInput(f"{name} has a row of zeros (row {int(empty.argmax())}), which has no direction; drop it")
    return unit(rows)


def _fit_gaussian(rows: Floats) -> _Gaussian:
    mean = rows.mean(axis=0, dtype=np.float64)
    scatter = np.zeros((rows.shape[1], rows.shape[1]))
    for block in _blocks(rows):
        away = block - mean
        scatter += away.T @ away
    scatter /= len(rows) - 1
    values, vectors = np.linalg.eigh(scatter)
    kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
    half = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    return _Gaussian(mean, float(np.trace(scatter)), half)


def _frechet_distance(a: _Gaussian, b: _Gaussian) -> float:
    overlap = 0.0
    if len(a.half) and len(b.half):
        overlap = float(np.linalg.svd(a.half @ b.half.T, compute_uv=False).sum())
    gap = a.mean - b.mean
    return max(float(gap @ gap) + a.trace + b.trace - 2.0 * overlap, 0.0)


def _class_directions(rows: Floats, labels: ArrayLike) -> Array:
    """Compute one direction per class that has rows."""
    truth = _checks.labels(labels, "id_labels", ood=False)
    _checks.same_rows(id_labels=truth, id_embeddings=rows)
    _, index = np.unique(truth, return_inverse=True)
    sizes = np.bincount(index)
    sorted_rows = _normalise(rows, "id_embeddings")[np.argsort(index, kind="stable")]
    means = np.add.reduceat(sorted_rows, np.cumsum(sizes) - sizes, axis=0) / sizes[:, None]
    if (np.linalg.norm(means, axis=1) < TINY).any():
        raise InvalidInput("the embeddings of an ID class cancel out; its centroid has no direction")
    return unit(means)


def _centroid_distance(rows: Floats, centres: Array, kind: str) -> float:
    _checks.choice(kind, "kind", ("angular", "cosine"))
    cosines = _nearest_cosine(rows, centres)
    if kind == "angular":
        return float(np.arccos(cosines).mean())
    return float((1.0 - cosines).mean())


def _text_distance(rows: Floats, texts: Array) -> float:
    return float((1.0 - _nearest_cosine(rows, texts)).mean())


def _nearest_cosine(rows: Floats, prototypes: Array) -> Array:
    """Compute the cosine between each row and the prototype nearest to it."""
    nearest = []
    for block in _blocks(rows):
        cosines = _normalise(block, "embeddings") @ prototypes.T
        nearest.append(np.clip(cosines.max(axis=1), -1.0, 1.0))
    return np.concatenate(nearest)


def _standardise(values: Array) -> Array:
    """Scale columns to mean 0 and variance 1; columns that do not vary are left out."""
    away = values - values.mean(axis=0)
    spread = np.sqrt((away**2).mean(axis=0))
    varies = spread > 1e-12 * np.abs(values).max(axis=0)
    return away[:, varies] / spread[varies]


def _list_partitions(count: int, groups: int) -> npt.NDArray[np.int8]:
    """List every partition of ``count`` things into exactly ``groups`` groups once: labels appear in order 0, 1, 2."""
    rows = np.zeros((1, 1), dtype=np.int8)
    for _ in range(count - 1):
        options = np.minimum(rows.max(axis=1) + 2, groups).astype(np.int64)
        parent = np.repeat(np.arange(len(rows)), options)
        label = np.arange(len(parent)) - np.repeat(np.cumsum(options) - options, options)
        rows = np.column_stack([rows[parent], label.astype(np.int8)])
    return rows[rows.max(axis=1) == groups - 1]


def _explained_squares(partitions: npt.NDArray[np.int8], standardised: Array, groups: int) -> Array:
    """Sum over groups size times squared centre: what the groups explain of the total sum of squares."""
    explained = np.zeros(len(partitions))
    for group in range(groups):
        member = (partitions == group).astype(np.float64)
        explained += ((member @ standardised) ** 2).sum(axis=1) / member.sum(axis=1)
    return explained
