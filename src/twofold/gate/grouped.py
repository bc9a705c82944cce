r"""Test a risk on rows that come in groups: scenes, patients, users.

Rows of one group may depend on each other in any way; different groups are independent. Counting rows then overstates
the evidence: five copies of a row count as five, and a promise tested by counting rows is broken too often. Here the
groups are counted.

What is promised. Let group g have :math:`m_g` rows, of which row i is accepted (:math:`A_i = 1`) and fails
(:math:`F_i = 1`: a wrong label, or an OOD input). The risk is that of the accepted rows of new groups, drawn as those
of validation and of the same sizes:

.. math:: R = \frac{\sum_g E \sum_{i \in g} w_i A_i F_i}{\sum_g E \sum_{i \in g} w_i A_i}

with weights :math:`w_i = 1`, or with ``ood_share`` those that give ID and OOD rows their shares (then the sizes are
the numbers of ID and of OOD rows). A large group counts for as many rows as it has.

The p-value. :math:`R > r` means :math:`\sum_g \mu_g > 0` for the means :math:`\mu_g` of
:math:`Z_g = \sum_{i \in g} w_i A_i (F_i - r)`, which is at most :math:`(1 - r) M` with :math:`M = \max_g \sum_{i \in
g} w_i`. Choose a number :math:`0 \le \lambda < 1 / ((1 - r) M)` without looking at what the groups hold. Then

.. math:: E_\lambda = \prod_g (1 - \lambda Z_g) \ge 0, \qquad
          E[E_\lambda] = \prod_g (1 - \lambda \mu_g) \le e^{-\lambda \sum_g \mu_g} \le 1

where the product of means needs independent groups, and the last step is :math:`R > r`. By Markov's inequality
:math:`p = \min(1, 1 / E_\lambda)` is at most :math:`\delta` with a probability of at most :math:`\delta`. The groups
need not be similar, nor of one size, and nothing is assumed about the rows inside. (It is a bet against the null, as in
Waudby-Smith & Ramdas, J. R. Stat. Soc. B 86, 2024, arXiv:2010.09686, with one stake for all groups, because the
:math:`\mu_g` may differ.)

:math:`\ln E_\lambda \approx -\lambda S - \lambda^2 V / 2` with S the sum of the :math:`Z_g` and V that of their
squares, so :math:`\lambda = \sqrt{2 \ln(1/\delta) / V}` reaches :math:`1/\delta` at the least :math:`|S|`. V is
estimated on the groups that learn, at each pair of thresholds, with one more group in which every row fails;
:math:`\lambda` is kept below 0.9 of its limit. So the stake depends on the first part and on sizes alone, as do the
path and its start, and the walk along the path is as valid as in :mod:`twofold.gate.guarantee`.

Checked on 2,000 simulated populations of each kind: ``tests/gate/test_groups.py`` and the page on the gate.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from twofold._checks import Array
from twofold._math import SMALLEST_NORMAL
from twofold.gate.thresholds import ScoredSamples

Codes = npt.NDArray[np.int64]
CAUTIOUS = 0.9  # share of the largest stake: a group in which every row fails leaves a tenth of the wealth
STAKES = CAUTIOUS * 0.5 ** np.arange(8)  # stakes of an interval, which has no separate part of the data to choose one


def group_codes(groups: npt.NDArray[np.generic]) -> Codes:
    """Enumerate the groups 0, 1, ... in the order in which they first appear.

    Parameters
    ----------
    groups : ndarray of shape (n_samples,)
        Group of each row, integers or strings.

    Returns
    -------
    ndarray of shape (n_samples,)
        The number of the group of each row.

    Examples
    --------
    >>> group_codes(np.array(["b", "a", "b"]))
    array([0, 1, 0])
    """
    _, first, codes = np.unique(groups, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    return place[codes]


def count_groups(codes: Codes | None) -> int | None:
    """Count the groups of rows.

    Parameters
    ----------
    codes : ndarray of int64, shape (n_samples,), or None
        Group of each row, as :func:`group_codes` numbers them.

    Returns
    -------
    int or None
        Number of groups; None for None.
    """
    if codes is None:
        return None
    return int(codes.max()) + 1


def first_accepting(data: ScoredSamples, pairs: Array) -> npt.NDArray[np.int64]:
    """Find the strictest pair of a path that accepts each row.

    Parameters
    ----------
    data : ScoredSamples
        Samples with both confidences.
    pairs : ndarray of shape (n_pairs, 2)
        Thresholds ``(tau_id, tau_ood)``, from strict to loose in both columns.

    Returns
    -------
    ndarray of shape (n_samples,)
        Index of the pair; ``n_pairs`` where none accepts the row.

    Examples
    --------
    >>> yes = np.array([True, True])
    >>> data = ScoredSamples(correct=yes, is_id=yes, conf_id=np.array([0.9, 0.4]), conf_ood=np.zeros(2))
    >>> first_accepting(data, np.array([[0.8, -1.0], [0.5, -1.0]]))
    array([0, 2])
    """
    by_id = np.searchsorted(-pairs[:, 0], -data.conf_id)
    by_ood = np.searchsorted(-pairs[:, 1], -data.conf_ood)
    return np.maximum(by_id, by_ood)


class GroupTest:
    """Compute p-values of "the risk exceeds ``risk``" along a path of pairs, from rows in groups.

    Parameters
    ----------
    learn : ScoredSamples
        Rows with ``groups`` of the part that chose the path; they also fix the stakes and the start.
    test : ScoredSamples
        Rows with ``groups`` of the part that tests it.
    pairs : ndarray of shape (n_pairs, 2)
        The path, from strict to loose.
    risk : float
        Risk to be promised.
    delta : float
        Level for which the stakes are optimal; the p-values are valid at any level.
    """

    def __init__(self, learn: ScoredSamples, test: ScoredSamples, pairs: Array, risk: float, delta: float) -> None:
        self.test, self.risk = test, risk
        self.first = first_accepting(test, pairs)
        self.sizes = group_weights(test)
        first = first_accepting(learn, pairs)
        learnt = group_weights(learn)
        groups = len(learnt)
        limit = CAUTIOUS / ((1.0 - risk) * self.sizes.max())
        failing = (1.0 - risk) * learnt.mean()
        # a share that the test part cannot show is not tested: a stake of 0 gives p = 1
        testable = not (test.share and test.is_id.all())
        self.stakes = np.empty(len(pairs))
        self.expected = np.empty(len(pairs))  # logarithm of the wealth
        for i in range(len(pairs)):
            z = excess(learn, first <= i, risk)
            spread = len(self.sizes) * (float(z @ z) + failing**2) / (groups + 1)
            stake = min(math.sqrt(-2.0 * math.log(delta) / spread), limit)
            # clipped, because a group that learns may be larger than every group that tests
            grown = np.log(np.maximum(1.0 - stake * z, 1.0 - CAUTIOUS)).sum()
            self.stakes[i], self.expected[i] = stake * testable, grown * len(self.sizes) / groups

    @property
    def start(self) -> int:
        """Index of the pair that is most likely to pass, judged by the part that learns."""
        return int(np.argmax(self.expected))

    def p_values(self, places: slice) -> Array:
        r"""Compute the p-values at some pairs of the path.

        Parameters
        ----------
        places : slice
            Which pairs.

        Returns
        -------
        ndarray of shape (n_places,)
            P-values :math:`\min(1, 1 / E_\lambda)`.
        """
        found = []
        for i in range(*places.indices(len(self.stakes))):
            wealth = np.log1p(-self.stakes[i] * excess(self.test, self.first <= i, self.risk)).sum()
            found.append(math.exp(min(0.0, -wealth)))
        return np.array(found)


def row_weights(data: ScoredSamples) -> Array:
    """Compute the weight of each row: 1, and for OOD rows what follows from the expected share.

    Parameters
    ----------
    data : ScoredSamples
        The rows.

    Returns
    -------
    ndarray of shape (n_samples,)
        Weights.
    """
    weight = data.weight if not data.is_id.all() else 1.0
    return np.where(data.is_id, 1.0, weight)


def group_weights(data: ScoredSamples) -> Array:
    """Sum the weights of the rows of each group.

    Parameters
    ----------
    data : ScoredSamples
        The rows, with groups; without groups each row is one.

    Returns
    -------
    ndarray of shape (n_groups,)
        Weights of the groups.
    """
    return group_sums(data.groups, row_weights(data))


def excess(data: ScoredSamples, accepted: npt.NDArray[np.bool_], risk: float) -> Array:
    """Compute :math:`Z_g` of each group: the weighted sum over its accepted rows of failure (1 or 0) minus ``risk``.

    Parameters
    ----------
    data : ScoredSamples
        The rows, with groups; without groups each row is one.
    accepted : ndarray of shape (n_samples,)
        True for accepted rows.
    risk : float
        Risk to be promised.

    Returns
    -------
    ndarray of shape (n_groups,)
        One sum per group; a positive total speaks against the promise.
    """
    worth = row_weights(data) * accepted * (~data.correct - risk)
    return group_sums(data.groups, worth)


def group_sums(groups: Codes | None, values: npt.NDArray[np.generic]) -> Array:
    """Sum the values of the rows of each group.

    Parameters
    ----------
    groups : ndarray of shape (n_samples,) or None
        Groups as numbers from 0; without them each row is one.
    values : ndarray of shape (n_samples,)
        Numbers or booleans.

    Returns
    -------
    ndarray of shape (n_groups,)
        Sums, float64.

    Examples
    --------
    >>> group_sums(np.array([0, 1, 0]), np.array([1.0, 2.0, 3.0]))
    array([4., 2.])
    """
    numbers = values.astype(np.float64)
    return numbers if groups is None else np.asarray(np.bincount(groups, weights=numbers), np.float64)


def ratio_interval(part: Array, whole: Array, size: Array, level: float) -> tuple[float, float]:
    r"""Bound the ratio of the means of two sums over independent groups, from below and from above.

    For a ratio r, :math:`Z_g = \mathrm{part}_g - r\, \mathrm{whole}_g` has mean 0 in total, and its absolute value is
    at most ``size`` of its group. The mean of :math:`\prod_g (1 \mp \lambda Z_g)` over a fixed set of stakes has an
    expectation of at most 1 (:mod:`twofold.gate.grouped`), so ratios at which it reaches 2 / ``level`` are excluded, on
    either side.

    Parameters
    ----------
    part : ndarray of shape (n_groups,)
        What is counted in each group: ``0 <= part <= whole <= size``.
    whole : ndarray of shape (n_groups,)
        Of what it is a share.
    size : ndarray of shape (n_groups,)
        The largest value that ``whole`` could have had.
    level : float
        Largest probability that the interval misses the ratio.

    Returns
    -------
    tuple of float
        Lower and upper bound, in [0, 1].

    Examples
    --------
    >>> low, high = ratio_interval(np.full(200, 1.0), np.full(200, 10.0), np.full(200, 10.0), 0.05)
    >>> bool(low < 0.1 < high)
    True
    """
    stakes = STAKES / max(float(size.max()), SMALLEST_NORMAL)

    def excluded(ratio: float, sign: float) -> bool:
        z = part - ratio * whole
        wealth = np.log1p(-sign * stakes[:, None] * z).sum(axis=1)
        top = float(wealth.max())
        return top + math.log(np.exp(wealth - top).mean()) >= math.log(2.0 / level)

    return _edge(lambda ratio: excluded(ratio, -1.0), 0.0, 1.0), _edge(lambda ratio: excluded(ratio, 1.0), 1.0, 0.0)


def _edge(excluded: Callable[[float], bool], outer: float, inner: float) -> float:
    """Find where ratios stop being excluded on the way from ``outer`` to ``inner``, rounded to the outer side."""
    if not excluded(outer):
        return outer
    for _ in range(50):
        middle = (outer + inner) / 2.0
        if excluded(middle):
            outer = middle
        else:
            inner = middle
    return outer
