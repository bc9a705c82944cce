"""Compute rank tests over a table of results, blocks in rows and methods in columns.

Every test ranks the methods inside each block (1 = best, ties share the mid-rank) or, for :func:`wilcoxon`,
compares two methods over the blocks. All of them assume independent blocks; where the table itself shows that they
are not, a :class:`~twofold.errors.DoubtfulTable` warning says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from twofold._checks import Array, ArrayLike, plain
from twofold.errors import InvalidInput
from twofold.stats.exact import (
    exact_friedman_p,
    least_conover_p,
    least_friedman_p,
    least_rank_z_p,
    least_wilcoxon_p,
)
from twofold.stats.table import Better, RankedTable, rank_table
from twofold.stats.table_checks import find_doubts, warn_doubts

EXACT = 50  # signed-rank counts stay exact in float64 (2**50), and the normal approximation is good beyond


@dataclass(frozen=True, eq=False)
class Friedman:
    """Hold the result of Friedman's test, :func:`friedman`.

    Parameters
    ----------
    statistic : float
        Friedman's statistic with the correction for ties.
    p : float
        Its p-value by the chi-square distribution.
    f : float
        Iman and Davenport's F, infinite where all blocks agree.
    f_p : float
        Its p-value by the F distribution.
    df : tuple of int
        Degrees of freedom of ``f``; the first entry is also that of ``statistic``.
    mean_ranks : array of shape (n_methods,)
        Mean rank of every method, 1 the best.
    names : tuple of str
        The methods.
    blocks : int
        Number of blocks.
    exact_p : float or None
        The p-value of ``statistic`` over all orders of the ranks inside the blocks; None for large tables.
    least_p : float
        The smallest p-value that a table of this size with these ties can have.

    Examples
    --------
    >>> result = friedman([[1, 2], [3, 4]])
    >>> result.exact_p, result.least_p, result.mean_ranks
    (0.5, 0.5, array([2., 1.]))
    """

    statistic: float
    p: float
    f: float
    f_p: float
    df: tuple[int, int]
    mean_ranks: Array
    names: tuple[str, ...]
    blocks: int
    exact_p: float | None
    least_p: float

    @property
    def decisive_p(self) -> float:
        """The exact p-value where it was counted, else that of F."""
        return self.f_p if self.exact_p is None else self.exact_p


@dataclass(frozen=True, eq=False)
class Pairwise:
    """Hold the result of a pairwise test of all methods.

    Parameters
    ----------
    p : array of shape (n_methods, n_methods)
        Holm-adjusted p-values, symmetric, 1 on the diagonal.
    raw : array of shape (n_methods, n_methods)
        Unadjusted p-values.
    statistic : array of shape (n_methods, n_methods)
        The statistic of every pair.
    mean_ranks : array of shape (n_methods,)
        Mean rank of every method, 1 the best.
    names : tuple of str
        The methods, in the order of rows and columns.
    test : {"conover_t", "rank_z", "wilcoxon"}
        Which test it is.

    Examples
    --------
    >>> result = rank_z([[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]], names="ABC")
    >>> result.test, result.names, result.p.shape
    ('rank_z', ('A', 'B', 'C'), (3, 3))
    """

    p: Array
    raw: Array
    statistic: Array
    mean_ranks: Array
    names: tuple[str, ...]
    test: str


def friedman(table: ArrayLike, *, better: Better = "higher", names: Sequence[str] | None = None) -> Friedman:
    r"""Test whether all methods are alike: Friedman's test with the correction for ties, and Iman and Davenport's F.

    .. math:: T_1 = \frac{(k-1) \sum_j (R_j - N(k+1)/2)^2}{A_1 - C_1}, \quad
              F = \frac{(N-1) T_1}{N(k-1) - T_1}, \quad A_1 = \sum_{ij} r_{ij}^2, \quad C_1 = N k (k+1)^2 / 4

    ``statistic`` and ``p`` are :math:`T_1` against :math:`\chi^2_{k-1}`; ``f`` and ``f_p`` are F against
    :math:`F_{k-1, (k-1)(N-1)}`, the better approximation.

    Parameters
    ----------
    table : array-like of shape (n_blocks, n_methods)
        Results; at least two blocks and two methods. The columns of a DataFrame name the methods.
    better : {"higher", "lower"}, default="higher"
        Which values are better.
    names : sequence of str, optional
        Names of the methods. By default the columns of a DataFrame, or 0, 1, ...

    Returns
    -------
    Friedman
        Both statistics with their p-values, the exact p-value for small tables, and the mean ranks.

    Raises
    ------
    InvalidInput
        If the table is too small, holds NaN or infinities, or names do not fit.

    Notes
    -----
    If every block is tied throughout, both statistics are 0 and both p are 1; if all blocks agree perfectly, ``f`` is
    inf. The approximations are for more than 10 blocks and more than 5 methods (Demšar, JMLR 7, 2006, section 3.2.2);
    in small tables they claim far too much: with two blocks of two methods F would have p = 0 in half of all cases.
    So small tables have ``exact_p``, counted over all orders of the ranks, and no p-value is below ``least_p``, the
    smallest attainable one (see :func:`twofold.stats.exact.least_friedman_p`).

    References
    ----------
    Conover, Practical Nonparametric Statistics, 1999, section 5.8.

    Examples
    --------
    >>> result = friedman(list(zip([4, 6, 3, 5, 4, 5], [7, 8, 6, 7, 9, 6], [6, 9, 7, 8, 8, 9])))
    >>> round(result.statistic, 4), round(result.f, 4), result.df
    (9.3333, 17.5, (2, 10))
    >>> round(result.exact_p, 5), round(result.f_p, 5)
    (0.00553, 0.00054)
    >>> friedman([[1, 2], [3, 4]]).decisive_p
    0.5
    """
    data = rank_table(table, better, names)
    result = omnibus(data)
    warn_doubts(find_doubts(data))
    return result


def conover_t(table: ArrayLike, *, better: Better = "higher", names: Sequence[str] | None = None) -> Pairwise:
    r"""Test which methods differ by Conover's t test on rank sums, Holm-adjusted over all pairs.

    .. math:: t_{ij} = \frac{|R_i - R_j|}{\sqrt{2 (N A_1 - \sum_j R_j^2) / ((N-1)(k-1))}}

    against Student's t with :math:`(N-1)(k-1)` degrees of freedom, two-sided. ``conover_holm`` is another name of this
    function.

    Parameters
    ----------
    table : array-like of shape (n_blocks, n_methods)
        Results; at least two blocks and two methods. The columns of a DataFrame name the methods.
    better : {"higher", "lower"}, default="higher"
        Which values are better.
    names : sequence of str, optional
        Names of the methods. By default the columns of a DataFrame, or 0, 1, ...

    Returns
    -------
    Pairwise
        Adjusted and raw p-values and the statistic of every pair.

    Raises
    ------
    InvalidInput
        If the table is too small, holds NaN or infinities, or names do not fit.

    Notes
    -----
    If all blocks agree perfectly the standard error is 0: where rank sums differ t is inf and p the smallest attainable
    one, :math:`(k!)^{1-N}` without ties (see :func:`twofold.stats.exact.least_conover_p`); where they are equal t is 0
    and p is 1. The standard error is common to all pairs, so methods that are always last shrink it for every pair; a
    ``DoubtfulTable`` warning says when. Equal to scikit-posthocs from 0.8.1 (earlier releases have another variance)
    but for the smallest p.

    References
    ----------
    Conover, Practical Nonparametric Statistics, 1999, section 5.8.

    Examples
    --------
    >>> result = conover_t([[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]], names="ABC")
    >>> [round(float(p), 6) for p in result.raw[0]], [round(float(p), 6) for p in result.p[0]]
    ([1.0, 0.001193, 0.000231], [1.0, 0.002387, 0.000692])
    """
    return _mean_rank_test("conover_t", rank_table(table, better, names))


conover_holm = conover_t


def rank_z(table: ArrayLike, *, better: Better = "higher", names: Sequence[str] | None = None) -> Pairwise:
    r"""Test which methods differ by a normal test on mean ranks, Holm-adjusted over all pairs.

    .. math:: z_{ij} = |\bar R_i - \bar R_j| \Big/ \sqrt{k (k+1) / (6 N)}

    against the normal distribution, two-sided, with the variance that mean ranks have without ties.

    Parameters
    ----------
    table : array-like of shape (n_blocks, n_methods)
        Results; at least two blocks and two methods. The columns of a DataFrame name the methods.
    better : {"higher", "lower"}, default="higher"
        Which values are better.
    names : sequence of str, optional
        Names of the methods. By default the columns of a DataFrame, or 0, 1, ...

    Returns
    -------
    Pairwise
        Adjusted and raw p-values and the statistic of every pair.

    Raises
    ------
    InvalidInput
        If the table is too small, holds NaN or infinities, or names do not fit.

    Notes
    -----
    Some papers call this test Conover's or Nemenyi's; it is neither (Nemenyi's uses the studentised range). It ignores
    ties, which makes it conservative, and it loses power when the pool holds many weak methods. No p is below the
    smallest attainable one, :math:`2 / (k (k-1))^N` without ties.

    References
    ----------
    Demšar, JMLR 7, 2006, section 3.2.2.

    Examples
    --------
    >>> result = rank_z([[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]])
    >>> result.raw[0].round(4)
    array([1.    , 0.0209, 0.0039])
    """
    return _mean_rank_test("rank_z", rank_table(table, better, names))


def wilcoxon(table: ArrayLike, *, better: Better = "higher", names: Sequence[str] | None = None) -> Pairwise:
    r"""Test which methods differ by Wilcoxon's signed-rank test of every pair over the blocks, Holm-adjusted.

    .. math:: W = \min\Big(\sum_{d_i > 0} \rho_i, \sum_{d_i < 0} \rho_i\Big), \quad
              \rho_i = \text{rank of } |d_i| \text{ among the non-zero differences}

    Two-sided. The test uses the sizes of differences, so all blocks must be on one scale.

    Parameters
    ----------
    table : array-like of shape (n_blocks, n_methods)
        Results; at least two blocks and two methods. The columns of a DataFrame name the methods.
    better : {"higher", "lower"}, default="higher"
        Which values are better; it affects the mean ranks only.
    names : sequence of str, optional
        Names of the methods. By default the columns of a DataFrame, or 0, 1, ...

    Returns
    -------
    Pairwise
        Adjusted and raw p-values and the statistic of every pair.

    Raises
    ------
    InvalidInput
        If the table is too small, holds NaN or infinities, or names do not fit.

    Notes
    -----
    Zero differences are dropped (Wilcoxon's own rule); if all are zero, W is 0 and p is 1. Differences closer than
    1e-12 of the pair's largest value count as equal, so that 0.3 - 0.2 ties with 0.2 - 0.1.

    Up to 50 differences p is exact, conditional on the mid-ranks: all sign patterns are counted, also where SciPy falls
    back to the normal approximation because of ties. Beyond that it is the tie-corrected normal approximation without
    continuity correction. With N blocks no p is below 2 :sup:`1-N`. No third method can change the outcome of a pair
    except through Holm's adjustment.

    References
    ----------
    Wilcoxon, Biometrics Bulletin 1, 1945; Benavoli et al., JMLR 17, 2016.

    Examples
    --------
    >>> result = wilcoxon([[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]])
    >>> result.statistic[0], result.raw[0]
    (array([0., 0., 0.]), array([1.     , 0.03125, 0.03125]))
    """
    data = rank_table(table, better, names)
    result = compare("wilcoxon", data)
    warn_doubts(find_doubts(data))
    return result


def holm(p: ArrayLike) -> Array:
    r"""Adjust p-values by Holm's step-down procedure.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})

    Controls the chance of any false rejection, whatever the dependence between the tests.

    Parameters
    ----------
    p : array-like of float
        P-values in [0, 1], of any shape; all of them form one family.

    Returns
    -------
    array
        Adjusted p-values in the shape of ``p``.

    Raises
    ------
    InvalidInput
        If a value is outside [0, 1] or NaN.

    References
    ----------
    Holm, Scandinavian Journal of Statistics 6, 1979.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    raw = np.asarray(plain(p, "p"), dtype=np.float64)
    bad = ~((raw >= 0) & (raw <= 1))
    if bad.any():
        raise InvalidInput(f"p must hold p-values in [0, 1], got {raw[bad][0]}")
    flat = raw.ravel()
    order = np.argsort(flat, kind="stable")
    adjusted = np.empty_like(flat)
    steps = np.arange(flat.size, 0, -1)
    adjusted[order] = np.maximum.accumulate(np.minimum(1.0, steps * flat[order]))
    return adjusted.reshape(raw.shape)


def omnibus(data: RankedTable) -> Friedman:
    """Compute Friedman's test of a validated table, without warnings.

    Parameters
    ----------
    data : RankedTable
        The validated table, from :func:`twofold.stats.table.rank_table`.

    Returns
    -------
    Friedman
        As :func:`friedman` returns it.

    Notes
    -----
    Sums of half-integers are exact in floating point, so the edge cases (all tied, all blocks alike) are found exactly.

    Examples
    --------
    >>> omnibus(rank_table([[1, 2], [3, 4]], "higher", None)).statistic
    2.0
    """
    from scipy.special import chdtrc, fdtrc

    blocks, methods = data.ranks.shape
    df = (methods - 1, (methods - 1) * (blocks - 1))
    spread = float((data.ranks**2).sum()) - blocks * methods * (methods + 1) ** 2 / 4
    left = _unexplained(data)
    if spread == 0:
        statistic = f = 0.0
    else:
        between = float(((data.sums - blocks * (methods + 1) / 2) ** 2).sum())
        statistic = (methods - 1) * between / spread
        f = np.inf if left == 0 else (blocks - 1) * statistic / (blocks * (methods - 1) - statistic)
    least = least_friedman_p(data.ranks)
    p = max(float(chdtrc(df[0], statistic)), least)
    f_p = least if f == np.inf else max(float(fdtrc(*df, f)), least)
    exact = exact_friedman_p(data.ranks)
    return Friedman(statistic, p, float(f), f_p, df, data.mean_ranks, data.names, blocks, exact, least)


def compare(test: str, data: RankedTable) -> Pairwise:
    """Compute one pairwise test of a validated table, without warnings.

    Parameters
    ----------
    test : {"conover_t", "rank_z", "wilcoxon"}
        The test.
    data : RankedTable
        The validated table, from :func:`twofold.stats.table.rank_table`.

    Returns
    -------
    Pairwise
        As the function of that name returns it.

    Examples
    --------
    >>> compare("wilcoxon", rank_table([[1, 2], [3, 4]], "higher", None)).raw[0]
    array([1. , 0.5])
    """
    statistic, raw = TESTS[test](data)
    upper = np.triu_indices(len(data.names), 1)
    p = np.ones_like(raw)
    p[upper] = p.T[upper] = holm(raw[upper])
    return Pairwise(p, raw, statistic, data.mean_ranks, data.names, test)


def _mean_rank_test(test: str, data: RankedTable) -> Pairwise:
    result = compare(test, data)
    warn_doubts(find_doubts(data, weak=test == "conover_t"), stacklevel=4)
    return result


def _unexplained(data: RankedTable) -> float:
    """Compute N A1 - sum R^2: zero exactly when every block has the same ranks."""
    return len(data.ranks) * float((data.ranks**2).sum()) - float((data.sums**2).sum())


def _gaps(data: RankedTable) -> Array:
    return np.abs(data.sums[:, None] - data.sums)


def _conover(data: RankedTable) -> tuple[Array, Array]:
    from scipy.special import stdtr

    blocks, methods = data.ranks.shape
    df = (blocks - 1) * (methods - 1)
    error = np.sqrt(2 * _unexplained(data) / df)
    gaps = _gaps(data)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(gaps == 0, 0.0, gaps / error)
    p = np.maximum(2 * stdtr(df, -t), least_conover_p(data.ranks))
    return t, np.where(gaps == 0, 1.0, p)


def _normal(data: RankedTable) -> tuple[Array, Array]:
    from scipy.special import ndtr

    blocks, methods = data.ranks.shape
    z = _gaps(data) / blocks / np.sqrt(methods * (methods + 1) / (6 * blocks))
    return z, np.maximum(2 * ndtr(-z), least_rank_z_p(data.ranks))


def _signed_ranks(data: RankedTable) -> tuple[Array, Array]:
    methods = len(data.names)
    statistic, raw = np.zeros((methods, methods)), np.ones((methods, methods))
    for i, j in zip(*np.triu_indices(methods, 1), strict=True):
        w, p = _signed_rank(data.values[:, i], data.values[:, j])
        statistic[i, j] = statistic[j, i] = w
        raw[i, j] = raw[j, i] = p
    return statistic, raw


def _signed_rank(x: Array, y: Array) -> tuple[float, float]:
    from scipy.special import ndtr
    from scipy.stats import rankdata

    scale = max(np.abs(x).max(), np.abs(y).max())
    if scale == 0:
        return 0.0, 1.0
    gaps = np.round(x / scale - y / scale, 12)
    gaps = gaps[gaps != 0]
    if gaps.size == 0:
        return 0.0, 1.0
    ranks = rankdata(np.abs(gaps))
    w = float(min(ranks[gaps > 0].sum(), ranks[gaps < 0].sum()))
    if gaps.size <= EXACT:
        below = _sign_patterns(tuple(int(r) for r in np.sort(2 * ranks)))
        return w, min(1.0, 2 * float(below[round(2 * w)]))
    z = (w - ranks.sum() / 2) / np.sqrt((ranks**2).sum() / 4)  # the sum of squared mid-ranks holds the tie correction
    return w, min(1.0, max(2 * float(ndtr(z)), least_wilcoxon_p(gaps.size)))


@lru_cache(maxsize=256)
def _sign_patterns(doubled: tuple[int, ...]) -> Array:
    """Compute P(W <= w) over all sign patterns, at index 2w; doubling makes mid-ranks whole."""
    counts = np.zeros(sum(doubled) + 1)
    counts[0] = 1.0
    for rank in doubled:
        counts[rank:] += counts[:-rank].copy()
    return np.asarray(np.cumsum(counts) / 2.0 ** len(doubled))


TESTS: dict[str, Callable[[RankedTable], tuple[Array, Array]]] = {
    "conover_t": _conover,
    "rank_z": _normal,
    "wilcoxon": _signed_ranks,
}
