r"""Scores that rank a feature among the training rows: trust score, concentration-free outlier factor, CombOOD.

Notation: :math:`\hat h = h / \lVert h \rVert` the unit feature, :math:`\hat h_i` those of the training rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from twofold import _checks
from twofold._math import unit
from twofold.errors import InvalidInput
from twofold.scores._fitting.moments import whiten_rows, whitening
from twofold.scores.layers import Layers, Packed, pack_keys, unpack_keys
from twofold.scores.neighbours import BankSearch, Search, bank_size, draw_stratified, known_classes, unit_bank
from twofold.scores.registry import register_score
from twofold.typing import Array, Floats, Labels, StepHooks, state

Places = npt.NDArray[np.int64]

TILE = 4096  # rows of the bank in one product
MOST_REFERENCES = 5000  # cfood compares all pairs of them
SMALLEST_SQUARE = 1e-12  # floor of a squared distance before its logarithm is taken


def nearest_rows(
    bank: Floats, queries: Array, *, classes: Labels | None = None, without: Labels | None = None
) -> Places:
    """Find the row of the bank nearest to each query, by products in float64.

    Parameters
    ----------
    bank : ndarray of shape (n_rows, n_features)
        Rows to search.
    queries : ndarray of shape (n_samples, n_features)
        Rows to search for.
    classes : ndarray of shape (n_rows,), optional
        Class of each row of the bank.
    without : ndarray of shape (n_samples,), optional
        Class whose rows are left out of the search for each query; it needs ``classes``.

    Returns
    -------
    ndarray of shape (n_samples,)
        Places in the bank; -1 where no row is left.

    Examples
    --------
    >>> nearest_rows(np.array([[0.0], [3.0], [9.0]]), np.array([[1.0], [7.0]]))
    array([0, 2])
    """
    best = np.full(len(queries), -np.inf)
    places = np.full(len(queries), -1, np.int64)
    everyone = np.arange(len(queries))
    for first in range(0, len(bank), TILE):
        part = slice(first, first + TILE)
        rows = np.asarray(bank[part], dtype=np.float64)
        value = queries @ rows.T - 0.5 * np.einsum("nd,nd->n", rows, rows)
        if classes is not None and without is not None:
            value[classes[None, part] == without[:, None]] = -np.inf
        found = value.argmax(axis=1)
        highest = value[everyone, found]
        better = highest > best
        best[better] = highest[better]
        places[better] = found[better] + first
    return places


def _distances_to(bank: Floats, queries: Array, places: Places) -> Array:
    """Compute the distance of each query to one row of the bank; infinite where the place is -1."""
    chosen = np.asarray(bank[places], dtype=np.float64)
    distance = np.linalg.norm(queries - chosen, axis=1)
    return np.where(places < 0, np.inf, distance)


# Trust score


@register_score("trust", paper="Jiang et al., NeurIPS 2018, arXiv:1805.11783", aliases=("trust_score",), cost="ND")
@dataclass(frozen=True, eq=False)
class TrustScore(StepHooks):
    r"""Score by the distance to the nearest other class relative to that to the predicted class.

    .. math:: s = \frac{\min_{c \ne \hat y} d_c}{d_{\hat y} + 10^{-12}}

    with :math:`d_c` the Euclidean distance to the nearest training row labelled c.

    Parameters
    ----------
    alpha : float, default=0.0
        Share of the rows of each class to leave out, in [0, 1): those whose k-th neighbour in their class is farthest.
    k : int, default=10
        Neighbour, the row itself counted, by which these rows are found; used if ``alpha`` is above 0.

    Attributes
    ----------
    bank : ndarray of shape (n_rows, n_features)
        Training rows that are kept, sorted by class; stored by ``fit``.
    classes : ndarray of shape (n_rows,)
        Their labels; stored by ``fit``.

    Notes
    -----
    The authors' code takes the second nearest row, as is right for training rows that are scored against themselves;
    this score takes the first, as scio does. A class without rows is infinitely far away. Rows are left out where their
    radius exceeds the percentile 100 (1 - ``alpha``) of their class.

    References
    ----------
    Jiang, Kim, Guan, Gupta, NeurIPS 2018, arXiv:1805.11783.

    Examples
    --------
    >>> fitted = TrustScore().fit(np.array([[0.0], [4.0]]), np.array([0, 1]))
    >>> fitted.score(np.array([[1.0], [1.0]]), np.array([0, 1])).round(6)
    array([3.      , 0.333333])
    """

    alpha: float = 0.0
    k: int = 10
    bank: Floats = state("M D")
    classes: Labels = state("M", kind="integer")

    def fit(self, features: Floats, labels: Labels) -> Self:
        """Store the training rows by class, without those in sparse regions.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        labels : ndarray of shape (n_samples,)
            Training labels.

        Returns
        -------
        TrustScore
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range.
        """
        alpha = _checks.number(self.alpha, "alpha", 0.0, 1.0, open_high=True)
        k = _checks.whole(self.k, "k", 1)
        truth = np.asarray(labels)
        kept = []
        for c in np.unique(truth):
            own = np.flatnonzero(truth == c)
            if alpha > 0:
                own = own[_in_dense_regions(np.asarray(features[own], dtype=np.float64), alpha, min(k, len(own)))]
            kept.append(own)
        order = np.concatenate(kept)
        return replace(self, bank=np.asarray(features)[order], classes=truth[order])

    def check_state(self) -> None:
        """Check that the bank is sorted by class and not empty.

        Raises
        ------
        InvalidInput
            If it is not.
        """
        if not len(self.bank) or (np.diff(self.classes) < 0).any():
            raise InvalidInput("classes must be sorted, with at least one row in the bank")

    def score(self, features: Floats, predictions: Labels) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        predictions : ndarray of shape (n_samples,)
            Predicted class of each sample.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.
        """
        queries, chosen = np.asarray(features, dtype=np.float64), np.asarray(predictions)
        own = np.full(len(queries), np.inf)
        for c in np.unique(chosen):
            mine = chosen == c
            first, last = np.searchsorted(self.classes, [c, c + 1])
            if first < last:
                rows = self.bank[first:last]
                own[mine] = _distances_to(rows, queries[mine], nearest_rows(rows, queries[mine]))
        others = nearest_rows(self.bank, queries, classes=self.classes, without=chosen)
        return _distances_to(self.bank, queries, others) / (own + 1e-12)


def _in_dense_regions(rows: Array, alpha: float, k: int) -> Places:
    """Return the rows whose k-th neighbour, themselves counted, is not among the farthest share alpha."""
    lengths = np.einsum("nd,nd->n", rows, rows)
    radius = np.empty(len(rows))
    for first in range(0, len(rows), TILE):
        part = slice(first, first + TILE)
        squares = lengths[part, None] + lengths[None, :] - 2.0 * rows[part] @ rows.T
        radius[part] = np.sqrt(np.maximum(np.partition(squares, k - 1, axis=1)[:, k - 1], 0.0))
    return np.flatnonzero(radius <= np.percentile(radius, 100.0 * (1.0 - alpha)))


# Concentration-free outlier factor


def _fractions() -> Array:
    """Return the fractions of the references that cfood tries, those of OpenOOD."""
    fine, middle, coarse = np.linspace(0.001, 0.1, 100), np.linspace(0.105, 0.5, 81), np.linspace(0.51, 0.99, 49)
    return np.concatenate([fine, middle, coarse])


@register_score(
    "cfood",
    paper="Angiulli, Fassetti, Zupi, SISAP 2025",
    cost="nD",
    grid={"share": (0.001, 0.005, 0.01, 0.05), "fraction": (0.1, 0.5, 1.0)},
)
@dataclass(frozen=True, eq=False)
class ConcentrationFree(StepHooks):
    r"""Score by how many neighbours training rows must count before enough of them count the sample among theirs.

    .. math:: s = -\kappa, \qquad \kappa = \min \{ k/n : \#\{ i : \lVert \hat h - \hat h_i \rVert^2 \le r_i(k) \}
              \ge \text{share} \cdot n \}

    with :math:`r_i(k)` the squared distance of reference i to its k-th nearest other reference; from -1 to 0.

    Parameters
    ----------
    share : float, default=0.01
        Share of the n references that must count the sample among their neighbours, in (0, 1].
    fraction : float, optional
        Share of the training rows that are references, in (0, 1], drawn at random and stratified by class; by default
        all, at most 5,000. Fitting compares all pairs of them.
    seed : int, default=0
        Seed of the draw.

    Attributes
    ----------
    bank : ndarray of shape (n_references, n_features)
        Unit references; stored by ``fit``.
    fractions : ndarray of shape (n_fractions,)
        Values that :math:`\kappa` may have besides 1; learnt by ``fit``.
    radii : ndarray of shape (n_fractions, n_references)
        Squared distances :math:`r_i`; learnt by ``fit``.

    Notes
    -----
    :math:`\kappa` is one of the 230 fractions of OpenOOD's implementation, or 1 where none is enough, so ties are
    common. Of fractions that mean the same neighbour the smallest is kept. OpenOOD draws 10 % of the training rows
    without a seed.

    References
    ----------
    Angiulli, Fassetti, Zupi, SISAP 2025.

    Examples
    --------
    >>> h = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [1.0, 0.3]])
    >>> fitted = ConcentrationFree(share=0.5).fit(h, np.zeros(4, int))
    >>> fitted.score(np.array([[1.0, 0.15], [-1.0, 0.0]])).round(3)
    array([-0.001, -1.   ])
    """

    share: float = 0.01
    fraction: float | None = None
    seed: int = 0
    bank: Array = state("M D")
    fractions: Array = state("K")
    radii: Array = state("K M")

    def fit(self, features: Floats, predictions: Labels, labels: Labels | None = None) -> Self:
        """Store the references and the distances among them.

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
        ConcentrationFree
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, or there are fewer than two references.
        """
        _checks.number(self.share, "share", 0.0, 1.0, open_low=True)
        count = bank_size(self.fraction, len(features), MOST_REFERENCES)
        if count < 2:
            raise InvalidInput(f"cfood compares references with each other, and there is {count}; use more rows")
        kept = draw_stratified(known_classes(labels, predictions), count, self.seed)
        bank = unit(features[kept])
        fractions = _fractions()
        ranks = (fractions * count - 1.0).astype(np.int64)  # towards zero
        is_new = np.diff(ranks, prepend=-1) > 0
        fractions, ranks = fractions[is_new], np.minimum(ranks[is_new] + 1, count - 1)  # rank 0 is the row itself
        radii = np.empty((len(ranks), count))
        for first in range(0, count, 1024):
            part = slice(first, first + 1024)
            squares = _unit_squares(bank[part], bank)
            rows = np.arange(len(squares))
            squares[rows, rows + first] = -1.0  # the row itself comes first, also among equal ones
            radii[:, part] = np.partition(squares, np.unique(ranks), axis=1)[:, ranks].T
        return replace(self, bank=bank, fractions=fractions, radii=radii)

    def check_state(self) -> None:
        """Check that fractions and radii ascend.

        Raises
        ------
        InvalidInput
            If they do not, or are empty.
        """
        ascends = (np.diff(self.fractions) > 0).all() and (np.diff(self.radii, axis=0) >= 0).all()
        if not self.radii.size or not ascends:
            raise InvalidInput("fractions and radii must ascend, with at least one of each")

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
        squares = _unit_squares(unit(features), self.bank)
        low = np.zeros(len(squares), np.int64)  # radii ascend, so the first fraction that is enough is found by halving
        high = np.full(len(squares), len(self.fractions))
        while (low < high).any():
            middle = np.minimum((low + high) // 2, len(self.fractions) - 1)
            counted = (squares <= self.radii[middle]).sum(axis=1)
            is_enough = counted / len(self.bank) >= self.share
            is_open = low < high
            high = np.where(is_open & is_enough, middle, high)
            low = np.where(is_open & ~is_enough, middle + 1, low)
        return -np.append(self.fractions, 1.0)[low]


def _unit_squares(queries: Array, bank: Array) -> Array:
    """Compute squared distances between unit rows."""
    return np.maximum(2.0 - 2.0 * (queries @ bank.T), 0.0)


# CombOOD


@register_score("combood", paper="Rajasekaran et al., SDM 2024", cost="ND + E^2", project=())
@dataclass(frozen=True, eq=False)
class CombOOD(BankSearch):
    r"""Score by the distance to a near training row together with the Mahalanobis distance of the layers' extremes.

    .. math:: s = -\sqrt D \log \lVert \hat h - \hat h_{(k)} \rVert^2 - x^T (\Sigma + \rho I)^{-1} x

    with x the extremes, made normal column by column: standardised, by the power transform of Yeo and Johnson, and
    standardised again. :math:`\Sigma` is their covariance.

    Parameters
    ----------
    of : {"layers", "penultimate"}, default="layers"
        What x is made of: ``"layers"`` takes the maximum and the negative minimum of the inputs of all ReLUs, which
        extraction records with ``--extremes``, and those of the logits; ``"penultimate"`` takes the unit feature.
    k : int, default=50
        Rank of the neighbour.
    ridge : float, default=1.0
        The constant :math:`\rho`, above 0.

    Attributes
    ----------
    bank : ndarray of shape (n_rows, n_features)
        Unit training rows; stored by ``fit``.
    keys : ndarray of shape (n_bytes,) or None
        Names of the recorded extremes, as UTF-8 text with one name to a line; stored by ``fit``.
    columns : ndarray of shape (n_columns,)
        Columns of x that vary on the training set; the others are left out. Learnt by ``fit``.
    first : ndarray of shape (2, n_columns)
        Mean and standard deviation before the power transform; learnt by ``fit``.
    powers : ndarray of shape (n_columns,)
        Exponents of the power transform, of largest likelihood; learnt by ``fit``.
    second : ndarray of shape (2, n_columns)
        Mean and standard deviation after it; learnt by ``fit``.
    whiten : ndarray of shape (n_columns, n_directions)
        Matrix that whitens x; learnt by ``fit``.

    Notes
    -----
    A squared distance of 0, as for a training row at k = 1, counts as 1e-12. The authors' other combinations of the two
    parts are not here: their script runs this one only.

    References
    ----------
    Rajasekaran et al., SDM 2024.

    Examples
    --------
    >>> h = np.random.default_rng(0).normal(size=(40, 3))
    >>> fitted = CombOOD(of="penultimate", k=5).fit(h, h @ h[:2].T)
    >>> bool(fitted.score(h[:1], h[:1] @ h[:2].T) > fitted.score(-h[:1], -h[:1] @ h[:2].T))
    True
    """

    of: Literal["layers", "penultimate"] = "layers"
    k: int = 50
    ridge: float = 1.0
    bank: Floats = state("M D")
    keys: Packed = state("B", kind="byte", optional=True)
    columns: Labels = state("E", kind="integer")
    first: Array = state("2 E")
    powers: Array = state("E")
    second: Array = state("2 E")
    whiten: Array = state("E R")

    def needed_fields(self) -> tuple[str, ...] | None:
        """Return the fields that scoring needs: layers only where their extremes are used.

        Returns
        -------
        tuple of str
            Names of fields.
        """
        if self.of == "layers":
            return ("features", "logits", "layers")
        return ("features",)

    def fit(
        self,
        features: Floats,
        logits: Floats,
        layers: Layers | None = None,
    ) -> Self:
        """Store the training rows, and fit the distribution of the extremes.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Training features.
        logits : ndarray of shape (n_samples, n_classes)
            Training logits.
        layers : mapping of str to ndarray, optional
            Recorded layers; ``NAME/max`` and ``NAME/min`` are used. Required unless ``of="penultimate"``.

        Returns
        -------
        CombOOD
            A fitted copy; this object stays unchanged.

        Raises
        ------
        InvalidInput
            If a setting is out of range, ``k`` exceeds the rows, or no extremes are recorded.
        """
        from scipy.stats import yeojohnson_normmax

        _checks.choice(self.of, "of", ("layers", "penultimate"))
        ridge = _checks.number(self.ridge, "ridge", 0.0, np.inf, open_low=True, open_high=True)
        bank = unit_bank(features)
        if _checks.whole(self.k, "k", 1) > len(bank):
            raise InvalidInput(f"combood(k={self.k}): the bank has {len(bank)} rows; choose a smaller k")
        fitted = replace(self, bank=bank)
        if self.of == "layers":
            fitted = replace(fitted, keys=pack_keys(_extreme_keys(layers)))
        x = fitted._extremes(features, logits, layers)
        columns = np.flatnonzero(np.ptp(x, axis=0) > 0)
        if not len(columns):
            raise InvalidInput("combood: no extreme varies on the training set; use more rows or other layers")
        x = x[:, columns]
        first = np.stack([x.mean(axis=0), x.std(axis=0)])
        x = (x - first[0]) / first[1]
        powers = np.array([float(yeojohnson_normmax(column)) for column in x.T])
        x = yeo_johnson(x, powers)
        second = np.stack([x.mean(axis=0), np.maximum(x.std(axis=0), SMALLEST_SQUARE)])
        x = (x - second[0]) / second[1]
        covariance = x.T @ x / max(len(x) - 1, 1)
        whiten = whitening(covariance + ridge * np.eye(len(columns)))
        return replace(fitted, columns=columns, first=first, powers=powers, second=second, whiten=whiten)

    def check_state(self) -> None:
        """Check that the arrays are those of the settings.

        Raises
        ------
        InvalidInput
            If the bank has fewer than ``k`` rows, names are missing, or a spread is not positive.
        """
        if _checks.whole(self.k, "k", 1) > len(self.bank):
            raise InvalidInput(f"bank has {len(self.bank)} rows, too few for k={self.k}")
        if self.of == "layers" and self.keys is None:
            raise InvalidInput("keys are missing, which of='layers' needs")
        has_spread = (self.first[1] > 0).all() and (self.second[1] > 0).all()
        if not has_spread or (self.columns < 0).any():
            raise InvalidInput("spreads must be above 0 and columns at least 0")

    def score(self, features: Floats, logits: Floats, layers: Layers | None = None) -> Array:
        """Compute the confidence of each sample.

        Parameters
        ----------
        features : ndarray of shape (n_samples, n_features)
            Features of the samples to score.
        logits : ndarray of shape (n_samples, n_classes)
            Logits of the samples to score.
        layers : mapping of str to ndarray, optional
            Recorded layers. Required unless ``of="penultimate"``.

        Returns
        -------
        ndarray of shape (n_samples,)
            Confidence of each sample; higher is safer to accept.

        Raises
        ------
        InvalidInput
            If an extreme that the score was fitted on is not recorded.
        """
        return self.score_together([self], {"features": features, "logits": logits, "layers": layers})[0]

    def _bank_search(self) -> Search:
        """Return the search for the neighbour at the rank."""
        return Search(self.k, (self.k,))

    def _judge(self, found: Array | None, arrays: Mapping[str, Any]) -> Array:
        """Combine the cosine at the rank with the Mahalanobis distance of the extremes."""
        assert found is not None
        square = np.maximum(2.0 - 2.0 * found[:, self.k - 1], SMALLEST_SQUARE)
        x = self._extremes(arrays["features"], arrays["logits"], arrays["layers"])[:, self.columns]
        x = yeo_johnson((x - self.first[0]) / self.first[1], self.powers)
        x = (x - self.second[0]) / self.second[1]
        distance = (whiten_rows(x, self.whiten) ** 2).sum(axis=1)
        return -np.sqrt(self.bank.shape[1]) * np.log(square) - distance

    def _extremes(self, features: Floats, logits: Floats, layers: Layers | None) -> Array:
        """Return what the Mahalanobis distance is measured of, one row per sample."""
        if self.of == "penultimate":
            return unit(features)
        z = np.asarray(logits, dtype=np.float64)
        table = [z.max(axis=1), -z.min(axis=1)]
        for key in unpack_keys(self.keys):
            if layers is None or key not in layers:
                raise InvalidInput(
                    f"combood needs layers[{key!r}], on which it was fitted; record them with --extremes"
                )
            value = np.asarray(layers[key], dtype=np.float64)[:, 0]
            table.append(value if key.endswith("/max") else -value)
        return np.stack(table, axis=1)


def _extreme_keys(layers: Layers | None) -> list[str]:
    """List the recorded extremes, ``NAME/max`` and ``NAME/min``."""
    keys = sorted(key for key in layers or {} if key.endswith(("/max", "/min")))
    if not keys:
        raise InvalidInput(
            "combood needs layers of the form NAME/max and NAME/min, and the train outputs have none; record them with "
            'extract --extremes, or use combood(of="penultimate")'
        )
    return keys


def yeo_johnson(values: Array, powers: Array) -> Array:
    r"""Transform columns by the power transform of Yeo and Johnson.

    .. math:: \psi(x) = \frac{(1 + x)^\lambda - 1}{\lambda} \; (x \ge 0), \qquad
              \psi(x) = -\frac{(1 - x)^{2 - \lambda} - 1}{2 - \lambda} \; (x < 0)

    with the logarithm where a denominator is 0.

    Parameters
    ----------
    values : ndarray of shape (n_samples, n_columns)
        Values to transform.
    powers : ndarray of shape (n_columns,)
        Exponent :math:`\lambda` of each column.

    Returns
    -------
    ndarray of shape (n_samples, n_columns)
        Transformed values.

    Examples
    --------
    >>> yeo_johnson(np.array([[3.0, -3.0]]), np.array([2.0, 0.0]))
    array([[ 7.5, -7.5]])
    """
    sign = np.where(values >= 0, 1.0, -1.0)
    power = np.where(values >= 0, powers, 2.0 - powers)
    log = np.log1p(np.abs(values))
    is_log = np.abs(power) < 1e-12
    safe = np.where(is_log, 1.0, power)
    return sign * np.where(is_log, log, np.expm1(safe * log) / safe)
