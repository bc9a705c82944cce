r"""Scores that look the training rows up: nearest neighbours, guidance by them, relations to all of them.

Notation: :math:`\hat h = h / \lVert h \rVert` the unit feature, :math:`\hat h_i` those of the bank of training rows.

The search is exact: one blocked product in float32 finds the candidates, and what float32 cannot tell apart is
settled in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._checks import Array, Labels
from twofold._math import Floats, softmax
from twofold._statistics.moments import blocks
from twofold._statistics.shared import once
from twofold.errors import InvalidInput, MissingExtra
from twofold.outputs import Outputs
from twofold.steps import Chain, parts, register_score, scorer, state

Places = npt.NDArray[np.int64]

TILE = (1024, 4096)  # queries and rows of the bank in one product
SPARE = 6  # candidates beyond the k-th, for those that float32 confuses; many more where they do not suffice
TINY = 1e-12


def unit(rows: Floats) -> Floats:
    """Rows of length 1 in float64 if that is what they were, else in float32; rows of zeros stay."""
    precision = np.float64 if rows.dtype == np.float64 else np.float32
    result = np.empty(rows.shape, precision)
    first = 0
    for (h,) in blocks(rows):
        result[first : first + len(h)] = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), TINY)
        first += len(h)
    return result


@once
def _whole_bank(features: Floats) -> Floats:
    bank = unit(features)
    bank.flags.writeable = False
    return bank


@once
def _sampled_bank(features: Floats, classes: Labels, rows: int, seed: int) -> Floats:
    bank = unit(np.asarray(features[stratified(classes, rows, seed)]))
    bank.flags.writeable = False
    return bank


def _bank(features: Floats, classes: Labels, rows: int, seed: int) -> Floats:
    """Unit training rows: all of them, or a stratified sample; the same object whenever it is asked for again."""
    return _whole_bank(features) if rows >= len(features) else _sampled_bank(features, classes, rows, seed)


def stratified(classes: Labels, rows: int, seed: int) -> Places:
    """A random sample of ``rows`` places, each class in proportion, in the order of the set.

    >>> np.bincount(np.array([0, 0, 1, 1, 1, 1])[stratified(np.array([0, 0, 1, 1, 1, 1]), 3, seed=0)])
    array([1, 2])
    """
    rng = np.random.default_rng(seed)
    mixed = rng.permutation(len(classes))
    mixed = mixed[np.argsort(np.asarray(classes)[mixed], kind="stable")]  # by class, at random inside
    every = np.floor((np.arange(rows) + 0.5) * len(classes) / rows).astype(np.int64)
    return np.sort(mixed[every])


def _share(fraction: float | None, total: int) -> int:
    """How many rows of the training set the bank holds; by default at most 50,000."""
    if fraction is None:
        return min(total, 50_000)
    return max(1, round(total * _checks.number(fraction, "fraction", 0.0, 1.0, open_low=True)))


# The search


def _candidates(
    bank: Floats, queries: Floats, k: int, scale: Array | None, shift: Array | None
) -> tuple[npt.NDArray[np.float32], Places]:
    """Values and places of the k largest ``scale * (query . row) + shift`` of each query in float32, largest first."""
    from twofold._kernels import keep_largest

    factor, offset = np.empty(0, np.float32), np.empty(0, np.float32)  # empty: 1 and 0
    if scale is not None or shift is not None:
        factor = np.ones(len(bank), np.float32) if scale is None else scale.astype(np.float32)
        offset = np.zeros(len(bank), np.float32) if shift is None else shift.astype(np.float32)
    values = np.full((len(queries), k), -np.inf, np.float32)
    places = np.zeros((len(queries), k), np.int64)
    asked = queries.astype(np.float32)
    tall, wide = TILE
    room = np.empty(min(tall, len(queries)) * min(wide, len(bank)), np.float32)
    for j in range(0, len(bank), wide):
        rows = np.asarray(bank[j : j + wide], dtype=np.float32)
        for i in range(0, len(queries), tall):
            some = slice(i, i + tall)
            products = room[: len(asked[some]) * len(rows)].reshape(-1, len(rows))
            np.matmul(asked[some], rows.T, out=products)
            keep_largest(products, factor[j : j + wide], offset[j : j + wide], j, values[some], places[some])
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(places, order, axis=1)


def _exact(
    bank: Floats, queries: Floats, rows: Places, columns: Places, scale: Array | None, shift: Array | None
) -> Array:
    """The value of single pairs of query and bank row, in float64."""
    result = np.empty(len(rows))
    for first in range(0, len(rows), 4096):
        part = slice(first, first + 4096)
        picked = np.asarray(bank[columns[part]], dtype=np.float64)
        result[part] = np.einsum("nd,nd->n", queries[rows[part]], picked)
    return _affine(result, columns, scale, shift)


def _affine(values: Array, columns: Any, scale: Array | None, shift: Array | None) -> Array:
    if scale is not None:
        values = values * scale[columns]
    return values if shift is None else values + shift[columns]


def largest(
    bank: Floats,
    queries: Floats,
    k: int,
    *,
    only: Sequence[int] = (),
    scale: Array | None = None,
    shift: Array | None = None,
    spare: int = SPARE,
) -> tuple[Array, Places]:
    """The k largest ``scale * (query . row) + shift`` over the bank, in float64 and largest first, and their places.

    With ``only``, just those ranks (counted from 1) are exact, which saves most of the float64 work. Rows must have
    length 1 at most or, with ``shift``, a squared length of at most twice its size, as where products become distances.
    """
    if k > len(bank):
        raise InvalidInput(f"k={k} neighbours were asked for, and the bank has {len(bank)} rows; choose a smaller k")
    held = min(len(bank), k + spare)
    rough, places = _candidates(bank, queries, held, scale, shift)
    reach = np.linalg.norm(queries, axis=1) * (1.0 if scale is None else float(np.abs(scale).max()))
    if shift is not None:
        reach = reach * float(np.sqrt(np.abs(shift)).max()) + float(np.abs(shift).max())
    doubt = (4.8e-7 * np.sqrt(queries.shape[1]) * reach)[:, None]  # many times the rounding error of a float32 product
    values = rough.astype(np.float64)
    if only:
        levels = values[:, [rank - 1 for rank in only]]
        near = (np.abs(values[:, :, None] - levels[:, None, :]) <= doubt[:, :, None]).any(axis=2)
    else:
        levels = values[:, k - 1 : k]
        near = values >= levels - doubt
    rows, columns = np.nonzero(near)
    values[rows, columns] = _exact(bank, queries, rows, places[rows, columns], scale, shift)
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    values, places = np.take_along_axis(values, order, axis=1), np.take_along_axis(places, order, axis=1)
    # where more is within doubt than is held, search those rows again and hold more
    crowded = np.flatnonzero(rough[:, -1] >= levels.min(axis=1) - doubt[:, 0]) if held < len(bank) else ()
    if len(crowded):
        more = largest(bank, queries[crowded], k, only=only, scale=scale, shift=shift, spare=16 * spare)
        values[crowded], places[crowded] = more
    return values, places


def _check_neighbours(k: int, bank: Floats) -> None:
    """Raise unless a loaded bank has rows for k neighbours."""
    if _checks.whole(k, "k", 1) > len(bank):
        raise InvalidInput(f"bank has {len(bank)} rows, too few for k={k}")


# The scores


@register_score(
    "knn",
    paper="Sun et al., ICML 2022, arXiv:2204.06507",
    aliases=("deep_knn",),
    cost="ND",
    grid={"k": (50, 100, 200, 500, 1000)},
)
@dataclass(frozen=True, eq=False)
class Neighbours:
    r"""Negative squared distance to the k-th nearest training row, between unit features.

    .. math:: s = -\lVert \hat h - \hat h_{(k)} \rVert^2 = 2 \langle \hat h, \hat h_{(k)} \rangle - 2

    By default k = 50, or 1000 for more than 100,000 training rows, and never more than there are. The bank holds all
    training rows, or a stratified random ``fraction`` of them (more than 100,000 need much memory). ``index`` is
    ``"exact"``, ``"faiss"`` (a flat index), or a function of the width that makes any index with ``add(rows)`` and
    ``search(rows, k)`` giving values and places; distances are recomputed from the places. FD-Shifts neither normalises
    nor takes more than the first 1000 rows: another score. A feature of zeros has s = -2.

    >>> h = np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 3.0]])
    >>> Neighbours(k=1).fit(h, np.zeros(3, int)).score(np.array([[2.0, 0.0], [1.0, 1.0]])).round(6) + 0.0
    array([0., 0.])
    """

    k: int | None = None
    fraction: float = 1.0
    index: str | Callable[[int], Any] = "exact"
    seed: int = 0
    bank: Floats = state("M D")  # unit rows

    def fit(self, features: Floats, predictions: Labels, labels: Labels | None = None) -> Self:
        """Normalise and keep the rows."""
        if not callable(self.index):
            _checks.choice(self.index, "index", ("exact", "faiss"))
        classes = predictions if labels is None else labels
        bank = _bank(features, classes, _share(self.fraction, len(features)), self.seed)
        fitted = replace(self, bank=bank)
        if fitted.rank > len(bank):
            raise InvalidInput(f"knn(k={self.k}): the bank has {len(bank)} rows; choose a smaller k")
        return fitted

    def check_state(self) -> None:
        """Raise unless the bank has enough rows."""
        _check_neighbours(self.rank, self.bank)

    @property
    def rank(self) -> int:
        """k, or its default for this bank."""
        if self.k is not None:
            return _checks.whole(self.k, "k", 1)
        return min(len(self.bank), 50 if len(self.bank) <= 100_000 else 1000)

    def score(self, features: Floats) -> Array:
        """Confidence of each row."""
        return self.together([self], features)[0]

    @classmethod
    def together(cls, fitted: Sequence[Self], features: Floats) -> list[Array]:
        """Scores of several settings of k by one search for each bank."""
        queries = unit(np.asarray(features, dtype=np.float64))
        cosines: dict[tuple[int, Any], tuple[list[int], Array]] = {}
        for one in fitted:
            key = (id(one.bank), one.index)
            if key not in cosines:
                ranks = sorted({other.rank for other in fitted if (id(other.bank), other.index) == key})
                cosines[key] = ranks, one._search(queries, ranks)
        found = []
        for one in fitted:
            ranks, table = cosines[(id(one.bank), one.index)]
            found.append(2.0 * table[:, ranks.index(one.rank)] - 2.0)
        return found

    def _search(self, queries: Floats, ranks: list[int]) -> Array:
        """Cosines at the given ranks."""
        if self.index == "exact":
            values, _ = largest(self.bank, queries, ranks[-1], only=ranks)
        else:
            _, places = self._index.search(queries.astype(np.float32), ranks[-1])
            if (np.asarray(places) < 0).any():
                raise InvalidInput(
                    f"the index found fewer than k={ranks[-1]} neighbours; ask for fewer, or widen its search"
                )
            rows = np.repeat(np.arange(len(queries)), ranks[-1])
            exact = _exact(self.bank, queries, rows, np.asarray(places, dtype=np.int64).ravel(), None, None)
            values = -np.sort(-exact.reshape(len(queries), -1), axis=1)
        return values[:, [rank - 1 for rank in ranks]]

    @cached_property
    def _index(self) -> Any:
        if callable(self.index):
            made = self.index(self.bank.shape[1])
        else:
            try:
                import faiss
            except ImportError as error:
                raise MissingExtra(
                    'knn(index="faiss") needs faiss; pip install faiss-cpu, or leave index out'
                ) from error
            made = faiss.IndexFlatIP(self.bank.shape[1])
        made.add(np.ascontiguousarray(self.bank, dtype=np.float32))
        return made


@register_score(
    "nnguide",
    paper="Park, Jung, Teoh, ICCV 2023, arXiv:2309.14888",
    cost="MD",
    grid={"k": (10, 100), "fraction": (0.01, 0.1, 1.0)},
)
@dataclass(frozen=True, eq=False)
class NNGuide:
    r"""A logit score times the guidance of the nearest training rows.

    .. math:: s = S(z) \cdot \frac1k \sum_{i \in \text{top } k} S(z_i) \langle \hat h, \hat h_i \rangle

    S is ``base``, any score of logits. If it is not positive on all training rows, a constant (``shift``) is added
    that makes it so, since a product of two negative numbers would turn the order round. The bank is a random
    ``fraction`` of the training rows, stratified by class (by default all, at most 50,000). OpenOOD takes the first
    rows of a list sorted by class, which is one class only; the authors use k = 10, OpenOOD 100, others the whole bank.

    >>> train = Outputs([[2.0, 0.0], [0.0, 2.0]], features=[[1.0, 0.0], [0.0, 1.0]])
    >>> NNGuide(k=1, base="mls").fit(train, train.features).score(train, train.features)
    array([4., 4.])
    """

    k: int = 10
    fraction: float | None = None
    base: str = "energy"
    seed: int = 0
    chain: tuple[Chain, ...] = parts()
    bank: Floats = state("M D")  # unit rows
    weight: Array = state("M")  # base score of each, shifted
    shift: Array = state("")

    def inner(self) -> tuple[Chain, ...]:
        """The base."""
        return self.chain or (scorer(self.base),)

    def fit(self, outputs: Outputs, features: Floats, val_outputs: Outputs | None = None) -> Self:
        """Bank and base scores of the training set."""
        (blank,) = self.inner()
        if not set(blank.needs) <= {"logits"}:
            raise InvalidInput(
                f"nnguide(base={self.base!r}): the base must need logits alone, not {', '.join(blank.needs)}"
            )
        base = blank.fit(outputs, val=val_outputs)
        classes = np.asarray(outputs.predictions if outputs.labels is None else outputs.labels)
        rows = _share(self.fraction, len(features))
        if _checks.whole(self.k, "k", 1) > rows:
            raise InvalidInput(
                f"nnguide(k={self.k}): the bank has {rows} rows; choose a smaller k or a larger fraction"
            )
        value = base.score(outputs)
        if not np.isfinite(value).all():
            raise InvalidInput(f"nnguide(base={self.base!r}): the base is not finite on all training rows; use another")
        shift = max(0.0, 0.01 * float(value.std()) - float(value.min())) if value.min() <= 0 else 0.0
        kept = value if rows >= len(features) else value[stratified(classes, rows, self.seed)]
        bank = _bank(features, classes, rows, self.seed)
        return replace(self, chain=(base,), bank=bank, weight=kept + shift, shift=np.array(shift))

    def check_state(self) -> None:
        """Raise unless the bank has enough rows."""
        _check_neighbours(self.k, self.bank)

    def score(self, outputs: Outputs, features: Floats) -> Array:
        """Confidence of each row."""
        queries = unit(np.asarray(features, dtype=np.float64))
        guidance, _ = largest(self.bank, queries, self.k, scale=self.weight)
        return (self.chain[0].run(outputs) + self.shift) * guidance.mean(axis=1)


@register_score(
    "relation",
    paper="Kim, Yun, Song, NeurIPS 2023, arXiv:2301.12321",
    cost="M(C + D)",
    grid={"power": (1, 2, 4, 6, 8)},
)
@dataclass(frozen=True, eq=False)
class Relation:
    r"""Sum of the relations to the training rows: alike in feature and in answer.

    .. math:: s = \sum_i r_i^q [r_i > 0.03], \qquad
              r_i = \max(0, \langle \hat h, \hat h_i \rangle) \langle p, p_i \rangle

    with q = ``power``. The bank is a stratified ``fraction`` of the training rows (by default all, at most 50,000).
    Features in float32 are multiplied in float32, which keeps six digits.

    >>> h, z = np.eye(2), np.array([[9.0, 0.0], [0.0, 9.0]])
    >>> Relation().fit(h, z, np.array([0, 1])).score(h, z).round(3)
    array([1., 1.])
    """

    power: float = 1.0
    fraction: float | None = None
    seed: int = 0
    bank: Floats = state("M D")  # unit rows
    answers: Floats = state("M C")  # probabilities

    def fit(self, features: Floats, logits: Floats, predictions: Labels, labels: Labels | None = None) -> Self:
        """Unit rows and their probabilities."""
        _checks.number(self.power, "power", 0.0, np.inf, open_low=True, open_high=True)
        classes, rows = predictions if labels is None else labels, _share(self.fraction, len(features))
        bank = _bank(features, classes, rows, self.seed)
        kept = logits if rows >= len(features) else logits[stratified(classes, rows, self.seed)]
        return replace(self, bank=bank, answers=softmax(kept).astype(bank.dtype))

    def score(self, features: Floats, logits: Floats) -> Array:
        """Confidence of each row."""
        queries = unit(np.asarray(features, dtype=np.float64)).astype(self.bank.dtype)
        answer = softmax(logits).astype(self.bank.dtype)
        result = np.zeros(len(queries))
        tall, wide = TILE
        for j in range(0, len(self.bank), wide):
            for i in range(0, len(queries), tall):
                relation = queries[i : i + tall] @ self.bank[j : j + wide].T
                np.maximum(relation, 0.0, out=relation)
                relation *= answer[i : i + tall] @ self.answers[j : j + wide].T
                relation *= relation > 0.03
                if self.power != 1:
                    np.power(relation, self.power, out=relation)
                result[i : i + tall] += relation.sum(axis=1, dtype=np.float64)
        return result


@register_score(
    "lof",
    paper="Breunig et al., SIGMOD 2000",
    aliases=("local_outlier_factor",),
    cost="MD",
    grid={"k": (10, 20, 50)},
)
@dataclass(frozen=True, eq=False)
class LocalOutlierFactor:
    r"""Negative local outlier factor: density at the sample against the density at its neighbours.

    .. math:: s = -\frac1k \sum_{i \in \text{top } k} \frac{\rho_i}{\rho}, \qquad
              \rho = \left[ \frac1k \sum_{i \in \text{top } k} \max(d_i, d^{(k)}_i) \right]^{-1}

    with :math:`d_i` the Euclidean distance to training row i and :math:`d^{(k)}_i` that of row i to its own k-th
    neighbour. Equals scikit-learn's ``LocalOutlierFactor(novelty=True).score_samples``; the search is ours. Fitting
    compares all pairs, so a stratified sample of at most ``rows`` training rows is kept.

    >>> h = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> fitted = LocalOutlierFactor(k=2).fit(h, np.zeros(5, int))
    >>> bool(fitted.score(np.array([[2.0]])) > fitted.score(np.array([[9.0]])))
    True
    """

    k: int = 20
    rows: int = 20_000
    seed: int = 0
    centre: Array = state("D")
    bank: Floats = state("M D")  # rows less the centre
    reach: Array = state("M")  # distance of each to its k-th neighbour
    density: Array = state("M")

    def fit(self, features: Floats, predictions: Labels, labels: Labels | None = None) -> Self:
        """Distances and densities among the training rows."""
        k, rows = _checks.whole(self.k, "k", 1), min(_checks.whole(self.rows, "rows", 2), len(features))
        if k >= rows:
            raise InvalidInput(f"lof(k={k}): each of {rows} training rows has {rows - 1} others; choose a smaller k")
        kept = np.arange(rows)
        if rows < len(features):
            kept = stratified(predictions if labels is None else labels, rows, self.seed)
        h = np.asarray(features[kept], dtype=np.float64)
        bank = h - h.mean(axis=0)
        fitted = replace(self, centre=h.mean(axis=0), bank=bank)
        distance, places = np.empty((rows, k)), np.empty((rows, k), np.int64)
        for first in range(0, rows, 4096):
            here = np.arange(first, min(first + 4096, rows))
            far, where = fitted._distances(bank[here], k + 1)
            own = where == here[:, None]
            own[~own.any(axis=1), -1] = True  # hidden among equals: any of them is left out
            distance[here], places[here] = far[~own].reshape(-1, k), where[~own].reshape(-1, k)
        reach = distance[:, -1]
        density = 1.0 / (np.maximum(distance, reach[places]).mean(axis=1) + 1e-10)
        return replace(fitted, reach=reach, density=density)

    def check_state(self) -> None:
        """Raise unless the bank has enough rows."""
        _check_neighbours(self.k, self.bank)

    def score(self, features: Floats) -> Array:
        """Confidence of each row."""
        distance, places = self._distances(np.asarray(features, dtype=np.float64) - self.centre, self.k)
        density = 1.0 / (np.maximum(distance, self.reach[places]).mean(axis=1) + 1e-10)
        return -(self.density[places]).mean(axis=1) / density

    def _distances(self, queries: Array, k: int) -> tuple[Array, Places]:
        """Distances to the k nearest rows, nearest first, and their places."""
        length = np.einsum("nd,nd->n", self.bank, self.bank)
        _, places = largest(self.bank, queries, k, scale=np.full(len(self.bank), 2.0), shift=-length)
        away = np.stack([np.linalg.norm(q - self.bank[p], axis=1) for q, p in zip(queries, places, strict=True)])
        order = np.argsort(away, axis=1, kind="stable")
        return np.take_along_axis(away, order, axis=1), np.take_along_axis(places, order, axis=1)
