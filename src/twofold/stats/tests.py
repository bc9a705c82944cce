r"""Rank tests over a table of results, blocks in rows and methods in columns.

Every test ranks the methods inside each block (1 = best, ties share the mid-rank) or, for :func:`wilcoxon`,
compares two methods over the blocks. All of them take the blocks to be independent; where the table itself
shows that they are not, a :class:`~twofold.errors.DoubtfulTable` warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np

from twofold._checks import Array, ArrayLike, choice, floats, plain
from twofold.errors import DoubtfulTable, InvalidInput

Better: TypeAlias = Literal["higher", "lower"]

EXACT = 50  # signed-rank counts stay exact in float64 (2**50), and the normal curve is good beyond
DRAWS = 199  # a doubt is voiced when the table is more extreme than all of 199 simulated ones: level 1/200
COPY = 0.95  # correlation of residual ranks from which two blocks are called copies


@dataclass(frozen=True, eq=False)
class Friedman:
    """What :func:`friedman` found; ``df`` belongs to ``f``, and its first entry to ``statistic``."""

    statistic: float
    p: float
    f: float
    f_p: float
    df: tuple[int, int]
    mean_ranks: Array
    names: tuple[str, ...]
    blocks: int


@dataclass(frozen=True, eq=False)
class Pairwise:
    """All pairs of methods: Holm-adjusted ``p``, ``raw`` p and ``statistic``, each (k, k), symmetric."""

    p: Array
    raw: Array
    statistic: Array
    mean_ranks: Array
    names: tuple[str, ...]
    test: str


@dataclass(frozen=True, eq=False)
class Table:
    """A validated table: values, mid-ranks inside each block and the names of the methods."""

    values: Array
    ranks: Array
    names: tuple[str, ...]

    @property
    def sums(self) -> Array:
        """Rank sums, exact: they are multiples of one half."""
        return np.asarray(self.ranks.sum(axis=0))

    @property
    def mean_ranks(self) -> Array:
        """Mean rank of every method."""
        return self.sums / len(self.ranks)


def friedman(table: ArrayLike, *, better: Better = "higher", names: Sequence[str] | None = None) -> Friedman:
    r"""Are all methods alike? Friedman's test with the correction for ties, and Iman and Davenport's F.

    .. math:: T_1 = \frac{(k-1) \sum_j (R_j - N(k+1)/2)^2}{A_1 - C_1}, \quad
              F = \frac{(N-1) T_1}{N(k-1) - T_1}, \quad A_1 = \sum_{ij} r_{ij}^2, \quad C_1 = N k (k+1)^2 / 4

    ``statistic`` and ``p`` are :math:`T_1` against :math:`\chi^2_{k-1}`; ``f`` and ``f_p`` are F against
    :math:`F_{k-1, (k-1)(N-1)}`, the better approximation. If every block is tied throughout, both statistics
    are 0 and both p are 1; if all blocks agree perfectly, ``f`` is inf and ``f_p`` is 0. Two blocks and two
    methods are the least; NaN and infinities are errors. Conover, Practical Nonparametric Statistics, 1999,
    section 5.8.

    >>> result = friedman(list(zip([4, 6, 3, 5, 4, 5], [7, 8, 6, 7, 9, 6], [6, 9, 7, 8, 8, 9])))
    >>> round(result.statistic, 4), round(result.f, 4), result.df
    (9.3333, 17.5, (2, 10))
    """
    data = ranked(table, better, names)
    result = omnibus(data)
    voice(doubts(data))
    return result


def conover_t(table: ArrayLike, *, better: Better = "higher", names: Sequence[str] | None = None) -> Pairwise:
    r"""Which methods differ? Conover's t test on rank sums, Holm-adjusted over all pairs.

    .. math:: t_{ij} = \frac{|R_i - R_j|}{\sqrt{2 (N A_1 - \sum_j R_j^2) / ((N-1)(k-1))}}

    against Student's t with :math:`(N-1)(k-1)` degrees of freedom, two-sided. If all blocks agree perfectly
    the standard error is 0: t is inf and p is 0 where rank sums differ, 0 and 1 where they are equal. The
    standard error is common to all pairs, so methods that are always last shrink it for everyone: a warning
    says when. Conover 1999, section 5.8; equal to scikit-posthocs from 0.8.1 (earlier releases have another
    variance).

    >>> result = conover_t([[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]], names="ABC")
    >>> [round(float(p), 6) for p in result.raw[0]], [round(float(p), 6) for p in result.p[0]]
    ([1.0, 0.001193, 0.000231], [1.0, 0.002387, 0.000692])
    """
    return _mean_rank_test("conover_t", ranked(table, better, names))


conover_holm = conover_t


def rank_z(table: ArrayLike, *, better: Better = "higher", names: Sequence[str] | None = None) -> Pairwise:
    r"""Which methods differ? Normal test on mean ranks, variance as without ties, Holm-adjusted.

    .. math:: z_{ij} = |\bar R_i - \bar R_j| \Big/ \sqrt{k (k+1) / (6 N)}

    Two-sided. Some papers call this test Conover's or Nemenyi's; it is neither (Nemenyi's uses the
    studentised range). It ignores ties, which makes it careful, and it loses power when the pool holds many
    weak methods. Demšar, JMLR 7, 2006, section 3.2.2.

    >>> result = rank_z([[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]])
    >>> result.raw[0].round(4)
    array([1.    , 0.0209, 0.0039])
    """
    return _mean_rank_test("rank_z", ranked(table, better, names))


def wilcoxon(table: ArrayLike, *, better: Better = "higher", names: Sequence[str] | None = None) -> Pairwise:
    r"""Which methods differ? Wilcoxon's signed-rank test of every pair over the blocks, Holm-adjusted.

    .. math:: W = \min\Big(\sum_{d_i > 0} \rho_i, \sum_{d_i < 0} \rho_i\Big), \quad
              \rho_i = \text{rank of } |d_i| \text{ among the non-zero differences}

    Two-sided. Zero differences are dropped (Wilcoxon's own rule); if all are zero, W is 0 and p is 1. Up to
    50 differences p is exact, given the mid-ranks: all sign patterns are counted, also where SciPy falls back
    to the normal curve because of ties; beyond, the tie-corrected normal curve without continuity correction.
    Differences closer than 1e-12 of the pair's largest value count as equal, so that 0.3 - 0.2 ties with 0.2
    - 0.1. The test looks at sizes of differences, so blocks on one scale; no third method can change the
    outcome of a pair except through Holm. With N blocks no p is below 2 :sup:`1-N`. Wilcoxon, Biometrics
    Bulletin 1, 1945; Benavoli et al., JMLR 17, 2016.

    >>> result = wilcoxon([[4, 7, 6], [6, 8, 9], [3, 6, 7], [5, 7, 8], [4, 9, 8], [5, 6, 9]])
    >>> result.statistic[0], result.raw[0]
    (array([0., 0., 0.]), array([1.     , 0.03125, 0.03125]))
    """
    data = ranked(table, better, names)
    result = compare("wilcoxon", data)
    voice(doubts(data))
    return result


def holm(p: ArrayLike) -> Array:
    r"""Holm's step-down adjustment of p-values.

    .. math:: \tilde p_{(i)} = \max_{j \le i} \min(1, (m - j + 1)\, p_{(j)})

    Controls the chance of any false rejection, whatever the dependence. The shape of ``p`` is kept.
    Holm, Scandinavian Journal of Statistics 6, 1979.

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


def ranked(table: ArrayLike, better: Better, names: Sequence[str] | None) -> Table:
    """The door for tables: any 2-D array-like, or a DataFrame whose columns name the methods."""
    from scipy.stats import rankdata

    choice(better, "better", ("higher", "lower"))
    columns = getattr(table, "columns", None) if names is None else names
    values = np.ascontiguousarray(floats(table, "table", ndim=2), dtype=np.float64)
    blocks, methods = values.shape
    if blocks < 2 or methods < 2:
        raise InvalidInput(
            f"table must have at least 2 blocks (rows) and 2 methods (columns), got shape {values.shape}"
        )
    labels = tuple(str(c) for c in (range(methods) if columns is None else columns))
    if len(labels) != methods or len(set(labels)) != methods:
        raise InvalidInput(f"names must be {methods} different names, one per column, got {labels}")
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise InvalidInput(
            f"table must be finite, got {values[row, column]} in row {row}, column {labels[column]!r} "
            f"({len(bad)} such values); drop the block or the method"
        )
    ranks = np.asarray(rankdata(-values if better == "higher" else values, axis=1), dtype=np.float64)
    return Table(values, ranks, labels)


def omnibus(data: Table) -> Friedman:
    """Friedman's test of a validated table; sums of half-integers are exact, as edge cases need."""
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
    p, f_p = float(chdtrc(df[0], statistic)), 0.0 if f == np.inf else float(fdtrc(*df, f))
    return Friedman(statistic, p, float(f), f_p, df, data.mean_ranks, data.names, blocks)


def compare(test: str, data: Table) -> Pairwise:
    """One pairwise test of a validated table, without warnings."""
    statistic, raw = TESTS[test](data)
    upper = np.triu_indices(len(data.names), 1)
    p = np.ones_like(raw)
    p[upper] = p.T[upper] = holm(raw[upper])
    return Pairwise(p, raw, statistic, data.mean_ranks, data.names, test)


def _mean_rank_test(test: str, data: Table) -> Pairwise:
    result = compare(test, data)
    voice(doubts(data, weak=test == "conover_t"), stacklevel=4)
    return result


def _unexplained(data: Table) -> float:
    """N A1 - sum R^2: zero exactly when every block has the same ranks."""
    return len(data.ranks) * float((data.ranks**2).sum()) - float((data.sums**2).sum())


def _gaps(data: Table) -> Array:
    return np.abs(data.sums[:, None] - data.sums)


def _conover(data: Table) -> tuple[Array, Array]:
    from scipy.special import stdtr

    blocks, methods = data.ranks.shape
    df = (blocks - 1) * (methods - 1)
    error = np.sqrt(2 * _unexplained(data) / df)
    gaps = _gaps(data)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(gaps == 0, 0.0, gaps / error)
    return t, np.where(gaps == 0, 1.0, 2 * stdtr(df, -t))


def _normal(data: Table) -> tuple[Array, Array]:
    from scipy.special import ndtr

    blocks, methods = data.ranks.shape
    z = _gaps(data) / blocks / np.sqrt(methods * (methods + 1) / (6 * blocks))
    return z, np.asarray(2 * ndtr(-z))


def _signed_ranks(data: Table) -> tuple[Array, Array]:
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
    return w, min(1.0, 2 * float(ndtr(z)))


@lru_cache(maxsize=256)
def _sign_patterns(doubled: tuple[int, ...]) -> Array:
    """P(W <= w) over all sign patterns, at index 2w; doubling makes mid-ranks whole."""
    counts = np.zeros(sum(doubled) + 1)
    counts[0] = 1.0
    for rank in doubled:
        counts[rank:] += counts[:-rank].copy()
    return np.asarray(np.cumsum(counts) / 2.0 ** len(doubled))


TESTS: dict[str, Callable[[Table], tuple[Array, Array]]] = {
    "conover_t": _conover,
    "rank_z": _normal,
    "wilcoxon": _signed_ranks,
}


# Doubts. Ranks minus the method's mean rank are what the blocks add of their own. Between independent blocks
# these residuals go together only by chance, however strongly the methods differ; how far chance goes is
# simulated with a fixed seed, so the same table always gets the same answer.


def voice(messages: list[str], stacklevel: int = 3) -> None:
    """Raise every doubt as a warning at the caller of the public function."""
    for message in messages:
        warnings.warn(message, DoubtfulTable, stacklevel=stacklevel)


def doubts(data: Table, *, weak: bool = False) -> list[str]:
    """What the table shows against the assumptions of a rank test, one sentence each."""
    found: list[str] = []
    pairs = copied_blocks(data)
    if pairs:
        shown = _shown([f"{i} and {j}" for i, j in pairs])
        found.append(
            "some blocks rank the methods almost identically, beyond what the methods' strength explains "
            f"(rows {shown}): a metric or data set seems to be counted twice, which makes p-values far too "
            "small; test one metric at a time and keep one row of each pair"
        )
    if correlated_blocks(_without_twins(data.ranks, pairs)):
        found.append(
            "blocks are correlated: rows fall into groups that deviate from the mean ranks in the same way, "
            "as replicas of one data set do, which makes p-values too small; average the replicas inside "
            "each block, so that one row stands for one data set"
        )
    feeble = weak_methods(data) if weak else []
    if feeble:
        found.append(
            f"{len(feeble)} of {len(data.names)} methods are weak ({_shown(feeble)}): they lose to the whole "
            "top half in nearly every block and their ranks hardly vary, so the common standard error is too "
            "small for the others; use wilcoxon, or leave them out"
        )
    return found


def _shown(items: Sequence[str]) -> str:
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


def copied_blocks(data: Table) -> list[tuple[int, int]]:
    """Pairs of blocks that are copies: equal numbers, or residual ranks that correlate beyond chance."""
    equal = _equal_rows(data.values)
    if equal:
        return equal
    ranks = data.ranks
    if not _beyond_shuffles(ranks, _copies, seed=0):
        return []
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(_likeness(_residuals(ranks)), 1) >= COPY)]


def correlated_blocks(ranks: Array) -> bool:
    r"""Do the blocks form groups?

    Two conditions. First, residuals are more alike than when every method's ranks are shuffled over the
    blocks. That alone could also come from methods that are variants of one another, which is harmless; so,
    second, the *rows* must be the grouped side: the sum of cubed row correlations exceeds that of all random
    rotations, which keep the covariance of the methods (Langsrud, Statistics and Computing 15, 2005), or
    there are two groups of rows, which rotations cannot see because centring makes them opposite: one
    direction holds most of the spread and its row scores are two clumps (kurtosis near 1), more so than its
    method scores.
    """
    if min(ranks.shape) < 4:
        return False
    if not _beyond_shuffles(ranks, _shared_spread, seed=1):
        return False
    return _two_groups(ranks) or _beyond_rotations(ranks, seed=2)


def weak_methods(data: Table) -> list[str]:
    """Methods beaten by all of the top half in 95 % of blocks, if they shrink the common variance by a sixth.

    Weak methods that swap places with one another do no harm; those with a fixed order add no variance but
    are counted in the degrees of freedom. Below 4 blocks or 6 methods nothing can be said.
    """
    blocks, methods = data.ranks.shape
    if blocks < 4 or methods < 6:
        return []
    order = np.argsort(data.mean_ranks, kind="stable")
    top, rest = order[: methods // 2], order[methods // 2 :]
    lost = (data.ranks[:, top, None] < data.ranks[:, None, rest]).mean(axis=0).min(axis=0)
    weak = rest[lost >= 0.95]
    variance = data.ranks.var(axis=0)
    if len(weak) < 2 or variance[top].mean() <= 1.2 * variance.mean():
        return []
    return [data.names[j] for j in weak]


def _equal_rows(values: Array) -> list[tuple[int, int]]:
    """Rows equal to the last digit; whole numbers (ranks, ratings) and short rows may be equal by chance."""
    rows: dict[bytes, int] = {}
    pairs = []
    for i, row in enumerate(values):
        if len(np.unique(row)) >= 5 and not (row == np.floor(row)).all():
            first = rows.setdefault((row + 0.0).tobytes(), i)
            if first != i:
                pairs.append((first, i))
    return pairs


def _without_twins(ranks: Array, pairs: list[tuple[int, int]]) -> Array:
    """One row of each pair of copies; larger groups stay, since they are groups and not twins."""
    rows = [i for pair in pairs for i in pair]
    twins = {j for i, j in pairs if rows.count(i) == rows.count(j) == 1}
    return ranks[[i for i in range(len(ranks)) if i not in twins]]


def _residuals(ranks: Array) -> Array:
    return np.asarray(ranks - ranks.mean(axis=0))


def _likeness(residuals: Array) -> Array:
    """Correlation between rows; a row without residual is like no other."""
    norm = np.sqrt((residuals**2).sum(axis=1, keepdims=True))
    unit = residuals / np.where(norm > 1e-9, norm, np.inf)
    return np.asarray(unit @ unit.T)


def _copies(ranks: Array) -> float:
    return float((np.triu(_likeness(_residuals(ranks)), 1) >= COPY).sum())


def _shared_spread(ranks: Array) -> float:
    """Off-diagonal part of tr(G^2) / tr(G)^2, G the Gram matrix of the residual rows."""
    residuals = _residuals(ranks)
    gram = residuals @ residuals.T
    total = float(np.trace(gram))
    return 0.0 if total < 1e-9 else float((gram**2).sum() - (np.diag(gram) ** 2).sum()) / total**2


def _beyond_shuffles(ranks: Array, statistic: Callable[[Array], float], *, seed: int) -> bool:
    """Is the statistic above that of all tables in which each method's ranks are shuffled over the blocks?"""
    from scipy.stats import rankdata

    seen = statistic(ranks)
    rng = np.random.default_rng(seed)
    for _ in range(DRAWS if seen > 0 else 0):
        shuffled = rng.permuted(ranks, axis=0) + 0.2 * rng.random(ranks.shape)  # the noise breaks ties only
        if statistic(rankdata(shuffled, axis=1)) >= seen - 1e-12:
            return False
    return seen > 0


def _beyond_rotations(ranks: Array, *, seed: int) -> bool:
    """Is the sum of cubed row correlations above that of all random rotations of the normal scores?"""
    from scipy.special import ndtri

    blocks, methods = ranks.shape
    residuals = _residuals(ndtri((ranks - 0.5) / methods))
    seen = _cubes(residuals)
    rng = np.random.default_rng(seed)
    core = _centred_frame(rng, blocks).T @ residuals
    for _ in range(DRAWS if seen > 0 else 0):
        if _cubes(_centred_frame(rng, blocks) @ core) >= seen - 1e-12:
            return False
    return seen > 0


def _centred_frame(rng: np.random.Generator, blocks: int) -> Array:
    """A uniformly random orthonormal frame (N, N-1) of the vectors that sum to zero."""
    normal = rng.normal(size=(blocks, blocks - 1))
    q, r = np.linalg.qr(normal - normal.mean(axis=0))
    return np.asarray(q * np.sign(np.diag(r)))


def _cubes(residuals: Array) -> float:
    return float((np.triu(_likeness(residuals), 1) ** 3).sum())


def _two_groups(ranks: Array) -> bool:
    rows, spread, columns = np.linalg.svd(_residuals(ranks), full_matrices=False)
    share = spread[0] ** 2 / (spread**2).sum()
    return bool(share > 0.4 and _kurtosis(rows[:, 0]) < min(1.3, _kurtosis(columns[0])))


def _kurtosis(x: Array) -> float:
    x = x - x.mean()
    return float((x**4).mean() / (x**2).mean() ** 2)
