r"""Scores that compare a feature with the training rows: nearest neighbours, guidance by them, relations to all.

Notation: :math:`\hat h = h / \lVert h \rVert` the unit feature, :math:`\hat h_i` those of the bank of training rows.

The search is exact: one blocked product in float32 finds the candidates, and those that float32 cannot distinguish
are recomputed in float64.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._math import TINY, softmax
from twofold.errors import InvalidInput, MissingExtra
from twofold.outputs import Outputs
from twofold.scores._fitting.moments import blocks
from twofold.scores._fitting.shared import once
from twofold.scores.chain import Chain, scorer
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, StepHooks, chain_state, state

Places = npt.NDArray[np.int64]
F = TypeVar("F", bound=np.floating[Any])

TILE = (1024, 4096)  # queries and rows of the bank in one product
SPARE = 6  # candidates beyond the k-th, which float32 may misorder; largest() takes more where these are too few


def unit(rows: Floats) -> Floats:
    """Scale rows to length 1; rows of zeros stay zero.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Rows to normalise, of any floating type.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        Unit rows, in float64 if ``rows`` is float64, else in float32.

    Examples
    --------
    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    precision = np.float64 if rows.dtype == np.float64 else np.float32
    result = np.empty(rows.shape, precision)
    first = 0
    for (h,) in blocks(rows):
        result[first : first + len(h)] = h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), TINY)
        first += len(h)
    return result


@once
def unit_bank(features: Floats) -> Floats:
    """Normalise all training rows, once for all scores.

    Parameters
    ----------
    features : ndarray of shape (n_samples, n_features)
        Training features.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        Unit rows, read-only.

    Examples
    --------
    >>> unit_bank(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    bank = unit(features)
    bank.flags.writeable = False
    return bank


@once
def _sampled_bank(features: Floats, classes: Labels, rows: int, seed: int) -> Floats:
    """Normalise a stratified sample of the training rows."""
    bank = unit(np.asarray(features[draw_stratified(classes, rows, seed)]))
    bank.flags.writeable = False
    return bank


def _bank(features: Floats, classes: Labels, rows: int, seed: int) -> Floats:
    """Return the unit training rows, all or a stratified sample; repeated calls return the same object."""
    if rows >= len(features):
        return unit_bank(features)
    return _sampled_bank(features, classes, rows, seed)


def _select_bank_rows(values: npt.NDArray[F], classes: Labels, rows: int, seed: int) -> npt.NDArray[F]:
    """Return the values of the training rows that :func:`_bank` holds."""
    if rows >= len(values):
        return values
    return values[draw_stratified(classes, rows, seed)]


def known_classes(labels: Labels | None, predictions: Labels) -> Labels:
    """Return the labels, or the predictions where there are none.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,) or None
        Training labels.
    predictions : ndarray of shape (n_samples,)
        Predicted classes of the training rows.

    Returns
    -------
    ndarray of shape (n_samples,)
        Class of each row.

    Examples
    --------
    >>> known_classes(None, np.array([1, 0]))
    array([1, 0])
    """
    return np.asarray(predictions if labels is None else labels)


def draw_stratified(classes: Labels, rows: int, seed: int) -> Places:
    """Draw a random sample of rows with every class in proportion.

    Parameters
    ----------
    classes : ndarray of shape (n_samples,)
        Class of each row.
    rows : int
        Size of the sample.
    seed : int
        Seed of the draw.

    Returns
    -------
    ndarray of shape (rows,)
        Indices of the sampled rows, ascending.

    Examples
    --------
    >>> np.bincount(np.array([0, 0, 1, 1, 1, 1])[draw_stratified(np.array([0, 0, 1, 1, 1, 1]), 3, seed=0)])
    array([1, 2])
    """
    rng = np.random.default_rng(seed)
    mixed = rng.permutation(len(classes))
    mixed = mixed[np.argsort(np.asarray(classes)[mixed], kind="stable")]  # sorted by class, in random order within
    every = np.floor((np.arange(rows) + 0.5) * len(classes) / rows).astype(np.int64)
    return np.sort(mixed[every])


def bank_size(fraction: float | None, total: int, most: int = 50_000) -> int:
    """Return how many training rows a bank holds.

    Parameters
    ----------
    fraction : float or None
        Share of the training rows, in (0, 1]; None for all, at most ``most``.
    total : int
        Number of training rows.
    most : int, default=50_000
        Largest number where no share is given.

    Returns
    -------
    int
        Number of rows, at least 1.

    Raises
    ------
    InvalidInput
        If ``fraction`` is outside (0, 1].

    Examples
    --------
    >>> bank_size(0.5, 90), bank_size(None, 90_000)
    (45, 50000)
    """
    if fraction is None:
        return min(total, most)
    return max(1, round(total * _checks.number(fraction, "fraction", 0.0, 1.0, open_low=True)))


# The search


@dataclass(frozen=True, eq=False)
class Search:
    """Say what to find in a bank: the largest ``scale * (query . row) + shift`` of each query.

    Parameters
    ----------
    k : int
        Number of values for each query.
    only : tuple of int, default=()
        Ranks, counted from 1, that must be exact; this saves most of the float64 work. By default all are exact.
    scale : ndarray of shape (n_rows,), optional
        Factor of each bank row; by default 1.
    shift : ndarray of shape (n_rows,), optional
        Offset of each bank row; by default 0.
    spare : int, default=6
        Candidates to hold beyond the k-th. Where too many are within rounding error, the search is repeated with 16
        times as many.
    """

    k: int
    only: tuple[int, ...] = ()
    scale: Array | None = None
    shift: Array | None = None
    spare: int = SPARE

    def held(self, rows: int) -> int:
        """Return how many candidates the search holds in a bank of so many rows.

        Parameters
        ----------
        rows : int
            Number of rows in the bank.

        Returns
        -------
        int
            At most ``rows``.
        """
        return min(rows, self.k + self.spare)

    def affine(self, rows: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return factor and offset of each bank row in float32; both are empty where they are 1 and 0.

        Parameters
        ----------
        rows : int
            Number of rows in the bank.

        Returns
        -------
        factor, offset : ndarray of float32, shape (rows,) or (0,)
            What products are multiplied by, and what is added.
        """
        if self.scale is None and self.shift is None:
            return np.empty(0, np.float32), np.empty(0, np.float32)
        factor = np.ones(rows, np.float32) if self.scale is None else self.scale.astype(np.float32)
        offset = np.zeros(rows, np.float32) if self.shift is None else self.shift.astype(np.float32)
        return factor, offset


Candidates = tuple[npt.NDArray[np.float32], Places]


def _candidates(bank: Floats, queries: Floats, searches: Sequence[Search]) -> list[Candidates]:
    """Return the candidates of each search in float32 and their indices, largest first, from one product."""
    from twofold._kernels import keep_largest

    affine, values, places = [], [], []
    for search in searches:
        held = search.held(len(bank))
        affine.append(search.affine(len(bank)))
        values.append(np.full((len(queries), held), -np.inf, np.float32))
        places.append(np.zeros((len(queries), held), np.int64))
    asked = queries.astype(np.float32)
    tall, wide = TILE
    room = np.empty(min(tall, len(queries)) * min(wide, len(bank)), np.float32)
    for j in range(0, len(bank), wide):
        rows = np.asarray(bank[j : j + wide], dtype=np.float32)
        for i in range(0, len(queries), tall):
            some = slice(i, i + tall)
            products = room[: len(asked[some]) * len(rows)].reshape(-1, len(rows))
            np.matmul(asked[some], rows.T, out=products)
            for (factor, offset), value, place in zip(affine, values, places, strict=True):
                keep_largest(products, factor[j : j + wide], offset[j : j + wide], j, value[some], place[some])
    found = []
    for value, place in zip(values, places, strict=True):
        order = np.argsort(-value, axis=1, kind="stable")
        found.append((np.take_along_axis(value, order, axis=1), np.take_along_axis(place, order, axis=1)))
    return found


def _exact(
    bank: Floats, queries: Floats, rows: Places, columns: Places, scale: Array | None, shift: Array | None
) -> Array:
    """Compute the value of single pairs of query and bank row in float64."""
    result = np.empty(len(rows))
    for first in range(0, len(rows), 4096):
        part = slice(first, first + 4096)
        picked = np.asarray(bank[columns[part]], dtype=np.float64)
        result[part] = np.einsum("nd,nd->n", queries[rows[part]], picked)
    return _affine(result, columns, scale, shift)


def _affine(values: Array, columns: Places, scale: Array | None, shift: Array | None) -> Array:
    """Multiply and shift products by the factor and offset of their bank rows."""
    if scale is not None:
        values = values * scale[columns]
    if shift is not None:
        values = values + shift[columns]
    return values


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
    """Find the k largest ``scale * (query . row) + shift`` over the bank for each query.

    Candidates come from a blocked product in float32. Those that float32 cannot distinguish are recomputed in float64,
    so the search is exact.

    Parameters
    ----------
    bank : ndarray of shape (n_rows, n_features)
        Rows to search. Their length must be at most 1 or, with ``shift``, their squared length at most twice its size,
        as where products become distances.
    queries : ndarray of shape (n_samples, n_features)
        Rows to search for.
    k : int
        Number of values for each query.
    only : sequence of int, default=()
        Ranks, counted from 1, that must be exact; this saves most of the float64 work. By default all are exact.
    scale : ndarray of shape (n_rows,), optional
        Factor of each bank row; by default 1.
    shift : ndarray of shape (n_rows,), optional
        Offset of each bank row; by default 0.
    spare : int, default=6
        Candidates to hold beyond the k-th. Where too many are within rounding error, the search is repeated with 16
        times as many.

    Returns
    -------
    values : ndarray of shape (n_samples, k)
        The values in float64, largest first.
    places : ndarray of shape (n_samples, k)
        Their rows in the bank.

    Raises
    ------
    InvalidInput
        If ``k`` exceeds the number of bank rows.

    Examples
    --------
    >>> values, places = largest(np.eye(3), np.array([[0.0, 2.0, 1.0]]), 2)
    >>> values, places
    (array([[2., 1.]]), array([[1, 2]]))
    """
    return search_together(bank, queries, [Search(k, tuple(only), scale, shift, spare)])[0]


def search_together(bank: Floats, queries: Floats, searches: Sequence[Search]) -> list[tuple[Array, Places]]:
    """Find the largest values of several searches in one bank, as :func:`largest` does, from one product.

    Parameters
    ----------
    bank : ndarray of shape (n_rows, n_features)
        Rows to search, as :func:`largest` takes them.
    queries : ndarray of shape (n_samples, n_features)
        Rows to search for.
    searches : sequence of Search
        What to find.

    Returns
    -------
    list of tuple of two ndarray of shape (n_samples, k)
        For each search its values in float64, largest first, and their rows in the bank.

    Raises
    ------
    InvalidInput
        If a search asks for more values than the bank has rows.

    Examples
    --------
    >>> searches = [Search(1), Search(1, scale=np.array([3.0, 1.0, 1.0]))]
    >>> [places for _, places in search_together(np.eye(3), np.array([[1.0, 2.0, 0.0]]), searches)]
    [array([[1]]), array([[0]])]
    """
    for search in searches:
        if search.k > len(bank):
            raise InvalidInput(
                f"k={search.k} neighbours were asked for, and the bank has {len(bank)} rows; choose a smaller k"
            )
    found = _candidates(bank, queries, searches)
    return [_settle(bank, queries, search, *rough) for search, rough in zip(searches, found, strict=True)]


def _settle(
    bank: Floats, queries: Floats, search: Search, rough: npt.NDArray[np.float32], places: Places
) -> tuple[Array, Places]:
    """Recompute the candidates that float32 cannot distinguish, and return the k largest."""
    k, only, scale, shift = search.k, search.only, search.scale, search.shift
    reach = np.linalg.norm(queries, axis=1)
    if scale is not None:
        reach = reach * float(np.abs(scale).max())
    if shift is not None:
        reach = reach * float(np.sqrt(np.abs(shift)).max()) + float(np.abs(shift).max())
    doubt = (4.8e-7 * np.sqrt(queries.shape[1]) * reach)[:, None]  # many times the rounding error of a float32 product
    values = rough.astype(np.float64)
    if only:
        levels = values[:, np.asarray(only) - 1]
        near = (np.abs(values[:, :, None] - levels[:, None, :]) <= doubt[:, :, None]).any(axis=2)
    else:
        levels = values[:, k - 1 : k]
        near = values >= levels - doubt
    rows, columns = np.nonzero(near)
    values[rows, columns] = _exact(bank, queries, rows, places[rows, columns], scale, shift)
    order = np.argsort(-values, axis=1, kind="stable")[:, :k]
    values, places = np.take_along_axis(values, order, axis=1), np.take_along_axis(places, order, axis=1)
    if rough.shape[1] == len(bank):
        return values, places
    # where more rows are within rounding error than were held, search again and hold more
    crowded = np.flatnonzero(rough[:, -1] >= levels.min(axis=1) - doubt[:, 0])
    if len(crowded):
        wider = replace(search, spare=16 * search.spare)
        ((values[crowded], places[crowded]),) = search_together(bank, queries[crowded], [wider])
    return values, places


def _check_neighbours(k: int, bank: Floats) -> None:
    """Raise unless a loaded bank has rows for k neighbours."""
    if _checks.whole(k, "k", 1) > len(bank):
        raise InvalidInput(f"bank has {len(bank)} rows, too few for k={k}")


class BankSearch(StepHooks):
    """Define what scores by nearest training rows share: one product with the bank serves all that hold it."""

    bank: Floats

    @abstractmethod
    def _bank_search(self) -> Search | None:
        """Return what the score looks for among unit training rows, or None if it searches by itself."""

    @abstractmethod
    def _judge(self, found: Array | None, arrays: Mapping[str, Any]) -> Array:
        """Compute confidences from the values of the search, or by a search of its own where it named none."""

    @classmethod
    def family(cls) -> type:
        """Return this class, so that all scores that search a bank are scored together.

        Returns
        -------
        type
            ``BankSearch``.
        """
        return BankSearch

    @classmethod
    def score_together(cls, fitted: Sequence[Any], arrays: Mapping[str, Any]) -> list[Array]:
        """Score by one product with each bank.

        Parameters
        ----------
        fitted : sequence of BankSearch
            Fitted scores of any class of the family.
        arrays : mapping of str to object
            Arguments of ``score`` of all of them, by name.

        Returns
        -------
        list of ndarray of shape (n_samples,)
            Confidences, one array for each fitted score.

        Raises
        ------
        InvalidInput
            If an approximate index finds fewer neighbours than were asked for.
        MissingExtra
            If ``index="faiss"`` and faiss is not installed.

        Examples
        --------
        >>> h = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> fitted = [Neighbours(k=k).fit(h, np.zeros(2, int)) for k in (1, 2)]
        >>> [conf.round(6) + 0.0 for conf in Neighbours.score_together(fitted, {"features": np.array([[1.0, 0.0]])})]
        [array([0.]), array([-2.])]
        """
        queries = unit(np.asarray(arrays["features"], dtype=np.float64))
        searches = [step._bank_search() for step in fitted]
        members: dict[int, list[int]] = {}
        for place, (step, search) in enumerate(zip(fitted, searches, strict=True)):
            if search is not None:
                members.setdefault(id(step.bank), []).append(place)
        found: list[Array | None] = [None] * len(fitted)
        for places in members.values():
            bank = fitted[places[0]].bank
            values = _search_merged(bank, queries, [searches[place] for place in places])
            for place, value in zip(places, values, strict=True):
                found[place] = value
        return [step._judge(value, arrays) for step, value in zip(fitted, found, strict=True)]


def _search_merged(bank: Floats, queries: Floats, searches: Sequence[Search]) -> list[Array]:
    """Return the values of each search; those for ranks of plain cosines are one search for the highest rank."""
    ranks: set[int] = set()
    for search in searches:
        if search.scale is None:
            ranks.update(search.only)
    needed = [search for search in searches if search.scale is not None]
    if ranks:
        needed.append(Search(max(ranks), tuple(sorted(ranks))))
    values = [value for value, _ in search_together(bank, queries, needed)]
    merged = values.pop() if ranks else None
    scaled = iter(values)
    result = []
    for search in searches:
        if search.scale is None:
            assert merged is not None
            result.append(merged[:, : search.k])
        else:
            result.append(next(scaled))
    return result


# The scores


@register_score(
    "knn",
    paper="Sun et al., ICML 2022, arXiv:2204.06507",
    aliases=("deep_knn",),
    cost="ND",
    grid={"k": (50, 100, 200, 500, 1000)},
)
@dataclass(frozen=True, eq=False)
class Neighbours(BankSearch):
    r"""Score by the negative squared distance to the k-th nearest training row, between unit features.

    .. math:: s = -\lVert \hat h - \hat h_{(k)} \rVert^2 = 2 \langle \hat h, \hat h_{(k)} \rangle - 2

    Parameters
    ----------
    k : int, optional
        Rank of the neighbour; by default 50, or 1000 for a bank of more than 100,000 rows, and never more than there
        are.
    fraction : float, default=1.0
        Share of the training rows in the bank, in (0, 1], drawn at random and stratified by class; lower it to save
        memory with more than 100,000 rows.
    index : {"exact", "faiss"} or callable, default="exact"
        The search: exact, a flat faiss index, or a function of the width that makes any index with ``add(rows)`` and
        ``search(rows, k)`` returning values and places. Distances are recomputed from the places.
    seed : int, default=0
        Seed of the draw where ``fraction`` is below 1.

    Attributes
    ----------
    bank : ndarray of shape (n_rows, n_features)
        Unit training rows; stored by ``fit``.

    Notes
    -----
    FD-Shifts neither normalises the features nor uses more than the first 1000 rows, which is another score. A feature
    of zeros has s = -2.

    References
    ----------
    Sun et al., ICML 2022, arXiv:2204.06507.

    Examples
    --------
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
        """Normalise the training rows and store them as the bank.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows, to stratify by where there are no labels.
        labels : ndarray of shape (n_samples,), optional
            Training labels to stratify by.

        Returns
        -------
        Neighbours
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or ``k`` exceeds the rows of the bank.
        """
        if not callable(self.index):
            _checks.choice(self.index, "index", ("exact", "faiss"))
        classes = known_classes(labels, predictions)
        bank = _bank(features, classes, bank_size(self.fraction, len(features)), self.seed)
        fitted = replace(self, bank=bank)
        if fitted.rank > len(bank):
            raise InvalidInput(f"knn(k={self.k}): the bank has {len(bank)} rows; choose a smaller k")
        return fitted

    def check_state(self) -> None:
        """Check that the bank has enough rows.

        Raises
        ------
        InvalidInput
            If the bank has fewer than ``k`` rows.
        """
        _check_neighbours(self.rank, self.bank)

    @property
    def rank(self) -> int:
        """Rank of the neighbour: ``k``, or its default for this bank.

        Raises
        ------
        InvalidInput
            If ``k`` is not a whole number of at least 1.
        """
        if self.k is not None:
            return _checks.whole(self.k, "k", 1)
        usual = 50 if len(self.bank) <= 100_000 else 1000
        return min(len(self.bank), usual)

    def score(self, features: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If an approximate index finds fewer than ``k`` neighbours.
        MissingExtra
            If ``index="faiss"`` and faiss is not installed.
        """
        return self.score_together([self], {"features": features})[0]

    def _bank_search(self) -> Search | None:
        """Return the search for the neighbour at the rank; None where another index finds it."""
        if self.index == "exact":
            return Search(self.rank, (self.rank,))
        return None

    def _judge(self, found: Array | None, arrays: Mapping[str, Any]) -> Array:
        """Turn the cosine at the rank into a negative squared distance."""
        if found is None:
            found = self._search_index(unit(np.asarray(arrays["features"], dtype=np.float64)))
        return 2.0 * found[:, self.rank - 1] - 2.0

    def _search_index(self, queries: Floats) -> Array:
        """Return the cosines of the neighbours that another index finds, largest first."""
        rank = self.rank
        _, places = self._index.search(queries.astype(np.float32), rank)
        if (np.asarray(places) < 0).any():
            raise InvalidInput(f"the index found fewer than k={rank} neighbours; ask for fewer, or widen its search")
        rows = np.repeat(np.arange(len(queries)), rank)
        exact = _exact(self.bank, queries, rows, np.asarray(places, dtype=np.int64).ravel(), None, None)
        return -np.sort(-exact.reshape(len(queries), -1), axis=1)

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
class NNGuide(BankSearch):
    r"""Score by a logit score times the guidance of the nearest training rows.

    .. math:: s = S(z) \cdot \frac1k \sum_{i \in \text{top } k} S(z_i) \langle \hat h, \hat h_i \rangle

    with S the score ``base``.

    Parameters
    ----------
    k : int, default=10
        Number of neighbours. The authors use 10, OpenOOD 100, others the whole bank.
    fraction : float, optional
        Share of the training rows in the bank, in (0, 1], drawn at random and stratified by class; by default all, at
        most 50,000.
    base : str, default="energy"
        Any score that needs logits alone, or a chain that ends in one.
    seed : int, default=0
        Seed of the draw of the bank.

    Attributes
    ----------
    chain : tuple of Chain
        The fitted base score; set by ``fit``.
    bank : ndarray of shape (n_rows, n_features)
        Unit training rows; stored by ``fit``.
    weight : ndarray of shape (n_rows,)
        Base score of each row of the bank plus ``shift``; learnt by ``fit``.
    shift : ndarray of shape ()
        Constant that makes the base score positive; learnt by ``fit``.

    Notes
    -----
    If the base is not positive on all training rows, a constant (``shift``) is added that makes it so, since a product
    of two negative numbers would reverse the order. OpenOOD takes the first rows of a list sorted by class, which
    belong to one class only.

    References
    ----------
    Park, Jung, Teoh, ICCV 2023, arXiv:2309.14888.

    Examples
    --------
    >>> train = Outputs([[2.0, 0.0], [0.0, 2.0]], features=[[1.0, 0.0], [0.0, 1.0]])
    >>> NNGuide(k=1, base="mls").fit(train, train.features).score(train, train.features)
    array([4., 4.])
    """

    k: int = 10
    fraction: float | None = None
    base: str = "energy"
    seed: int = 0
    chain: tuple[Chain, ...] = chain_state()
    bank: Floats = state("M D")  # unit rows
    weight: Array = state("M")  # shifted base score of each row
    shift: Array = state("")

    def inner_chains(self) -> tuple[Chain, ...]:
        """Return the chain of the base score, fitted if this object is.

        Returns
        -------
        tuple of Chain
            One chain.
        """
        return self.chain or (scorer(self.base),)

    def fit(self, outputs: Outputs, features: Floats, val_outputs: Outputs | None = None) -> Self:
        """Fit the base score, and store the bank and its base scores.

        Parameters
        ----------
        outputs : Outputs
            Training outputs.
        features : ndarray of shape (n_samples, n_features)
            Training features.
        val_outputs : Outputs, optional
            Validation outputs, for a base that is fitted on them.

        Returns
        -------
        NNGuide
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If the base needs more than logits or is not finite on all training rows, or ``k`` exceeds the rows of the
            bank.
        """
        (blank,) = self.inner_chains()
        if not set(blank.needs) <= {"logits"}:
            raise InvalidInput(
                f"nnguide(base={self.base!r}): the base must need logits alone, not {', '.join(blank.needs)}"
            )
        base = blank.fit(outputs, val=val_outputs)
        classes = known_classes(outputs.labels, outputs.predictions)
        rows = bank_size(self.fraction, len(features))
        if _checks.whole(self.k, "k", 1) > rows:
            raise InvalidInput(
                f"nnguide(k={self.k}): the bank has {rows} rows; choose a smaller k or a larger fraction"
            )
        value = base.score(outputs)
        if not np.isfinite(value).all():
            raise InvalidInput(f"nnguide(base={self.base!r}): the base is not finite on all training rows; use another")
        shift = 0.0
        if value.min() <= 0:
            shift = max(0.0, 0.01 * float(value.std()) - float(value.min()))
        kept = _select_bank_rows(value, classes, rows, self.seed)
        bank = _bank(features, classes, rows, self.seed)
        return replace(self, chain=(base,), bank=bank, weight=kept + shift, shift=np.array(shift))

    def check_state(self) -> None:
        """Check that the bank has enough rows.

        Raises
        ------
        InvalidInput
            If the bank has fewer than ``k`` rows.
        """
        _check_neighbours(self.k, self.bank)

    def score(self, outputs: Outputs, features: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        outputs : Outputs
            Outputs to score.
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        return self.score_together([self], {"outputs": outputs, "features": features})[0]

    def _bank_search(self) -> Search:
        """Return the search for the rows whose weighted cosines are largest."""
        return Search(self.k, scale=self.weight)

    def _judge(self, found: Array | None, arrays: Mapping[str, Any]) -> Array:
        """Multiply the base score by the mean of the weighted cosines."""
        assert found is not None
        return (self.chain[0].run(arrays["outputs"]) + self.shift) * found.mean(axis=1)


@register_score(
    "relation",
    paper="Kim, Yun, Song, NeurIPS 2023, arXiv:2301.12321",
    cost="M(C + D)",
    grid={"power": (1, 2, 4, 6, 8)},
)
@dataclass(frozen=True, eq=False)
class Relation:
    r"""Score by the sum of the relations to training rows: similar features and similar predictions.

    .. math:: s = \sum_i r_i^q [r_i > 0.03], \qquad
              r_i = \max(0, \langle \hat h, \hat h_i \rangle) \langle p, p_i \rangle

    Parameters
    ----------
    power : float, default=1.0
        The exponent q, above 0; larger values stress the closest relations.
    fraction : float, optional
        Share of the training rows in the bank, in (0, 1], drawn at random and stratified by class; by default all, at
        most 50,000.
    seed : int, default=0
        Seed of the draw of the bank.

    Attributes
    ----------
    bank : ndarray of shape (n_rows, n_features)
        Unit training rows; stored by ``fit``.
    answers : ndarray of shape (n_rows, n_classes)
        Probabilities of the rows of the bank; stored by ``fit``.

    Notes
    -----
    Features in float32 are multiplied in float32, which keeps six digits.

    References
    ----------
    Kim, Yun, Song, NeurIPS 2023, arXiv:2301.12321.

    Examples
    --------
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
        """Store the unit training rows and their probabilities.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows, to stratify by where there are no labels.
        labels : ndarray of shape (n_samples,), optional
            Training labels to stratify by.

        Returns
        -------
        Relation
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If ``power`` or ``fraction`` is out of range.
        """
        _checks.number(self.power, "power", 0.0, np.inf, open_low=True, open_high=True)
        classes = known_classes(labels, predictions)
        rows = bank_size(self.fraction, len(features))
        bank = _bank(features, classes, rows, self.seed)
        kept = _select_bank_rows(logits, classes, rows, self.seed)
        return replace(self, bank=bank, answers=softmax(kept).astype(bank.dtype))

    def score(self, features: Floats, logits: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
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
    paper="Breunig et al., SIGMOD 2000, doi:10.1145/335191.335388",
    aliases=("local_outlier_factor",),
    cost="MD",
    grid={"k": (10, 20, 50)},
)
@dataclass(frozen=True, eq=False)
class LocalOutlierFactor(StepHooks):
    r"""Score by the negative local outlier factor: the density at the neighbours relative to that at the sample.

    .. math:: s = -\frac1k \sum_{i \in \text{top } k} \frac{\rho_i}{\rho}, \qquad
              \rho = \left[ \frac1k \sum_{i \in \text{top } k} \max(d_i, d^{(k)}_i) \right]^{-1}

    with :math:`d_i` the Euclidean distance to training row i and :math:`d^{(k)}_i` that of row i to its own k-th
    neighbour.

    Parameters
    ----------
    k : int, default=20
        Number of neighbours, fewer than the training rows that are kept.
    rows : int, default=20_000
        Largest number of training rows to keep, a stratified sample; fitting compares all pairs of them.
    seed : int, default=0
        Seed of the draw of the sample.

    Attributes
    ----------
    centre : ndarray of shape (n_features,)
        Mean of the rows kept; learnt by ``fit``.
    bank : ndarray of shape (n_rows, n_features)
        Rows kept, minus the centre; stored by ``fit``.
    reach : ndarray of shape (n_rows,)
        Distance of each row to its k-th neighbour; learnt by ``fit``.
    density : ndarray of shape (n_rows,)
        Density :math:`\rho_i` at each row; learnt by ``fit``.

    Notes
    -----
    Equals scikit-learn's ``LocalOutlierFactor(novelty=True).score_samples``; the search is our own.

    References
    ----------
    Breunig et al., SIGMOD 2000.

    Examples
    --------
    >>> h = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> fitted = LocalOutlierFactor(k=2).fit(h, np.zeros(5, int))
    >>> bool(fitted.score(np.array([[2.0]])) > fitted.score(np.array([[9.0]])))
    True
    """

    k: int = 20
    rows: int = 20_000
    seed: int = 0
    centre: Array = state("D")
    bank: Floats = state("M D")  # rows minus the centre
    reach: Array = state("M")  # distance of each to its k-th neighbour
    density: Array = state("M")

    def fit(self, features: Floats, predictions: Labels, labels: Labels | None = None) -> Self:
        """Compute the distances and densities among the training rows.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        predictions : ndarray of shape (n_samples,)
            Predicted classes of the training rows, to stratify by where there are no labels.
        labels : ndarray of shape (n_samples,), optional
            Training labels to stratify by.

        Returns
        -------
        LocalOutlierFactor
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or ``k`` is not below the number of rows kept.
        """
        k, rows = _checks.whole(self.k, "k", 1), min(_checks.whole(self.rows, "rows", 2), len(features))
        if k >= rows:
            raise InvalidInput(f"lof(k={k}): each of {rows} training rows has {rows - 1} others; choose a smaller k")
        kept = np.arange(rows)
        if rows < len(features):
            kept = draw_stratified(known_classes(labels, predictions), rows, self.seed)
        h = np.asarray(features[kept], dtype=np.float64)
        bank = h - h.mean(axis=0)
        fitted = replace(self, centre=h.mean(axis=0), bank=bank)
        distance, places = np.empty((rows, k)), np.empty((rows, k), np.int64)
        for first in range(0, rows, 4096):
            here = np.arange(first, min(first + 4096, rows))
            far, where = fitted._distances(bank[here], k + 1)
            own = where == here[:, None]
            own[~own.any(axis=1), -1] = True  # the row is hidden among equal ones: leave any of them out
            distance[here], places[here] = far[~own].reshape(-1, k), where[~own].reshape(-1, k)
        reach = distance[:, -1]
        density = 1.0 / (np.maximum(distance, reach[places]).mean(axis=1) + 1e-10)
        return replace(fitted, reach=reach, density=density)

    def check_state(self) -> None:
        """Check that the bank has enough rows.

        Raises
        ------
        InvalidInput
            If the bank has fewer than ``k`` rows.
        """
        _check_neighbours(self.k, self.bank)

    def score(self, features: Floats) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        distance, places = self._distances(np.asarray(features, dtype=np.float64) - self.centre, self.k)
        density = 1.0 / (np.maximum(distance, self.reach[places]).mean(axis=1) + 1e-10)
        return -(self.density[places]).mean(axis=1) / density

    def _distances(self, queries: Array, k: int) -> tuple[Array, Places]:
        """Return the distances to the k nearest rows, nearest first, and the indices of these rows."""
        length = np.einsum("nd,nd->n", self.bank, self.bank)
        _, places = largest(self.bank, queries, k, scale=np.full(len(self.bank), 2.0), shift=-length)
        away = np.stack([np.linalg.norm(q - self.bank[p], axis=1) for q, p in zip(queries, places, strict=True)])
        order = np.argsort(away, axis=1, kind="stable")
        return np.take_along_axis(away, order, axis=1), np.take_along_axis(places, order, axis=1)
