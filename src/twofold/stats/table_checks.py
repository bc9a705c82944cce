"""Find what speaks against the assumptions of a rank test in a table: copied or correlated blocks, weak methods.

Thresholds were calibrated by simulation; the slow tests hold false-alarm and detection rates.

Ranks minus the method's mean rank are what the blocks add of their own. Between independent blocks these residuals
correlate only by chance, however strongly the methods differ; how far chance goes is simulated with a fixed seed, so
the same table always gets the same answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np

from twofold._checks import Array
from twofold.errors import DoubtfulTable
from twofold.stats.table import RankedTable

DRAWS = 199  # a doubt is voiced when the table is more extreme than all of 199 simulated ones: level 1/200
COPY = 0.95  # correlation of residual ranks from which two blocks are called copies


def warn_doubts(messages: list[str], stacklevel: int = 3) -> None:
    """Issue every doubt as a ``DoubtfulTable`` warning at the caller of the public function.

    Parameters
    ----------
    messages : list of str
        The doubts, one sentence each.
    stacklevel : int, default=3
        How many calls lie between here and the caller, as in :func:`warnings.warn`.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_doubts(["blocks are correlated"])
    >>> caught[0].category.__name__
    'DoubtfulTable'
    """
    for message in messages:
        warnings.warn(message, DoubtfulTable, stacklevel=stacklevel)


def find_doubts(data: RankedTable, *, weak: bool = False) -> list[str]:
    """List what the table shows against the assumptions of a rank test, one message each.

    Parameters
    ----------
    data : RankedTable
        The validated table.
    weak : bool, default=False
        Look for weak methods too, which matter where all pairs share one standard error (``conover_t``).

    Returns
    -------
    list of str
        The messages; empty if nothing is found.

    Examples
    --------
    >>> from twofold.stats.table import rank_table
    >>> find_doubts(rank_table([[1, 2], [2, 1], [1, 2]], "higher", None))
    []
    """
    found: list[str] = []
    pairs = copied_blocks(data)
    if pairs:
        shown = _list_some([f"{i} and {j}" for i, j in pairs])
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
            f"{len(feeble)} of {len(data.names)} methods are weak ({_list_some(feeble)}): they lose to the whole "
            "top half in nearly every block and their ranks hardly vary, so the common standard error is too "
            "small for the others; use wilcoxon, or leave them out"
        )
    return found


def _list_some(items: Sequence[str]) -> str:
    """List at most three items."""
    listed = ", ".join(items[:3])
    if len(items) > 3:
        listed += f" and {len(items) - 3} more"
    return listed


def copied_blocks(data: RankedTable) -> list[tuple[int, int]]:
    """Find pairs of blocks that are copies: equal numbers, or residual ranks that correlate beyond chance.

    Parameters
    ----------
    data : RankedTable
        The validated table.

    Returns
    -------
    list of tuple of int
        Row numbers of each pair, the smaller first.

    Notes
    -----
    Rows count as equal only if they have at least 5 distinct values that are not all whole numbers, because ranks,
    ratings and short rows may be equal by chance. Residual ranks are compared only if there are no equal rows.

    Examples
    --------
    >>> from twofold.stats.table import rank_table
    >>> row = [0.1, 0.2, 0.35, 0.4, 0.5]
    >>> copied_blocks(rank_table([row, row[::-1], row], "higher", None))
    [(0, 2)]
    """
    equal = _equal_rows(data.values)
    if equal:
        return equal
    ranks = data.ranks
    if not _beyond_shuffles(ranks, _copies, seed=0):
        return []
    are_copies = np.triu(_likeness(_residuals(ranks)), 1) >= COPY
    first, second = np.nonzero(are_copies)
    return list(zip(first.tolist(), second.tolist(), strict=True))


def correlated_blocks(ranks: Array) -> bool:
    """Test whether the blocks form groups that deviate from the mean ranks in the same way.

    Parameters
    ----------
    ranks : array of shape (n_blocks, n_methods)
        Mid-ranks inside each block.

    Returns
    -------
    bool
        True if they do; always False below 4 blocks or 4 methods.

    Notes
    -----
    There are two conditions. First, residuals are more alike than when every method's ranks are shuffled over the
    blocks. That alone could also come from methods that are variants of one another, which is harmless; so,
    second, the *rows* must be the grouped side: the sum of cubed row correlations exceeds that of all random
    rotations, which keep the covariance of the methods, or there are two groups of rows, which rotations cannot see
    because centring makes them opposite: one direction holds most of the spread and its row scores are two clumps
    (kurtosis near 1), more so than its method scores. Simulations use a fixed seed, so equal tables get equal answers.

    References
    ----------
    Langsrud, Statistics and Computing 15, 2005 (random rotations).

    Examples
    --------
    >>> correlated_blocks(np.array([[1.0, 2.0], [2.0, 1.0]]))
    False
    """
    if min(ranks.shape) < 4:
        return False
    if not _beyond_shuffles(ranks, _shared_spread, seed=1):
        return False
    return _two_groups(ranks) or _beyond_rotations(ranks, seed=2)


def weak_methods(data: RankedTable) -> list[str]:
    """Find methods that are beaten by all of the top half in 95 % of blocks and shrink the common variance by a sixth.

    Weak methods that swap places with one another do no harm; those with a fixed order add no variance but
    are counted in the degrees of freedom.

    Parameters
    ----------
    data : RankedTable
        The validated table.

    Returns
    -------
    list of str
        Names of the weak methods; empty below 4 blocks or 6 methods, where nothing can be said.

    Examples
    --------
    >>> from twofold.stats.table import rank_table
    >>> weak_methods(rank_table([[1, 2], [2, 1], [1, 2]], "higher", None))
    []
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
    """Find rows equal to the last digit; whole numbers (ranks, ratings) and short rows may be equal by chance."""
    rows: dict[bytes, int] = {}
    pairs = []
    for i, row in enumerate(values):
        if len(np.unique(row)) >= 5 and not (row == np.floor(row)).all():
            first = rows.setdefault((row + 0.0).tobytes(), i)
            if first != i:
                pairs.append((first, i))
    return pairs


def _without_twins(ranks: Array, pairs: list[tuple[int, int]]) -> Array:
    """Keep one row of each pair of copies; larger groups stay, since they are groups and not twins."""
    copies = np.bincount(np.array(pairs, dtype=int).ravel(), minlength=len(ranks))
    keep = np.ones(len(ranks), dtype=bool)
    for first, second in pairs:
        if copies[first] == copies[second] == 1:
            keep[second] = False
    return ranks[keep]


def _residuals(ranks: Array) -> Array:
    return np.asarray(ranks - ranks.mean(axis=0))


def _likeness(residuals: Array) -> Array:
    """Compute the correlation between rows; a row without residual is like no other."""
    norm = np.sqrt((residuals**2).sum(axis=1, keepdims=True))
    unit = residuals / np.where(norm > 1e-9, norm, np.inf)
    return np.asarray(unit @ unit.T)


def _copies(ranks: Array) -> float:
    return float((np.triu(_likeness(_residuals(ranks)), 1) >= COPY).sum())


def _shared_spread(ranks: Array) -> float:
    """Compute the off-diagonal part of tr(G^2) / tr(G)^2, G the Gram matrix of the residual rows."""
    residuals = _residuals(ranks)
    gram = residuals @ residuals.T
    total = float(np.trace(gram))
    if total < 1e-9:
        return 0.0
    return float((gram**2).sum() - (np.diag(gram) ** 2).sum()) / total**2


def _beyond_shuffles(ranks: Array, statistic: Callable[[Array], float], *, seed: int) -> bool:
    """Test whether the statistic is above that of all tables with each method's ranks shuffled over the blocks."""
    from scipy.stats import rankdata

    seen = statistic(ranks)
    if seen <= 0:
        return False
    rng = np.random.default_rng(seed)
    for _ in range(DRAWS):
        shuffled = rng.permuted(ranks, axis=0) + 0.2 * rng.random(ranks.shape)  # the noise breaks ties only
        if statistic(rankdata(shuffled, axis=1)) >= seen - 1e-12:
            return False
    return True


def _beyond_rotations(ranks: Array, *, seed: int) -> bool:
    """Test whether the sum of cubed row correlations is above that of all random rotations of the normal scores."""
    from scipy.special import ndtri

    blocks, methods = ranks.shape
    residuals = _residuals(ndtri((ranks - 0.5) / methods))
    seen = _cubes(residuals)
    rng = np.random.default_rng(seed)
    if seen <= 0:
        return False
    core = _centred_frame(rng, blocks).T @ residuals
    for _ in range(DRAWS):
        rotated = _centred_frame(rng, blocks) @ core
        if _cubes(rotated) >= seen - 1e-12:
            return False
    return True


def _centred_frame(rng: np.random.Generator, blocks: int) -> Array:
    """Draw a uniformly random orthonormal frame (N, N-1) of the vectors that sum to zero."""
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
